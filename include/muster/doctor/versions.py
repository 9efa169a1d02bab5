"""The versions that Muster is tested with. The README's table is this one; `muster doctor` compares with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster.doctor.findings import Check, Part


@dataclass(frozen=True, slots=True)
class Tested:
    """`oldest` and `newest` that the tests run with, such as '3.11'; a patch release is not another version."""

    oldest: str
    newest: str
    by: str
    """What is tested with them."""

    def __str__(self) -> str:
        """Write it as people do."""
        return self.oldest if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


TESTED: Mapping[str, Tested] = {
    "Python": Tested("3.11", "3.13", "all tests on 3.11; the installation on all three"),
    "Airflow": Tested("3.2", "3.3", "all tests on 3.3; an installation and a hand-over with 3.2"),
    "Spark": Tested(
        "3.5",
        "4.3",
        "all tests on 4.2; an installation, the connector and a hand-over of a job with 3.5, 4.1 and 4.3",
    ),
    "Kafka": Tested("4.3", "4.3", "all tests"),
    "ZooKeeper": Tested("3.9", "3.9", "all tests"),
    "Consul": Tested("1.22", "1.22", "all tests"),
}


def check_version(part: Part, of: str, found: str, name: str = "version") -> Check:
    """Check whether the version `found` is one that is tested; a warning where it is not."""
    tested, there = TESTED[of], numbers(found)
    if not there:
        return part.ok(name, f"{of}: the version is {found}; {tested} is tested")
    if there[: len(numbers(tested.oldest))] < numbers(tested.oldest):
        return part.warning(name, f"{of} {found} is older than what is tested", f"take {of} {tested}")
    if there[: len(numbers(tested.newest))] > numbers(tested.newest):
        step = f"try it before you rely on it; {of} {tested} is tested"
        return part.warning(name, f"{of} {found} is newer than what is tested", step)
    return part.ok(name, f"{of} {found}")


def numbers(text: str) -> tuple[int, ...]:
    """Read the numbers that a version begins with: '4.2.0rc1' is (4, 2, 0)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
