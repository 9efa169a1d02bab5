"""Which topics have state by key, and which of them share a shard a number. Pure.

An entry of the settings is a regular expression of whole names, whose topics have shards of their own, or a list of
names: topics that are co-partitioned. Partition n of each of these is one shard, which is known by the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from muster.core.model import TopicPartition

Entry = str | tuple[str, ...]


@dataclass(frozen=True)
class StateTopics:
    """The entries of the settings' `state`."""

    entries: Sequence[Entry] = ()

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The topics that share their state, by group."""
        return tuple(each for each in self.entries if isinstance(each, tuple))

    def has(self, topic: str) -> bool:
        return any(
            re.fullmatch(each, topic) if isinstance(each, str) else topic in each for each in self.entries
        )

    def together(self, topic: str) -> tuple[str, ...]:
        """Return the topics that share their state with `topic`, and that itself, in the order of the settings."""
        return next((group for group in self.groups if topic in group), (topic,))

    def shard(self, tp: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return the partitions of the shard of a partition, the one that it is known by first."""
        return tuple((topic, tp[1]) for topic in self.together(tp[0]))

    def lead(self, tp: TopicPartition) -> TopicPartition:
        """Return the partition that the shard of a partition is known by."""
        return self.together(tp[0])[0], tp[1]


NO_STATE = StateTopics()


def not_co_partitioned(counts: Mapping[str, int]) -> str:
    """Say of topics, given with how many partitions they have, that they cannot share their state."""
    has = ", ".join(f"{topic!r} has {count}" for topic, count in counts.items())
    return (
        f"its topics share their state and are not co-partitioned: of their partitions {has}. Have the records of "
        "one go to a new topic with as many partitions as the others have, placed by the same partitioner"
    )
