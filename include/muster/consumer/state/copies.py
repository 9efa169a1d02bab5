"""The local stores of shards that are on this consumer's disk, for those who plan and for people. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from muster.core.copies import ShardCopy
from muster.core.model import TopicPartition

LEAST_READ = 1_000
"""Offsets from which on their number a second is a measure of anything."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """When a copy began to be read on, on the monotonic clock, and from where; `arrived` once it was at the end."""

    began: float
    first: int
    arrived: bool = False


@dataclass
class CopyNotes:
    """What each of them has of its changelog, by what `clock` (monotonic) says."""

    clock: Callable[[], float]
    _copies: dict[TopicPartition, ShardCopy] = field(default_factory=dict, init=False)
    _followed: dict[TopicPartition, _Reading] = field(default_factory=dict, init=False)
    _moved: dict[TopicPartition, float] = field(default_factory=dict, init=False)
    """When those that are to be brought to the end came further, or had to be brought there first."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def to_follow(self, wanted: Collection[TopicPartition]) -> None:
        """Take note of which copies are to be brought to the end and kept there, whether or not that works."""
        with self._lock:
            self._moved = {tp: self._moved.get(tp, self.clock()) for tp in wanted}

    def begin(self, tp: TopicPartition, position: int, end: int | None) -> None:
        """Take note that a copy is read on from `position`."""
        with self._lock:
            size = self._copies[tp].bytes if tp in self._copies else 0
            self._copies[tp] = ShardCopy(position, end, size, followed=True)
            self._followed[tp] = _Reading(self.clock(), position)

    def came(self, tp: TopicPartition, position: int, end: int | None, size: int | None = None) -> None:
        """Take note of how far a copy has come. Its rate is that of the first way to the end."""
        with self._lock:
            before, since = self._copies.get(tp), self._followed.get(tp)
            if before is None or since is None:
                return
            rate = before.rate
            if position != before.position and tp in self._moved:
                self._moved[tp] = self.clock()
            if not since.arrived and position - since.first >= LEAST_READ:
                rate = (position - since.first) / max(1e-3, self.clock() - since.began)
            self._copies[tp] = replace(
                before, position=position, end=end, rate=rate, bytes=before.bytes if size is None else size
            )
            if end is not None and position >= end:
                self._followed[tp] = replace(since, arrived=True)

    def rest(self, tp: TopicPartition) -> None:
        """Take note that a copy stays as it is."""
        with self._lock:
            if self._followed.pop(tp, None) is not None:
                self._copies[tp] = replace(self._copies[tp], followed=False)

    def found(self, tp: TopicPartition, position: int, end: int | None, size: int) -> None:
        """Take note of what is on the disk of a shard that is not followed."""
        with self._lock:
            if tp not in self._followed:
                rate = self._copies[tp].rate if tp in self._copies else 0.0
                self._copies[tp] = ShardCopy(position, end, size, rate=rate)

    def gone(self, tp: TopicPartition) -> None:
        """Take note that there is no copy of a shard any more, unless it is followed."""
        with self._lock:
            if tp not in self._followed:
                self._copies.pop(tp, None)

    def view(self) -> dict[TopicPartition, ShardCopy]:
        """Return all of them, and those that are to be followed and are not there yet."""
        with self._lock:
            found = {**dict.fromkeys(self._moved, ShardCopy(0)), **self._copies}
            for tp, moved in self._moved.items():
                if found[tp].lag != 0:
                    found[tp] = replace(found[tp], still=self.clock() - moved)
            return found
