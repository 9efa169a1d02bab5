"""The Spark connector's jar: built by Maven once for each state of sparkjobs/connector, then from the cache."""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from functools import cache
from pathlib import Path

from devstack.cache import cache_dir, locked, tool
from devstack.command import maven_note, run_to_end
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
    built = partial / "target" / JAR.name
    with step("Building and testing the Spark connector (one or two minutes, once)") as progress:
        run_to_end(
            [
                mvn,
                "--batch-mode",
                f"--file={partial / 'pom.xml'}",
                f"-Dmaven.repo.local={cache_dir() / 'm2'}",
                "package",
            ],
            f"Maven could not build the Spark connector in {_PROJECT}",
            note=maven_note(progress.note),
            lines=60,
            cwd=partial,
        )
        folder.mkdir(parents=True, exist_ok=True)
        built.replace(folder / JAR.name)
        progress.result = f"{(folder / JAR.name).stat().st_size / 2**20:.0f} MB"
    shutil.rmtree(partial, ignore_errors=True)
    return folder / JAR.name
