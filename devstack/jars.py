"""The jars of Kafka, ZooKeeper, YARN, Spark's Kafka source and Delta Lake: from Maven Central once, then cached."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from devstack.cache import cache_dir, locked, tool
from devstack.command import maven_note, run_to_end
from devstack.progress import step

_POM = Path(__file__).with_name("pom.xml")


def java() -> str:
    """Return the path of `java`: `$JAVA_HOME`'s, else the PATH's. Raises `DevstackError` if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (found := shutil.which("java", path=str(Path(home) / "bin"))):
        return found
    return tool(
        "java", "to run Kafka, ZooKeeper and Spark", "a JDK, 17 or later (Debian: openjdk-17-jdk-headless)"
    )


def jars(server: str) -> Path:
    """Return the folder with the jars of a profile of pom.xml, `kafka` say, after fetching them if need be.

    The folder's name has a hash of pom.xml, so another version there never meets old jars.
    """
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    folder = cache_dir() / f"{server}-{digest}"
    if folder.is_dir():
        return folder
    with locked("jars"):
        if not folder.is_dir():
            _fetch(server, folder)
    return folder


def _fetch(server: str, folder: Path) -> None:
    mvn = tool(
        "mvn", f"to fetch the jars of {server} from Maven Central", "Maven 3.8 or newer (Debian: maven)"
    )
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with step(f"Fetching the jars of {server} from Maven Central (once)") as progress:
        run_to_end(
            [
                mvn,
                "--batch-mode",
                f"--file={_POM}",
                f"--activate-profiles={server}",
                f"-Dmaven.repo.local={cache_dir() / 'm2'}",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={partial}",
            ],
            f"Maven could not fetch the jars of {server}; check the network and Maven's settings",
            note=maven_note(progress.note),
            cwd=cache_dir(),
        )
        progress.result = f"{sum(1 for _ in partial.glob('*.jar'))} jars"
    partial.replace(folder)
