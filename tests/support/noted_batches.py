"""What the consumers' handlers noted, and what follows from it: what was lost, read twice, or read by two owners."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

GRACE = 15.0
"""Seconds from the moment at which a process can be reached again to that at which it counts as reachable: it has to
hear that its partitions were given away. What its Kafka commits are worth meanwhile, fencing decides."""

Key = tuple[str, str, int, int]
"""Cluster, topic, generation (which of the topics of that name), partition."""


@dataclass(frozen=True)
class Batch:
    """One batch as a handler got it. Times are in seconds since the epoch; `ended` is None if it never was.

    `ranges` are the offsets of the records that were in it, end exclusive.
    """

    incarnation: str
    cluster: str
    consumer: str
    host: int
    began: float
    ended: float | None
    ranges: dict[Key, list[tuple[int, int]]]


@dataclass(frozen=True)
class Away:
    """`incarnation`, or all on `host`, was frozen, hung, dead or out of reach from `since` on, until `until`."""

    since: float
    until: float = float("inf")
    incarnation: str | None = None
    host: int | None = None

    def covers(self, batch: Batch, at: float) -> bool:
        """Whether the process of `batch` was away at `at`, or has not been back for `GRACE` seconds."""
        return (
            self.incarnation == batch.incarnation or self.host == batch.host
        ) and self.since <= at < self.until + GRACE


@dataclass
class Batches:
    """The notes below `folder`."""

    folder: Path
    away: list[Away] = field(default_factory=list)

    def all(self) -> list[Batch]:
        """All batches in the order of their begin. A line that is being written is left out."""
        return sorted(self._read(), key=lambda batch: batch.began)

    def delivered(self) -> dict[Key, set[int]]:
        """The offsets whose handler came to its end."""
        found: dict[Key, set[int]] = defaultdict(set)
        for batch in self.all():
            if batch.ended is not None:
                for key, ranges in batch.ranges.items():
                    for first, end in ranges:
                        found[key].update(range(first, end))
        return found

    def doubled(self, since: float, until: float) -> int:
        """How many records were given to a handler within these times that one of their cluster had got before."""
        seen: dict[Key, set[int]] = defaultdict(set)
        again = 0
        for batch in self.all():
            for key, ranges in batch.ranges.items():
                for first, end in ranges:
                    offsets = set(range(first, end))
                    if since <= batch.began < until:
                        again += len(offsets & seen[key])
                    seen[key] |= offsets
        return again

    def double_owners(self) -> list[tuple[Batch, Batch, Key]]:
        """Every batch of a partition with which two live and reachable processes of a cluster held that partition.

        All processes run on one machine, so their clocks agree. Let `b` be a batch of process P with partition p. It
        counts, once, if there is a batch `c` of another process Q with p for which one of these is so:

        - *at the same time*: the intervals from begin to end of their handlers overlap;
        - *went on*: P had p before Q, Q began `c`, and then P began `b` where P's own last batch had ended, although
          Q had been given records from there on. Who is given a partition again begins where the one before it has
          committed, so P has not been given it again; it never let go.

        And both P and Q were live and reachable when the later one of the two batches began: neither dead, frozen,
        hung on purpose nor on a host that was cut off, nor within `GRACE` seconds of the end of that (`away`). A
        batch without an end is over at once: its process died in it, or hangs on purpose.
        """
        found = []
        by_key: dict[Key, list[Batch]] = defaultdict(list)
        for batch in self.all():
            for key in batch.ranges:
                by_key[key].append(batch)
        for key, batches in by_key.items():
            for number, late in enumerate(batches):
                other = self._same_time(batches[:number], late) or self._went_on(batches[:number], late, key)
                if other is not None:
                    found.append((other, late, key))
        return found

    def _same_time(self, before: Sequence[Batch], late: Batch) -> Batch | None:
        for early in reversed(before):
            end = early.ended if early.ended is not None else early.began
            if early.incarnation != late.incarnation and end > late.began and self._both_there(early, late):
                return early
        return None

    def _went_on(self, before: Sequence[Batch], late: Batch, key: Key) -> Batch | None:
        own = next(
            (n for n in range(len(before) - 1, -1, -1) if before[n].incarnation == late.incarnation), None
        )
        if own is None:
            return None
        begin = late.ranges[key][0][0]
        if before[own].ranges[key][-1][1] != begin:
            return None
        for other in before[own + 1 :]:
            if other.ranges[key][-1][1] > begin and self._both_there(other, late):
                return other
        return None

    def _both_there(self, early: Batch, late: Batch) -> bool:
        return not any(away.covers(early, late.began) or away.covers(late, late.began) for away in self.away)

    def _read(self) -> Iterator[Batch]:
        for file in self.folder.glob("*.jsonl"):
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            notes = [json.loads(line) for line in lines if line.endswith("\n")]
            ended = {note["batch"]: note["ended"] for note in notes if "ended" in note}
            for note in notes:
                if "began" in note:
                    yield _batch(note, ended.get(note["batch"]))


def _batch(note: dict[str, object], ended: float | None) -> Batch:
    consumer = str(note["consumer"])
    cluster = consumer.rpartition("-")[0]
    ranges: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    listed = note["ranges"]
    assert isinstance(listed, list)
    for topic, generation, partition, first, end in listed:
        ranges[cluster, topic, generation, partition].append((first, end))
    host, began = note["host"], note["began"]
    assert isinstance(host, int)
    assert isinstance(began, float)
    return Batch(str(note["incarnation"]), cluster, consumer, host, began, ended, dict(ranges))


def gaps(delivered: set[int], produced: int) -> list[tuple[int, int]]:
    """Which of the offsets from 0 to `produced` are missing, as ranges: short, for messages."""
    missing = sorted(set(range(produced)) - delivered)
    starts = [n for before, n in pairwise([-2, *missing]) if n != before + 1]
    ends = [n + 1 for n, after in pairwise([*missing, -2]) if after != n + 1]
    return list(zip(starts, ends, strict=True))
