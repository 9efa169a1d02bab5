"""What became of claims and of commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.model import TopicPartition
from muster.edges.state_changelog import Landed


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
