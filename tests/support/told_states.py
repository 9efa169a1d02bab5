"""The state by key of an agent, as a test tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.consumer.stateless import Stateless
from muster.core.copies import ShardCopy
from muster.core.model import ShardState, TopicPartition
from muster.core.state_topics import NO_STATE, StateTopics


@dataclass
class ToldStates(Stateless):
    """`topics` have state; `dropped` are the partitions whose timers were left out."""

    topics: StateTopics = NO_STATE
    shards: Mapping[TopicPartition, ShardState] = field(default_factory=dict)
    told: Mapping[TopicPartition, ShardCopy] = field(default_factory=dict)
    of_due: frozenset[TopicPartition] = frozenset()
    dropped: list[TopicPartition] = field(default_factory=list)

    def due(self) -> frozenset[TopicPartition]:
        return self.of_due

    def drop_timer(self, tp: TopicPartition) -> None:
        self.dropped.append(tp)

    def copies(self) -> Mapping[TopicPartition, ShardCopy]:
        return self.told

    def status(self) -> Mapping[TopicPartition, ShardState]:
        return self.shards
