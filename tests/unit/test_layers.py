"""The layers of the product, as `pyproject.toml` has them for import-linter, hold. No module is exempted."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"


def test_layers_hold() -> None:
    done = _lint(PROJECT)
    assert done.returncode == 0, done.stdout


def test_layers_exempt_no_module() -> None:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    assert [contract["id"] for contract in contracts] == ["layers", "pure", "frameworks", "product"]
    assert not any({"ignore_imports", "exhaustive_ignores"} & contract.keys() for contract in contracts)


def test_airflow_stays_out_of_every_part_but_its_own_and_the_look_up_of_connections() -> None:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    sources = {
        m.removeprefix("muster.") for c in contracts if c["id"] == "frameworks" for m in c["source_modules"]
    }
    muster = ROOT / "include" / "muster"
    packages = {file.parent.name for file in muster.glob("*/__init__.py")} - {"airflow", "core", "settings"}
    settings = {f"settings.{file.stem}" for file in (muster / "settings").glob("[a-z]*.py")}
    assert sources == packages | settings - {"settings.connection_lookup"}


def test_layers_the_other_way_round_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "pyproject.toml"
    wrong.write_text(PROJECT.read_text().replace('  "settings",\n  "core",', '  "core",\n  "settings",'))
    done = _lint(wrong)
    assert done.returncode != 0
    assert "muster.core is not allowed" in done.stdout or "muster.settings is not allowed" in done.stdout


def _lint(config: Path) -> subprocess.CompletedProcess[str]:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--config", str(config), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=ROOT / "include",
        check=False,
    )


def test_tests_import_no_test() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {line}"
        for file in (ROOT / "tests").rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(from|import) (tests\.[\w.]*\.)?test_\w+", line)
    ]
    assert not wrong, "what several tests use is in tests/support, or in a module beside them"
