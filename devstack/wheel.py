"""Muster's wheel, and fresh environments to install it into. `python -m devstack.wheel` leaves one in `dist/`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import muster
from devstack.airflow import ROOT
from devstack.command import run_to_end
from devstack.connector import connector_jar
from devstack.errors import DevstackError

README = ROOT / "README.md"
_UV = [sys.executable, "-m", "uv"]
_EPOCH = "315532800"
"""When all files of a wheel were written: the first second that a zip archive knows."""


def home_of(project: str) -> str:
    """Return the home page that a `pyproject.toml` names."""
    (home,) = re.findall(r'^Homepage = "(.+)"$', project, re.MULTILINE)
    return str(home)


def with_urls(project: str) -> str:
    """Add the links that follow from the home page to a `pyproject.toml`."""
    home = home_of(project)
    links = {"Documentation": "docs", "Changelog": "CHANGELOG.md"}
    lines = [f'{name} = "{home}/blob/v{muster.__version__}/{path}"\n' for name, path in links.items()]
    lines.append(f'Issues = "{home}/issues"\n')
    return re.sub(r"^(Homepage = .+\n)", lambda found: found[1] + "".join(lines), project, flags=re.MULTILINE)


def absolute(readme: str, home: str) -> str:
    """Have a README's links and pictures lead to the files of this version."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}[{found[2]}]({home}/{kind}/v{muster.__version__}/{found[3]})"

    return re.sub(r"(!?)\[([^]]*)\]\((?!https?://|#)([^)]+)\)", link, readme)


def build_wheel(folder: Path, version: str = "") -> Path:
    """Build the wheel of this checkout as it is now, with the connector, into `folder`.

    The same files make the same bytes. `version` stands in place of the code's. Raises `DevstackError`.
    """
    connector_jar()
    with tempfile.TemporaryDirectory(prefix="muster-wheel-") as copied:
        # A copy, because setuptools leaves things beside what it builds from, of which one would be a second Muster.
        source = Path(copied)
        shutil.copytree(
            ROOT / "include" / "muster",
            source / "include" / "muster",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        if version:
            code = source / "include" / "muster" / "__init__.py"
            code.write_text(code.read_text("utf-8").replace(muster.__version__, version), "utf-8")
        shutil.copyfile(ROOT / "LICENSE", source / "LICENSE")
        project = (ROOT / "pyproject.toml").read_text("utf-8")
        (source / "pyproject.toml").write_text(with_urls(project), "utf-8")
        (source / "README.md").write_text(absolute(README.read_text("utf-8"), home_of(project)), "utf-8")
        build = ["build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
        run_to_end(
            [*_UV, *build, "--out-dir", folder.resolve(), source],
            "the wheel cannot be built",
            env=_clean() | {"SOURCE_DATE_EPOCH": _EPOCH},
        )
    return max(folder.glob("muster_kafka-*.whl"), key=lambda path: path.stat().st_mtime)


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


def install_as_typed(folder: Path, python: Path, line: str, wheel: Path, *more: str | Path) -> Path:
    """Run `line` in a new environment for `python`, as a person types it, who has `wheel`; then install `more`.

    Returns the Python there. Nothing is pinned but what the line pins. Raises `DevstackError`.
    """
    run_to_end([python, "-m", "venv", folder], f"no environment for {python}", env=_clean())
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = _clean() | {
        "PATH": path,
        "PIP_FIND_LINKS": str(wheel.parent),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    run_to_end(["bash", "-c", line], f"{line} fails", env=environment)
    made = folder / "bin" / "python"
    run_to_end([made, "-m", "pip", "install", "--quiet", *more], f"no {more}", env=environment)
    return made


def install_lowest(folder: Path, python: Path, wheel: Path, extras: Sequence[str], *more: str | Path) -> Path:
    """Install `wheel` for `python` in `folder`, at the lowest versions that pyproject.toml allows; then `more`.

    The versions come from pyproject.toml, because uv takes only its dependencies for direct, and a wheel's for
    indirect ones, which it resolves to the highest. Returns the Python there. Raises `DevstackError`.
    """
    run_to_end(
        [*_UV, "venv", "--quiet", "--python", python, folder], f"no environment for {python}", env=_clean()
    )
    made, pinned = folder / "bin" / "python", folder / "pinned.txt"
    asked = [word for extra in extras for word in ("--extra", extra)]
    lowest: list[str | Path] = ["pip", "compile", "--quiet", "--resolution", "lowest-direct", *asked]
    where: list[str | Path] = ["--python", made, "--output-file", pinned, ROOT / "pyproject.toml"]
    run_to_end([*_UV, *lowest, *where], "the lower bounds do not fit each other", env=_clean())
    install: list[str | Path] = ["pip", "install", "--quiet", "--link-mode", "hardlink", "--python", made]
    what: list[str | Path] = [f"{wheel}[{','.join(extras)}]", "--requirements", pinned, *more]
    run_to_end([*_UV, *install, *what], "Muster cannot be installed at its lower bounds", env=_clean())
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
