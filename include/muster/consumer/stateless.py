"""What an agent asks about the state by key of its partitions; here, where no topic has any."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.copies import ShardCopy
from muster.core.model import ShardState, TopicPartition
from muster.core.state_topics import NO_STATE, StateTopics


class Stateless:
    """No topic has state; `muster.consumer.state.shards.States` answers for those that have. Thread-safe."""

    topics: StateTopics = NO_STATE

    def due(self) -> frozenset[TopicPartition]:
        """Return the partitions of which something of their state is due."""
        return frozenset()

    def most(self, _tp: TopicPartition) -> int | None:
        """Return the most records of a partition whose changes of state fit into a batch; None for any number."""
        return None

    def drop_timer(self, tp: TopicPartition) -> None:
        """Leave out the timer of a partition that failed last."""

    def for_tasks(self) -> str:
        """Return what tasks on other hosts read changelogs with, as JSON that holds secrets; '' without state."""
        return ""

    def status(self) -> Mapping[TopicPartition, ShardState]:
        """Return how the state of partitions stands."""
        return {}

    def copies(self) -> Mapping[TopicPartition, ShardCopy] | None:
        """Return the local stores that are on the disk; None where no topic has state."""
        return None
