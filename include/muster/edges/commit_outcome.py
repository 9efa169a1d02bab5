"""What claims and commits are asked for, and what becomes of them: fenced or guarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from muster.core.model import TopicPartition
from muster.edges.dead_letters import ToWrite
from muster.edges.state_changelog import Carried, Landed

Letters = Mapping[int, ToWrite]
"""The dead letters of records of a partition, by their offsets."""
NO_LETTERS: Mapping[TopicPartition, Letters] = MappingProxyType({})
NOTHING_CARRIED: Mapping[TopicPartition, Carried] = MappingProxyType({})

Owned = Callable[[TopicPartition, float], bool | None]
"""Asked before a producer that is stuck is replaced, and before its replacement commits: whether this consumer still
owns the partition, by what became known after that moment (`time.monotonic`); None while that is not known."""

Begin = Callable[[TopicPartition], bool]
"""Asked right before a partition's claim is made, noting that it is; False if it is not wanted any more."""

Claimed = Callable[[TopicPartition], None]
"""Called when a replacement that had begun has claimed its partition, and cannot do so later any more."""


@dataclass(frozen=True)
class Claims:
    """What became of claims: made, or failed for now and why. One in neither was not begun, because not wanted."""

    done: frozenset[TopicPartition] = frozenset()
    failed: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CommitOutcome:
    """What became of a commit, by partition: acknowledged (the offset), refused for good, to be tried again, or held
    up by a letter too large for its topic (the offset of its record, and why)."""

    done: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    too_large: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    landed: dict[TopicPartition, Landed] = field(default_factory=dict)
    """What was written of shards, by the partitions that they are known by, for those that are `done`."""
