"""What a consumer measures of the partitions that it holds, for its status page and its metrics.

Nothing is decided by it. Not thread-safe; times are seconds of one clock that never goes back, and come in.

- *arrival rate*: records that arrive in a partition a second, over about the last minute, from where it ends. It is
  the partition's own load: it does not depend on how fast this consumer is, as what was processed would, and it is
  the same before and after the partition moves.
- *lag in time*: for how long the next record to process has been waiting. Estimated from where the partition ended at
  which moment, as kafka-lag-exporter does it: the record arrived when the end passed its offset. For a record that
  arrived before the partition was watched, the pace since then is taken to have been the pace before. No record is
  read for it.
- A partition *progresses* when a batch that held records of it was processed, and it is *without lag* when a planning
  found nothing to read beyond the position. It is *stalled* for as long as neither was seen: because its handler
  hangs, its batch fails again and again, its query fails before it plans, or Kafka does not tell where it ends.
- *lost*: offsets that Kafka had no more when they were to be read.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter

from muster.core.model import TopicPartition
from muster.core.positions import Jump, Why

log = logging.getLogger(__name__)

RATE_OVER = 60.0
"""Seconds after which what was seen counts for 1/e of what is seen now."""
SHORTEST_WATCH = 10.0
"""Seconds that a partition is watched for before a rate is reported: one burst says little."""
POINT_EVERY = 5.0
"""Seconds between two moments that are remembered of where a partition ended."""
POINTS = 60
"""Moments of a partition that are remembered: at most five minutes back, what is before that is extrapolated."""
STALLED_AFTER = 10.0
"""Seconds without progress that are no news: batches take time."""
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of a histogram's buckets in seconds: from a commit with nothing in its way to a batch of a backlog."""


_Point = tuple[int, float]
"""Where the partition ended, and when."""


@dataclass(slots=True)
class _Watched:
    end: int
    at: float
    since: float
    records: float = 0.0
    seconds: float = 0.0


class ArrivalRates:
    """The arrival rates of the partitions whose ends are `seen`.

    Records and the time they took to arrive fade with the same factor, and the rate is one divided by the other. So
    it is right from the first seconds on, and looks may come at irregular times.
    """

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    def seen(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Partitions ended at these offsets just `now`. One that ends earlier than before was made again."""
        for key, end in ends.items():
            known = self._watched.get(key)
            if known is None or end < known.end:
                self._watched[key] = _Watched(end, now, now)
                continue
            passed = now - known.at
            if passed <= 0:
                continue
            fade = math.exp(-passed / RATE_OVER)
            counted = RATE_OVER * (1 - fade)
            known.records = known.records * fade + (end - known.end) * counted / passed
            known.seconds = known.seconds * fade + counted
            known.end, known.at = end, now

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the others."""
        self._watched = {key: known for key, known in self._watched.items() if key in partitions}

    def rates(self) -> dict[TopicPartition, float]:
        """Records a second of each partition that was watched for long enough."""
        return {
            key: known.records / known.seconds
            for key, known in self._watched.items()
            if known.at - known.since >= SHORTEST_WATCH
        }


class TimeLags:
    """The lag in time of the partitions whose ends are `seen`."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, list[_Point]] = {}

    def seen(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Partitions ended at these offsets just `now`. One that ends earlier than before was made again."""
        for key, end in ends.items():
            points = self._points.setdefault(key, [])
            if points and end < points[-1][0]:
                points.clear()
            if len(points) > 1 and (
                now - points[-2][1] < POINT_EVERY or (points[-1][0] == end and points[-2][0] == end)
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


@dataclass
class Progress:
    """When each partition last progressed or was without lag (is *well*)."""

    _well: dict[TopicPartition, float] = field(default_factory=dict)

    def held(self, keys: Collection[TopicPartition], now: float) -> None:
        """These partitions are held and not closing, and no others. One that was just taken up has had no time
        yet."""
        self._well = {key: self._well.get(key, now) for key in keys}

    def well(self, keys: Iterable[TopicPartition], now: float) -> None:
        """These have progressed, or are without lag."""
        self._well.update({key: now for key in keys if key in self._well})

    def stalled(self, now: float) -> dict[TopicPartition, float]:
        """The seconds without progress of those that are stalled."""
        return {key: now - at for key, at in self._well.items() if now - at >= STALLED_AFTER}


@dataclass
class Losses:
    """`offsets` are those that Kafka had no more, by partition and reason; `recreated` counts partitions that began
    at the first record of a topic that was created again."""

    offsets: dict[TopicPartition, dict[Why, int]] = field(default_factory=dict)
    recreated: int = 0

    def note(self, jumps: Mapping[TopicPartition, Jump]) -> None:
        """These partitions go on at another offset than the one they were read up to."""
        for key, jump in sorted(jumps.items()):
            if jump.why is Why.RECREATED:
                self.recreated += 1
            else:
                of_partition = self.offsets.setdefault(key, {})
                of_partition[jump.why] = of_partition.get(jump.why, 0) + jump.lost
            log.warning("topic %r, partition %d: %s", *key, _words(jump))


@dataclass
class Timings:
    """A histogram of seconds, counted in Prometheus's way."""

    seconds: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def took(self, seconds: float) -> None:
        """Count one more."""
        self.seconds += seconds
        self.counts[bisect_left(BOUNDS, seconds)] += 1

    def copy(self) -> Timings:
        """As it is at this moment."""
        return Timings(self.seconds, list(self.counts))

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound, as text, and how many took at most so long; the last one is all of them."""
        bounds = [*map(str, BOUNDS), "+Inf"]
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))


def _words(jump: Jump) -> str:
    match jump.why:
        case Why.RECREATED:
            return (
                f"offset {jump.before} is of a topic that was deleted, or is past the end; it begins at offset "
                f"{jump.after}, the first record of the topic that has the name now"
            )
        case Why.RETENTION:
            return (
                f"{jump.lost} records from offset {jump.before} on were deleted by retention before they were read; "
                "lengthen the topic's retention, or add consumers"
            )
        case Why.TRUNCATION:
            return (
                f"{jump.lost} records from offset {jump.after} on are gone from Kafka, as after the election of a "
                "leader that did not have them; it goes on there. Check min.insync.replicas and "
                "unclean.leader.election.enable"
            )
