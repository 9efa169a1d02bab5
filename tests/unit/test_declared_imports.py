"""What the package imports is what `pyproject.toml` declares: each part gets by with what it is installed with."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "include" / "muster"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    "airflow": ("airflow/",),
    "delta": ("sinks/delta_",),
    "state": ("consumer/state/",),
    "own-spark": ("consumer/", "handlers/", "sinks/"),
}
"""The modules of Muster that need an extra, by the beginning of their paths; the first that fits counts."""
BESIDE = {"delta": "own-spark", "state": "own-spark"}
"""Extras that are installed with another one only."""
OF_PROVIDERS = {
    "airflow.providers.apache.spark": "apache-airflow-providers-apache-spark",
    "airflow.providers.standard": "apache-airflow-providers-standard",
    "airflow": "apache-airflow",
}
"""Airflow's modules come from several distributions; the longest prefix counts."""

OLD_METADATA = {"consul": "python-consul"}
"""Modules of packages that do not list what they hold."""


def distributions(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[\[<>=!~; ]", each)[0]) for each in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(file: Path) -> Iterator[str]:
    """The modules that a file cannot do without; it can where it catches an ImportError."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    spared = {id(part) for node in ast.walk(tree) if _catches(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in spared:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def _catches(node: ast.AST) -> bool:
    return isinstance(node, ast.Try) and any(
        isinstance(handler.type, ast.Name) and handler.type.id == "ImportError" for handler in node.handlers
    )


OF_OTHERS = {"pandas"}
"""What others import for us, without declaring it: pyspark."""
SPARK = {"pyspark"}
"""Comes with the extra `spark`, or is there."""


def distribution_of(module: str, installed: dict[str, set[str]]) -> str | None:
    """The distribution that a module comes from; None for Python's own and Muster's."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in {"muster", "__future__"}:
        return None
    for prefix, name in OF_PROVIDERS.items():
        if module == prefix or module.startswith(f"{prefix}."):
            return name
    found = installed.get(top, set()) | ({OLD_METADATA[top]} if top in OLD_METADATA else set())
    assert found, f"{module} is not installed here"
    return "pyspark" if "pyspark" in found else min(found)


@pytest.fixture(scope="module")
def needed() -> dict[str | None, dict[str, str]]:
    """By extra (None: no extra) the distributions that are imported, each with a file that does."""
    installed = {top: {normal(name) for name in names} for top, names in packages_distributions().items()}
    found: dict[str | None, dict[str, str]] = {extra: {} for extra in (None, *EXTRAS)}
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        extra = next((name for name, begins in EXTRAS.items() if path.startswith(begins)), None)
        for module in imported(file):
            if (name := distribution_of(module, installed)) is not None:
                found[extra].setdefault(name, f"{file.relative_to(PACKAGE)}: {module}")
    return found


def test_every_import_is_declared(needed: dict[str | None, dict[str, str]]) -> None:
    core = distributions(PROJECT["dependencies"])
    for extra, found in needed.items():
        extras = {extra, BESIDE.get(extra or "")} - {None}
        more = {name for each in extras for name in distributions(PROJECT["optional-dependencies"][each])}
        missing = {name: where for name, where in found.items() if name not in core | more | SPARK}
        assert missing == {}, f"declare them in pyproject.toml, {extra or 'dependencies'}"


def test_every_declared_package_is_imported(needed: dict[str | None, dict[str, str]]) -> None:
    everywhere = {name for found in needed.values() for name in found}
    assert distributions(PROJECT["dependencies"]) <= everywhere
    for extra in EXTRAS:
        asked_for = distributions(PROJECT["optional-dependencies"][extra]) - OF_OTHERS
        assert asked_for <= needed[extra].keys()
