"""Kafka: which partitions there are, and the group's committed offsets. Records never run out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.core.wire_racks import Racks
from muster.edges.kafka import KafkaError

TopicPartition = tuple[str, int]


@dataclass
class Brokers:
    topics: dict[str, frozenset[int]] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    """By transactional id: the epoch of the producer that initialised it last."""
    vanished: set[TopicPartition] = field(default_factory=set)
    """Partitions that were gone at some time."""
    away: bool = False


@dataclass
class Lister:
    """`muster.coordinator.ports.Lister`."""

    brokers: Brokers
    at: Callable[[str], None]

    def list_partitions(self) -> Mapping[str, frozenset[int]]:
        self.at("read Kafka")
        if self.brokers.away:
            raise KafkaError("Kafka does not answer")
        return dict(self.brokers.topics)

    def leader_racks(self) -> Mapping[str, Racks]:
        return {}
