"""The versions of what matters, from the packages' own metadata: nothing is imported that takes seconds to."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires
from importlib.util import find_spec
from pathlib import Path

import muster
from muster.doctor.findings import Check, Part, named
from muster.doctor.versions import check_version, numbers

RUNTIMES = {"Airflow": "apache-airflow", "Spark": "pyspark"}
"""What runs Muster besides Python, which may be elsewhere."""
EXTRAS = {"airflow": "apache-airflow", "own-spark": "pyspark", "delta": "deltalake"}
"""Extras of the package, and the one of its requirements without which an extra is not used here."""

JAVA_OF_SPARK_3, JAVA_OF_SPARK_4 = 8, 17
"""The least versions of Java that Spark's own pages name."""


def check_packages(part: Part) -> Iterator[Check]:
    """Make one check for each runtime, and one for what the package and each extra requires."""
    yield part.ok("muster", muster.__version__)
    yield check_version(part, "Python", platform.python_version(), "Python")
    for name, package in RUNTIMES.items():
        if (found := _version(package)) is None:
            yield part.ok(name, "is not installed here, and not needed for the command line")
        else:
            yield check_version(part, name, found, name)
    if (home := _spark_home()) is not None and (versions := _versions_of_spark(home)):
        yield _java(part, next(iter(versions.values())))
        yield _one_spark(part, home, versions)
    try:
        declared = requires("muster-kafka") or []
    except PackageNotFoundError:
        yield part.ok("requirements", "unknown: muster-kafka is on the path, and not installed")
        return
    yield _requirements(part, "requirements", [each for each in declared if "extra ==" not in each])
    for extra, needed in EXTRAS.items():
        if _version(needed) is not None:
            own = [each for each in declared if re.search(rf"extra == ['\"]{extra}['\"]", each)]
            yield _requirements(part, f"extra {extra}", own)


def _java(part: Part, spark: str) -> Check:
    """Check the Java that Spark's scripts would start."""
    least = JAVA_OF_SPARK_4 if numbers(spark) >= (4,) else JAVA_OF_SPARK_3
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    step = f"install a JDK, {least} or later, or set JAVA_HOME to one"
    if java is None:
        return part.failed("Java", "'java' is not on the PATH, and Spark does not start without it", step)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return part.failed("Java", f"{java} -version: {error}", step)
    said = done.stderr.strip().partition("\n")[0]
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is not None and int(found[1]) < least:
        return part.failed("Java", f"{java} is {said}, too old for Spark {spark}", step)
    return part.ok("Java", f"{java}: {said}")


def _versions_of_spark(home: Path) -> dict[str, str]:
    """Return the versions of the pyspark in `home`, of pyspark-client, whose files lie over its own, and of the jars
    that its scripts start; those that are there. A Spark that is no package of Python's has jars alone."""
    found = {name: _version(name, [str(home.parent)]) for name in ("pyspark", "pyspark-client")}
    found["jars"] = next((jar.stem.rpartition("-")[2] for jar in home.glob("jars/spark-core_*.jar")), None)
    return {name: each for name, each in found.items() if each}


def _one_spark(part: Part, home: Path, versions: Mapping[str, str]) -> Check:
    said = f"{home} has {', '.join(f'{name} {each}' for name, each in versions.items())}"
    if len({*versions.values()}) == 1:
        return part.ok("one Spark", said)
    step = (
        "install pyspark and pyspark-client of one version, as the extra [spark] does; another Spark has an "
        "environment of its own, with the extra [own-spark] and without Airflow's Spark provider, and SPARK_HOME "
        "names its folder"
    )
    return part.failed("one Spark", f"{said}: versions are mixed, and handlers with UDFs fail", step)


def _spark_home() -> Path | None:
    """Return the folder of the Spark that `spark-submit` starts here, None if there is none."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    package = find_spec("pyspark")
    return Path(package.origin).parent if package and package.origin else None


def _requirements(part: Part, name: str, declared: list[str]) -> Check:
    wrong = [problem for each in declared if (problem := _problem(each))]
    if not wrong:
        return part.ok(name, f"{len(declared)} packages are there")
    extra = name.removeprefix("extra ") if name.startswith("extra ") else ""
    step = f"install the wheel again{f' with the extra [{extra}]' if extra else ''}, or these packages"
    return part.failed(name, named(wrong), step, wrong)


def _problem(requirement: str) -> str:
    """Say why `name[extra]>=1.2; marker` is not met, '' if it is. Only least versions are compared."""
    found = re.match(r"([A-Za-z0-9._-]+)", requirement)
    least = re.search(r">=([\d.]+)", requirement.partition(";")[0])
    if found is None:
        return ""
    there = _version(found[1])
    if there is None:
        return f"{found[1]} is not installed"
    return (
        f"{found[1]} {there} is older than {least[1]}" if least and numbers(there) < numbers(least[1]) else ""
    )


def _version(package: str, folders: Sequence[str] = sys.path) -> str | None:
    return next((found.version for found in distributions(name=package, path=[*folders])), None)
