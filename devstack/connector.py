"""The Spark connector's jar: built by Maven once for each state of sparkjobs/connector, then from the cache."""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from devstack.cache import cache_dir, locked, tool
from devstack.errors import DevstackError
from devstack.progress import step
from muster.consumer.connector import JAR

_PROJECT = Path(__file__).resolve().parents[1] / "sparkjobs" / "connector"


@cache
def connector_jar() -> Path:
    """Return the checkout's jar, after building it if need be. There is none whose own tests fail.

    Raises `DevstackError`.
    """
    built = _built()
    if not (JAR.is_file() and filecmp.cmp(built, JAR, shallow=False)):
        new = JAR.with_suffix(f".{os.getpid()}")
        shutil.copyfile(built, new)
        new.replace(JAR)
    return JAR


def _built() -> Path:
    folder = cache_dir() / f"connector-{_digest()}"
    if not (folder / JAR.name).is_file():
        with locked("connector"):
            if not (folder / JAR.name).is_file():
                build_connector(folder)
    return folder / JAR.name


def _sources() -> list[Path]:
    return sorted([_PROJECT / "pom.xml", *(path for path in (_PROJECT / "src").rglob("*") if path.is_file())])


def _digest() -> str:
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(f"{path.relative_to(_PROJECT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def build_connector(folder: Path) -> Path:
    """Build and test the connector with Maven; put the jar into `folder`, and return it. Raises `DevstackError`."""
    mvn = tool(
        "mvn", "to build the Spark connector", "Maven 3.8 or newer (Debian: maven), with a JDK 17 or later"
    )
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for path in _sources():
        copy = partial / path.relative_to(_PROJECT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    with step("Building and testing the Spark connector") as progress:
        result = subprocess.run(  # noqa: S603  our own pom.xml
            [
                mvn,
                "--batch-mode",
                "--no-transfer-progress",
                f"--file={partial / 'pom.xml'}",
                f"-Dmaven.repo.local={cache_dir() / 'm2'}",
                "package",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=partial,
        )
        built = partial / "target" / JAR.name
        if result.returncode != 0 or not built.is_file():
            end = "\n".join((result.stdout + result.stderr).splitlines()[-60:])
            raise DevstackError(f"Maven could not build the Spark connector in {_PROJECT}. It said:\n{end}")
        folder.mkdir(parents=True, exist_ok=True)
        built.replace(folder / JAR.name)
        progress.result = f"{(folder / JAR.name).stat().st_size / 2**20:.0f} MB"
    shutil.rmtree(partial, ignore_errors=True)
    return folder / JAR.name
