"""Measures of the partitions that a consumer holds, for its status page and its metrics.

Nothing is decided by it. Not thread-safe; times are seconds of one clock that never goes back, and come in.

- *arrival rate*: records that arrive in a partition a second, over about the last minute, from where it ends. It is
  the partition's own load: it does not depend on how fast this consumer is, as what was processed would, and it is
  the same before and after the partition moves.
- A partition *progresses* when a batch that held records of it was processed, and it is *without lag* when a planning
  found nothing to read beyond the position. It is *stalled* for as long as neither was seen: because its handler
  hangs, its batch fails again and again, its query fails before it plans, or Kafka does not tell where it ends.
- *lost*: offsets that Kafka had no more when they were to be read.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from muster.core.left_out import LeftOutLog
from muster.core.losses import LossLog
from muster.core.model import Loss, OffsetRange, Stored, TopicPartition
from muster.core.ownership import Partition
from muster.core.positions import Jump, Why

log = logging.getLogger(__name__)

RATE_OVER = 60.0
"""Seconds after which what was seen counts for 1/e of what is seen now."""
SHORTEST_WATCH = 10.0
"""Seconds that a partition is watched for before a rate is reported: one burst says little."""
MOST_STORED = 20
"""Ranges of offsets in one sink that are reported of a partition, the newest."""
STALLED_AFTER = 10.0
"""Seconds without progress that are no news: batches take time."""
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of a histogram's buckets in seconds: from a commit with nothing in its way to a batch of a backlog."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition that is held, at one moment; None is what is not known."""

    position: int | None
    """The next offset to process."""
    committed: int | None
    end: int | None
    rate: float | None
    """The arrival rate."""
    stalled: float | None
    """Seconds without progress; None where there is progress, or nothing to read."""
    stored: Mapping[str, Stored] | None = None
    """What sinks have of it, by their names; None before the first batch."""

    @property
    def lag(self) -> int | None:
        """Records that are not processed."""
        return None if self.end is None or self.position is None else max(0, self.end - self.position)


class Measures:
    """Measures of one partition that is held."""

    def __init__(self) -> None:
        self._end: int | None = None
        self._at = 0.0
        self._since = self._records = self._seconds = 0.0
        self.well_at: float | None = None
        """When it last progressed or was without lag; None while it is closing."""
        self.stored: dict[str, Stored] | None = None

    def held(self, closing: bool, now: float) -> None:
        """Take note that it is held. One that was just taken up has had no time to progress yet."""
        if closing:
            self.well_at = None
        elif self.well_at is None:
            self.well_at = now

    def well(self, now: float) -> None:
        """Take note that it has progressed, or is without lag."""
        if self.well_at is not None:
            self.well_at = now

    def reported(self, stored: Mapping[str, Sequence[OffsetRange]], at: float) -> None:
        """Take note of what each sink that a batch was written to has of it, `at` seconds since the epoch."""
        self.stored = {} if self.stored is None else self.stored
        for sink, ranges in stored.items():
            newest = tuple(ranges[-MOST_STORED:])
            self.stored[sink] = Stored(newest, len(ranges) - len(newest), at)

    def seen(self, end: int, now: float) -> None:
        """Take note that it ended at this offset just `now`. One that ends earlier than before was made again."""
        if self._end is None or end < self._end:
            self._since, self._records, self._seconds = now, 0.0, 0.0
        else:
            self._count(end - self._end, now - self._at)
        self._end, self._at = end, now

    def _count(self, records: int, passed: float) -> None:
        """Let records and the time they took to arrive fade with the same factor; the rate is one by the other.

        So it is right from the first seconds on, and looks may come at irregular times.
        """
        if passed > 0:
            fade = math.exp(-passed / RATE_OVER)
            counted = RATE_OVER * (1 - fade)
            self._records = self._records * fade + records * counted / passed
            self._seconds = self._seconds * fade + counted

    def view(self, position: int | None, committed: int | None, now: float) -> PartitionView:
        """Return all that is known of it, with the offsets that it is read and committed up to."""
        return PartitionView(
            position=position,
            committed=committed,
            end=self._end,
            rate=self.rate,
            stalled=self.stalled(now),
            stored=None if self.stored is None else dict(self.stored),
        )

    @property
    def rate(self) -> float | None:
        """Records that arrive a second; None unless it was watched for long enough."""
        watched = 0.0 if self._end is None else self._at - self._since
        return self._records / self._seconds if watched >= SHORTEST_WATCH else None

    def stalled(self, now: float) -> float | None:
        """Return the seconds without progress, None if it is not stalled."""
        stalled = 0.0 if self.well_at is None else now - self.well_at
        return stalled if stalled >= STALLED_AFTER else None


