"""Lists of partitions as people write them: `0-3,7`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from muster.levers.outcome import LeverError

PATTERN = r"^\s*\d{1,10}(\s*-\s*\d{1,10})?(\s*,\s*\d{1,10}(\s*-\s*\d{1,10})?)*\s*$"
"""A list, as a regular expression that forms can check too."""

MOST = 100_000
"""Partitions in one list; more are a slip of the finger."""


def parse_partitions(text: str) -> frozenset[int]:
    """Read `0-3,7`: numbers and ranges (both ends included) between commas. Raises `LeverError` for anything else."""
    if not re.fullmatch(PATTERN, text):
        raise LeverError(f"partitions {text!r}: write numbers and ranges between commas, such as 0-3,7")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise LeverError(f"partitions {text!r}: {part.strip()} goes backwards; write {end}-{begin}")
        if len(found) + end - begin >= MOST:
            raise LeverError(f"partitions {text!r}: these are more than {MOST}; name fewer at once")
        found.update(range(begin, end + 1))
    return frozenset(found)


def format_partitions(partitions: Iterable[int]) -> str:
    """Write partitions as `parse_partitions` reads them, in order; `none` if there are none."""
    ranges: list[list[int]] = []
    for partition in sorted(set(partitions)):
        if ranges and ranges[-1][1] == partition - 1:
            ranges[-1][1] = partition
        else:
            ranges.append([partition, partition])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "none"
