"""A consumer at one moment, for its status page and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.consumer.measures import Counters, PartitionView
from muster.core.model import FailingRecord, Loss, ShardState, TopicPartition, TopicStatus
from muster.core.ownership import Source
from muster.core.refusals import Refusal
from muster.core.unread import ReadFailure


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """The agent at one moment; see `muster.consumer.measures` for what is measured."""

    topics: Mapping[str, TopicStatus]
    sources: Mapping[str, Source]
    held: Mapping[TopicPartition, PartitionView]
    problems: Mapping[str, str]
    refusals: Mapping[TopicPartition, Refusal]
    failing: Mapping[TopicPartition, FailingRecord]
    batch_seconds: float
    """For how long the handler has been at work on the batch under way; 0 without one."""
    in_batch: frozenset[TopicPartition]
    """The partitions with records in that batch, if it has taken for longer than `STALLED_AFTER`."""
    unread: Mapping[TopicPartition, ReadFailure]
    """The partitions that cannot be read, with the reasons."""
    losses: Mapping[TopicPartition, tuple[Loss, ...]]
    left_out: Mapping[TopicPartition, tuple[Loss, ...]]
    rebuilds: Mapping[TopicPartition, int]
    """The numbers of the partitions that were rebuilt."""
    shards: Mapping[TopicPartition, ShardState]
    """The state by key of the partitions that are held."""
    blocks: frozenset[str]
    query_running: bool
    counters: Counters
