"""How far behind a partition's consumer is in time: for how long the next record to process has been waiting.

Estimated from where the partition ended at which moment, as kafka-lag-exporter does it: the record arrived when the
end passed its offset. For a record that arrived before the partition was watched, the pace since then is taken to
have been the pace before. No record is read for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from operator import itemgetter

from muster.core.ownership import TopicPartition

EVERY = 5.0
"""Seconds between two moments that are remembered."""
POINTS = 60
"""So many moments of a partition are remembered: at most five minutes back, what is before that is extrapolated."""

_Point = tuple[int, float]
"""Where the partition ended, and when."""


class TimeLags:
    """The lag in time of partitions whose ends are `seen`. Not thread-safe; times are seconds of any steady clock."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, list[_Point]] = {}

    def seen(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Partitions ended at these offsets just `now`. One that ends earlier than before was made again."""
        for key, end in ends.items():
            points = self._points.setdefault(key, [])
            if points and end < points[-1][0]:
                points.clear()
            if len(points) > 1 and (
                now - points[-2][1] < EVERY or (points[-1][0] == end and points[-2][0] == end)
            ):
                points[-1] = (
                    end,
                    now,
                )  # two moments so close, or three with the same end, say no more than this
            else:
                points.append((end, now))
            del points[:-POINTS]

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the others."""
        self._points = {key: points for key, points in self._points.items() if key in partitions}

    def seconds(self, key: TopicPartition, position: int, now: float) -> float | None:
        """For how long the record at `position` has been there, 0 if there is none yet; None if that is not known."""
        points = self._points.get(key, [])
        if not points:
            return None
        if position >= points[-1][0]:
            return 0.0
        after = bisect_right(points, position, key=itemgetter(0))
        left, right = (points[after - 1], points[after]) if after else (points[0], points[-1])
        if left[0] == right[0]:
            return None
        arrived = left[1] + (position - left[0]) * (right[1] - left[1]) / (right[0] - left[0])
        return max(0.0, now - arrived)
