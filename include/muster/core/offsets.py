"""Offsets of partitions in Kafka, and the lag that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.model import TopicPartition


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record behind a committed offset: its offset, its timestamp (seconds since the epoch, None without
    one), and how many bytes of a log the records there take at most, each."""

    offset: int
    at: float | None
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Retention:
    """When Kafka deletes records of a topic: older than `seconds`, or when a partition holds more than `bytes_`
    without them; None: not for that reason. A segment, of `segment` bytes at most, goes as a whole."""

    seconds: float | None = None
    bytes_: int | None = None
    segment: int = 1 << 30


@dataclass(frozen=True)
class TopicOffsets:
    """What Kafka says of the cluster's topics; what it could not say is absent, and `errors` says why.

    `ends` are the offsets after the last record, `beginnings` the first ones that the partitions still hold.
    `committed` is None where the topic's group has committed nothing. `groups` are the groups of topics whose
    assignment names another one than the settings. `arriving` (records a second in each partition) and `consumed`
    (records a second that are committed, over all partitions) compare this reading with an earlier one.

    `first` is the first record that the group has not committed, of partitions with lag: None where nothing can be
    read, because only markers of transactions and the like are left; `unread` says why it is unknown of others.
    `retention` is of topics with lag. `at` is when this was read, in seconds since the epoch.
    """

    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    beginnings: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    arriving: Mapping[TopicPartition, float] = field(default_factory=dict)
    consumed: float | None = None
    first: Mapping[TopicPartition, FirstRecord | None] = field(default_factory=dict)
    unread: str = ""
    retention: Mapping[str, Retention] = field(default_factory=dict)
    at: float = 0.0

    def lag(self, tp: TopicPartition) -> int | None:
        """Count the offsets that the group has not committed, as `kafka-consumer-groups` does; 0 where none of them
        is of a record that can be read, None if unknown.

        What the group has never committed, or what Kafka has deleted since, it reads from the partition's beginning.
        """
        if tp not in self.ends or tp not in self.committed:
            return None
        if self.first.get(tp, _ANY) is None:
            return 0
        committed = self.committed[tp]
        if committed is None and tp not in self.beginnings:
            return None if self.ends[tp] else 0
        return max(0, self.ends[tp] - self.position(tp))

    def position(self, tp: TopicPartition) -> int:
        """Return the offset that the group reads next."""
        return max(self.committed.get(tp) or 0, self.beginnings.get(tp, 0))


_ANY = FirstRecord(0, None)
