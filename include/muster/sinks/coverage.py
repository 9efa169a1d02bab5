"""Which offsets of a partition are there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from muster.core.model import OffsetRange


class Coverage:
    """Offsets that are there, as ranges that neither touch nor overlap, in order."""

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        self._ranges: list[OffsetRange] = []
        for begin, end in sorted(ranges):
            _check(begin, end)
            if self._ranges and begin <= self._ranges[-1][1]:
                first, last = self._ranges.pop()
                self._ranges.append((first, max(last, end)))
            else:
                self._ranges.append((begin, end))

    def add(self, begin: int, end: int) -> None:
        """Take `begin` up to `end` in, whatever of it was there before. Raises ValueError for an empty range."""
        _check(begin, end)
        touched = self.near(begin, end)
        first = bisect_left(self._ranges, begin, key=lambda r: r[1])
        self._ranges[first : first + len(touched)] = [
            (min([begin, *(r[0] for r in touched)]), max([end, *(r[1] for r in touched)]))
        ]

    def missing(self, begin: int, end: int) -> list[OffsetRange]:
        """Return what of `begin` up to `end` is not there, in order."""
        found: list[OffsetRange] = []
        at = begin
        for index in range(bisect_right(self._ranges, begin, key=lambda r: r[1]), len(self._ranges)):
            covered = self._ranges[index]
            if covered[0] >= end:
                break
            if covered[0] > at:
                found.append((at, covered[0]))
            at = max(at, covered[1])
        if at < end:
            found.append((at, end))
        return found

    def near(self, begin: int, end: int) -> list[OffsetRange]:
        """Return the ranges that `begin` up to `end` overlaps or touches, in order."""
        first = bisect_left(self._ranges, begin, key=lambda r: r[1])
        return self._ranges[first : bisect_right(self._ranges, end, key=lambda r: r[0])]

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(self._ranges)


def _check(begin: int, end: int) -> None:
    if begin >= end:
        raise ValueError(f"offsets {begin} to {end} are no range")