class HeldMeasures:
    """Measures of all partitions that are held."""

    def __init__(self) -> None:
        self.all: dict[TopicPartition, Measures] = {}

    def follow(self, held: Mapping[TopicPartition, Partition], now: float) -> None:
        """Measure what is held, and nothing else."""
        self.all = {tp: self.all.get(tp) or Measures() for tp in held}
        for tp, partition in held.items():
            self.all[tp].held(partition.closing, now)
            if partition.paused_after is not None:
                self.all[tp].well(now)

    def seen(
        self, ends: Mapping[TopicPartition, int], held: Mapping[TopicPartition, Partition], now: float
    ) -> set[TopicPartition]:
        """Take note where partitions end just `now`; returns those that are without lag."""
        caught_up = set()
        for tp in ends.keys() & self.all.keys() & held.keys():
            self.all[tp].seen(ends[tp], now)
            position = held[tp].position
            if position is not None and position >= ends[tp]:
                self.all[tp].well(now)
                caught_up.add(tp)
        return caught_up

    def well(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Take note that partitions have progressed."""
        for tp in self.all.keys() & set(partitions):
            self.all[tp].well(now)

    def reported(
        self,
        partitions: Iterable[TopicPartition],
        stored: Mapping[str, Mapping[TopicPartition, Sequence[OffsetRange]]],
        at: float,
    ) -> None:
        """Take note of what sinks have of the partitions of a batch, `at` seconds since the epoch."""
        for tp in self.all.keys() & set(partitions):
            self.all[tp].reported({name: of[tp] for name, of in stored.items() if tp in of}, at)

    def view(
        self, held: Mapping[TopicPartition, Partition], now: float
    ) -> dict[TopicPartition, PartitionView]:
        """Return all that is known of each."""
        return {tp: self.all[tp].view(p.position, p.committed, now) for tp, p in sorted(held.items())}


@dataclass
class Timings:
    """A histogram of seconds, counted in Prometheus's way."""

    seconds: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def took(self, seconds: float) -> None:
        """Count one more."""
        self.seconds += seconds
        self.counts[bisect_left(BOUNDS, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper bounds, as text, and how many took at most so long; the last one is all of them."""
        bounds = [*map(str, BOUNDS), "+Inf"]
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))


@dataclass(slots=True)
class Counters:
    """Counts since the process started."""

    records: int = 0
    read_failures: int = 0
    read_bytes: int = 0
    """Bytes of keys, values and headers that tasks have read, as the connector has said so far."""
    read_ahead_bytes: int = 0
    """Bytes that the executors held when they last said it."""
    batches: int = 0
    commits: int = 0
    failed_commits: int = 0
    refused_commits: int = 0
    handler_failures: int = 0
    query_failures: int = 0
    failures_in_a_row: int = 0
    """Failures of handler and query since a batch came through, or a planning found all that is held without lag."""
    last_batch_at: float | None = None
    lost: dict[TopicPartition, dict[Why, int]] = field(default_factory=dict)
    """Offsets that Kafka had no more when they were to be read, each counted once."""
    losses: LossLog = field(default_factory=LossLog)
    deleted_to: dict[tuple[TopicPartition, str], int] = field(default_factory=dict)
    """By partition and topic id: before this offset all that retention has taken is counted."""
    foreign_commits: int = 0
    """Times that another program had set the committed offset of a partition that is held."""
    left_out: LeftOutLog = field(default_factory=LeftOutLog)
    seeks: int = 0
    """Seeks carried out."""
    recreated: int = 0
    """Partitions that began at the first record of a topic that was created again."""
    poison: int = 0
    """Records that failed so often alone that they are poison."""
    skipped: dict[str, int] = field(default_factory=dict)
    dead_lettered: dict[str, int] = field(default_factory=dict)
    """Records that were passed over, by topic."""
    batches_took: Timings = field(default_factory=Timings)
    commits_took: Timings = field(default_factory=Timings)

    def jumped(
        self, jumps: Mapping[TopicPartition, Jump], topic_ids: Mapping[str, str], now: float = 0.0
    ) -> int:
        """Take note that partitions go on at another offset than the one they were read up to, or that tasks did not
        find planned records. `topic_ids` are those that are known, `now` is in seconds since the epoch.

        Returns how many offsets are lost that were not counted before. Two tasks may miss the same records, and those
        of a batch that fails are missed again.
        """
        found = 0
        for tp, jump in sorted(jumps.items()):
            if jump.why is Why.RECREATED:
                self.recreated += 1
            elif jump.why is not Why.SEEK:
                new = self._not_counted((tp, topic_ids.get(tp[0], "")), jump)
                if new is None:
                    continue
                lost = self.lost.setdefault(tp, {})
                lost[jump.why] = lost.get(jump.why, 0) + new.lost
                begin, end = sorted((new.before, new.after))
                self.losses.note(tp, Loss(begin, end, new.lost, str(new.why), now))
                found, jump = found + new.lost, new  # noqa: PLW2901
            log.warning("topic %r, partition %d: %s", *tp, words(jump))
        return found

    def _not_counted(self, place: tuple[TopicPartition, str], jump: Jump) -> Jump | None:
        """Return what of a loss was not counted before; None if all of it was."""
        known = self.deleted_to.get(place, 0)
        if jump.why is Why.TRUNCATION:  # what is written there again may be lost again
            self.deleted_to[place] = min(known, jump.after)
            return jump
        self.deleted_to[place] = max(known, jump.after)
        return replace(jump, before=max(jump.before, known)) if jump.after > known else None


def words(jump: Jump) -> str:
    """Say what happened to a partition that goes on elsewhere, for people, with what to do about a loss."""
    match jump.why:
        case Why.RECREATED:
            return (
                f"offset {jump.before} is of a topic that was deleted, or is past the end; it begins at offset "
                f"{jump.after}, the first record of the topic that has the name now"
            )
        case Why.SEEK:
            return f"a person asked for it: it goes on at offset {jump.after} instead of {jump.before}"
        case Why.RETENTION:
            return (
                f"{jump.lost} records from offset {jump.before} on were deleted by retention before they were read; "
                "lengthen the topic's retention, or add consumers"
            )
        case Why.TRUNCATION:
            return (
                f"{jump.lost} records from offset {jump.after} on are gone from Kafka, as after the election of a "
                "leader that did not have them; check min.insync.replicas and "
                "unclean.leader.election.enable"
            )
