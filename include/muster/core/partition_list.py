"""Lists of partitions in messages: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(partitions: Iterable[int]) -> list[tuple[int, int]]:
    """Return partition numbers as (first, last), both included, ascending."""
    found: list[tuple[int, int]] = []
    for partition in sorted(set(partitions)):
        if found and found[-1][1] == partition - 1:
            found[-1] = (found[-1][0], partition)
        else:
            found.append((partition, partition))
    return found


def format_partitions(partitions: Iterable[int]) -> str:
    """Write partitions as ranges between commas, in order; `none` if there are none."""
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges(partitions)]
    return ",".join(parts) or "none"
