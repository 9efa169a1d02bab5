"""Lag and rates of partitions, from readings of Kafka's offsets and from what consumers report. Pure.

Lag is what `kafka-consumer-groups` shows: the end of the partition less the group's committed offset. Without
a committed offset the partition is read from its beginning, so its lag is all that it holds. What Kafka does not tell
is taken from the consumer that holds the partition, which reports records not yet processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.model import ConsumerStatus
from muster.dashboard.sources import Offsets
from muster.edges.kafka import TopicPartition

WINDOW = 60.0
"""Seconds over which rates are measured, as far as readings reach back."""


@dataclass(frozen=True)
class Measured:
    """What is known of partitions; what is absent is not known. Lag in records, rates in records a second."""

    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    rate: Mapping[TopicPartition, float] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    consumed_rate: float | None = None


class Readings:
    """The newest reading of offsets, and an older one that rates are measured against: at most about `WINDOW` seconds
    older, and at least half of that once there is enough to choose from."""

    def __init__(self) -> None:
        self._base: tuple[float, Offsets] | None = None
        self._middle: tuple[float, Offsets] | None = None
        self._newest: tuple[float, Offsets] | None = None

    def add(self, at: float, offsets: Offsets) -> None:
        """Take in a reading made at `at` (seconds, by a clock that does not jump)."""
        self._newest = (at, offsets)
        if self._base is None:
            self._base = self._newest
        elif self._middle is None:
            if at - self._base[0] >= WINDOW / 2:
                self._middle = self._newest
        elif at - self._base[0] > WINDOW:
            self._base, self._middle = self._middle, self._newest

    def arriving(self) -> dict[TopicPartition, float]:
        """Records a second that arrived in each partition; nothing from fewer than two readings."""
        return self._rates(_ends)

    def consumed(self) -> float | None:
        """Records a second that the group committed, over all partitions; None from fewer than two readings."""
        rates = self._rates(_committed)
        return round(sum(rates.values()), 1) if rates else None

    def _rates(self, of: Callable[[Offsets], Mapping[TopicPartition, int]]) -> dict[TopicPartition, float]:
        if self._base is None or self._newest is None or self._newest[0] <= self._base[0]:
            return {}
        seconds = self._newest[0] - self._base[0]
        before, after = of(self._base[1]), of(self._newest[1])
        return {
            key: round(max(0, offset - before[key]) / seconds, 1)
            for key, offset in after.items()
            if key in before
        }


def _ends(offsets: Offsets) -> Mapping[TopicPartition, int]:
    return offsets.ends


def _committed(offsets: Offsets) -> Mapping[TopicPartition, int]:
    return offsets.committed


def measure(
    offsets: Offsets,
    readings: Readings,
    statuses: Iterable[ConsumerStatus],
    *,
    current: bool,
) -> Measured:
    """Put together what Kafka and the consumers say. While Kafka is out of reach (`current` is False) the consumers'
    word comes first."""
    lag: dict[TopicPartition, int] = {}
    told: dict[TopicPartition, int] = {}
    rate: dict[TopicPartition, float] = {}
    for status in statuses:
        for topic, of_topic in status.topics.items():
            for partition, load in of_topic.loads.items():
                if load.lag is not None:
                    told[topic, partition] = round(load.lag)
                if load.rate is not None:
                    rate[topic, partition] = round(load.rate, 1)
    for key, end in offsets.ends.items():
        begin = offsets.committed.get(key, offsets.begins.get(key))
        if begin is not None:
            lag[key] = max(0, end - begin)
    return Measured(
        lag=told | lag if current else lag | told,
        rate=readings.arriving() | rate,
        committed=offsets.committed,
        ends=offsets.ends,
        consumed_rate=readings.consumed() if current else None,
    )
