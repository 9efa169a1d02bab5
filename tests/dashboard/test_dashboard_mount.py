"""What every part of Airflow imports with the plugin is next to nothing; the dashboard is built when it is asked."""

from __future__ import annotations

import asyncio
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PLUGIN = Path(__file__).parents[2] / "plugins" / "muster_dashboard.py"

IMPORTED = """
import runpy, sys
import airflow.plugins_manager
before = set(sys.modules)
runpy.run_path(sys.argv[1])
print(*sorted(set(sys.modules) - before))
"""
"""What a plugin imports besides what Airflow itself has imported by then."""


@pytest.mark.airflow
def test_the_plugin_imports_no_client_and_no_web_framework(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, str(PLUGIN)],
        env=os.environ | {"AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1].strip() == ""


def test_application_is_built_once_and_tried_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.plugins_manager", SimpleNamespace(AirflowPlugin=object))  # type: ignore[misc]
    application_class = runpy.run_path(str(PLUGIN))["LazyApplication"]
    built: list[int] = []
    asked: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    def build() -> Any:
        built.append(len(built))
        if len(built) == 1:
            raise RuntimeError("not yet")
        return application

    lazy = application_class(build)

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
