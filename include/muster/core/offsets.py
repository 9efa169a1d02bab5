"""Offsets of partitions in Kafka, and the lag that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.model import TopicPartition


@dataclass(frozen=True)
class TopicOffsets:
    """What Kafka says of the cluster's topics; what it could not say is absent, and `errors` says why.

    `ends` are the offsets after the last record, `beginnings` the first ones that the partitions still hold.
    `committed` is None where the topic's group has committed nothing. `groups` are the groups of topics whose
    assignment names another one than the settings. `arriving` (records a second in each partition) and `consumed`
    (records a second that are committed, over all partitions) compare this reading with an earlier one.
    """

    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    beginnings: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    arriving: Mapping[TopicPartition, float] = field(default_factory=dict)
    consumed: float | None = None

    def lag(self, tp: TopicPartition) -> int | None:
        """Count the records that the group has not committed, as `kafka-consumer-groups` shows them; None if unknown.

        What the group has never committed, or what Kafka has deleted since, it reads from the partition's beginning.
        """
        if tp not in self.ends or tp not in self.committed:
            return None
        committed = self.committed[tp]
        if committed is None and tp not in self.beginnings:
            return None if self.ends[tp] else 0
        return max(0, self.ends[tp] - max(committed or 0, self.beginnings.get(tp, 0)))
