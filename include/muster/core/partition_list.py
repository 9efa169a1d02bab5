"""Lists of partitions in messages: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable


def format_partitions(partitions: Iterable[int]) -> str:
    """Write partitions as ranges between commas, in order; `none` if there are none."""
    ranges: list[list[int]] = []
    for partition in sorted(set(partitions)):
        if ranges and ranges[-1][1] == partition - 1:
            ranges[-1][1] = partition
        else:
            ranges.append([partition, partition])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "none"
