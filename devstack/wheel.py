"""Muster's wheel, and fresh environments to install it into. `python -m devstack.wheel` leaves one in `dist/`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from devstack.airflow import ROOT
from devstack.command import run_to_end
from devstack.connector import connector_jar
from devstack.errors import DevstackError

_UV = [sys.executable, "-m", "uv"]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout as it is now, with the connector, into `folder`. Raises `DevstackError`."""
    connector_jar()
    with tempfile.TemporaryDirectory(prefix="muster-wheel-") as copied:
        # A copy, because setuptools leaves things beside what it builds from, of which one would be a second Muster.
        source = Path(copied)
        shutil.copytree(
            ROOT / "include" / "muster",
            source / "include" / "muster",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / name, source / name)
        build = ["build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
        run_to_end(
            [*_UV, *build, "--out-dir", folder.resolve(), source], "the wheel cannot be built", env=_clean()
        )
    return max(folder.glob("muster-*.whl"), key=lambda path: path.stat().st_mtime)


def find_python(version: str) -> Path | None:
    """Find a Python of this version (`3.13`) on this machine, None if there is none."""
    return next((python for python in _candidates(version) if _version(python) == version), None)


def make_environment(folder: Path, python: Path, *requirements: str | Path) -> Path:
    """Install `requirements` for `python` in `folder`; return the Python there.

    At the versions of requirements.txt, but for what `requirements` give a version of their own. Raises
    `DevstackError`.
    """
    run_to_end(
        [*_UV, "venv", "--quiet", "--python", python, folder], f"no environment for {python}", env=_clean()
    )
    made = folder / "bin" / "python"
    pinned = folder / "pinned.txt"
    versions = re.findall(
        r"^[A-Za-z0-9_.-]+==\S+", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE
    )
    own = {text.partition("==")[0] for text in map(str, requirements) if "==" in text}
    others = (version for version in versions if version.partition("==")[0] not in own)
    pinned.write_text("\n".join(others), encoding="utf-8")
    install = [*_UV, "pip", "install", "--quiet", "--link-mode", "hardlink"]
    where: list[str | Path] = ["--python", made, "--constraint", pinned]
    run_to_end([*install, *where, *requirements], "Muster cannot be installed", env=_clean())
    return made


def _clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}


def _candidates(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}*/bin/python{version}"))
    yield Path(sys.executable)


def _version(python: Path) -> str:
    """Return the version of a Python, '' if it does not run (pyenv's stand-ins do not)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    try:
        print(build_wheel(ROOT / "dist"))
    except DevstackError as error:
        sys.exit(f"Error: {error}")
