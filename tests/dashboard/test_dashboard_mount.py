"""What every part of Airflow imports with the plugin is next to nothing; the dashboard is built when it is asked."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.airflow.plugin import LazyApplication

PLUGINS = Path(__file__).parents[2] / "plugins"

IMPORTED = """
import sys
import airflow.plugins_manager
import airflow.listeners
before = set(sys.modules)
import muster.airflow.plugin
print(*sorted(set(sys.modules) - before))
"""
"""What a plugin imports besides what Airflow itself has imported by then."""


@pytest.mark.airflow
def test_the_plugin_imports_no_client_and_no_web_framework(tmp_path: Path) -> None:
    imported = set(last_line(IMPORTED, tmp_path).split())
    # The packages are there before, where Airflow has asked the installed package for its provider.
    assert imported - {"muster", "muster.airflow"} == {"muster.airflow.plugin", "muster.airflow.run_notes"}


REGISTERED = """
import importlib.metadata
try:
    import importlib_metadata
except ImportError:
    importlib_metadata = importlib.metadata
def only_the_tests_own(module):
    of_all = module.distributions
    def found(**arguments):
        return (d for d in of_all(**arguments) if d.metadata["Name"] != "muster-kafka" or d.version == "0")
    module.distributions = found
for module in {importlib.metadata, importlib_metadata}:
    only_the_tests_own(module)
from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
print(errors, *(type(plugin.source).__name__ for plugin in plugins if plugin.name == "muster"))
"""
"""How often Airflow has the plugin, and from where, with what it reports as errors."""


@pytest.mark.airflow
@pytest.mark.parametrize("installed", [False, True], ids=["on the path only", "installed"])
def test_the_plugin_is_registered_once_whether_the_package_is_installed_or_on_the_path(
    tmp_path: Path, installed: bool
) -> None:
    """Airflow reports a plugin that it finds twice, in its folder and installed, as an error."""
    metadata = tmp_path / "site" / "muster_kafka-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: muster-kafka\nVersion: 0\n")
    entry = "[airflow.plugins]\nmuster = muster.airflow.plugin:MusterPlugin\n" if installed else ""
    (metadata / "entry_points.txt").write_text(entry)
    said = last_line(REGISTERED, tmp_path, metadata.parent)
    assert said == ("{} EntryPointSource" if installed else "{} PluginsDirectorySource")


def last_line(code: str, home: Path, *paths: Path) -> str:
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].strip()


def test_application_is_built_once_and_tried_again_after_a_failure() -> None:
    built: list[int] = []
    asked: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    def build() -> Any:
        built.append(len(built))
        if len(built) == 1:
            raise RuntimeError("not yet")
        return application

    lazy = LazyApplication(build)

    async def ask(path: str) -> None:
        await lazy({"path": path}, _nothing, _nothing)

    async def all_at_once() -> None:
        with pytest.raises(RuntimeError, match="not yet"):
            await ask("/first")
        await asyncio.gather(*(ask(f"/{n}") for n in range(5)))

    asyncio.run(all_at_once())
    assert len(built) == 2
    assert sorted(asked) == [f"/{n}" for n in range(5)]


async def _nothing(*_: Any) -> Any:
    return None
