"""Lag of partitions, and rates from one reading of their offsets to a later one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.core.model import ConsumerStatus, TopicPartition
from muster.core.offsets import TopicOffsets

WINDOW = 60.0
"""Seconds over which rates are measured, as far as readings reach back."""


class Rates:
    """Compares the newest offsets with earlier ones: at most about `WINDOW` seconds earlier, and at least half of
    that once there is enough to choose from."""

    def __init__(self) -> None:
        self._base: tuple[float, TopicOffsets] | None = None
        self._middle: tuple[float, TopicOffsets] | None = None

    def add(self, at: float, offsets: TopicOffsets) -> tuple[dict[TopicPartition, float], float | None]:
        """Take in a reading made at `at` (seconds, by a clock that does not jump).

        Returns `TopicOffsets.arriving` and `TopicOffsets.consumed`; nothing and None from the first reading.
        """
        if self._base is None:
            self._base = (at, offsets)
        elif self._middle is None:
            if at - self._base[0] >= WINDOW / 2:
                self._middle = (at, offsets)
        elif at - self._base[0] > WINDOW:
            self._base, self._middle = self._middle, (at, offsets)
        began, base = self._base
        if at <= began:
            return {}, None
        consumed = _rates(base.committed, offsets.committed, at - began)
        return _rates(base.ends, offsets.ends, at - began), round(
            sum(consumed.values()), 1
        ) if consumed else None


def _rates(
    before: Mapping[TopicPartition, int | None], after: Mapping[TopicPartition, int | None], seconds: float
) -> dict[TopicPartition, float]:
    return {
        tp: round(max(0, offset - earlier) / seconds, 1)
        for tp, offset in after.items()
        if offset is not None and (earlier := before.get(tp)) is not None
    }


@dataclass(frozen=True)
class Measured:
    """What is known of partitions; what is absent is unknown. Lag in records, rates in records a second."""

    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    rate: Mapping[TopicPartition, float] = field(default_factory=dict)

    def total(self, tps: Sequence[TopicPartition]) -> tuple[int | None, float | None]:
        """Return lag and rate over `tps`; None where nothing is known of any."""
        lags = [lag for tp in tps if (lag := self.lag.get(tp)) is not None]
        rates = [rate for tp in tps if (rate := self.rate.get(tp)) is not None]
        return (sum(lags) if lags else None), (round(sum(rates), 1) if rates else None)


def measure(offsets: TopicOffsets, statuses: Iterable[ConsumerStatus], *, current: bool) -> Measured:
    """Put together what Kafka and the consumers say.

    Kafka's lag comes first while its offsets are `current`, that of the consumers (records not yet processed) while
    Kafka is out of reach; a rate that a consumer measured comes before one from Kafka's offsets.
    """
    reported: dict[TopicPartition, int] = {}
    rate: dict[TopicPartition, float] = {}
    for status in statuses:
        for topic, of_topic in status.topics.items():
            for partition, load in of_topic.loads.items():
                if load.lag is not None:
                    reported[topic, partition] = round(load.lag)
                if load.rate is not None:
                    rate[topic, partition] = round(load.rate, 1)
    lag = {tp: found for tp in offsets.ends if (found := offsets.lag(tp)) is not None}
    return Measured(reported | lag if current else lag | reported, {**offsets.arriving, **rate})
