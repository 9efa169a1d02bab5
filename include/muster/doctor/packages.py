"""The versions of what matters, from the packages' own metadata: nothing is imported that takes seconds to."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import confluent_kafka

import muster
from muster.doctor.findings import Check, Part

NEEDED = {"kazoo": (2, 11), "confluent-kafka": (2, 16), "python-consul": (1, 1), "httpx": (0, 28)}
"""The least versions, as in pyproject.toml; without these the command would not run at all."""
BESIDE = {"apache-airflow": (3, 3), "pyspark": (4,)}
"""Needed where Airflow and the jobs run, which may be elsewhere; with the least version."""


def check_packages(part: Part) -> Iterator[Check]:
    """One check for each package."""
    yield part.ok("muster", f"{muster.__version__}, Python {platform.python_version()}")
    for package, least in (NEEDED | BESIDE).items():
        try:
            found = version(package)
        except PackageNotFoundError:
            if package in NEEDED:
                yield part.failed(package, "is not installed", f"pip install '{package}>={_dotted(least)}'")
            else:
                yield part.ok(package, "is not installed here, and not needed for the command line")
            continue
        told = (
            f"{found}, librdkafka {confluent_kafka.libversion()[0]}"
            if package == "confluent-kafka"
            else found
        )
        if numbers(found) < least:
            yield part.warning(package, told, f"take {_dotted(least)} or newer, which Muster is tested with")
        else:
            yield part.ok(package, told)


def numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with: '4.2.0rc1' is (4, 2, 0)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _dotted(numbers_: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers_))
