"""Committing offsets from elsewhere for a group, as the newest owner of each of its partitions.

A consumer that still runs without being registered is fenced off: what it commits later is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from muster.core.model import TopicPartition
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_admin import KafkaError
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings

AT_ONCE = 64
"""Partitions whose producers are open at the same time."""
PATIENCE = 60.0
"""Seconds within which Kafka has to take the commits of `AT_ONCE` partitions."""


def commit_as_newest_owner(
    settings: KafkaSettings,
    cluster: str,
    group: GroupOffsets,
    offsets: Mapping[TopicPartition, int],
    stamps: Mapping[TopicPartition, str],
) -> None:
    """Claim each partition as the consumers of `cluster` do, and commit its next offset to read.

    Raises `KafkaError`; then some may be committed, and committing again does no harm.
    """
    with closing(FencedCommits(settings, cluster, group)) as fences:
        partitions = list(offsets)
        for begin in range(0, len(partitions), AT_ONCE):
            part = partitions[begin : begin + AT_ONCE]
            _until_done(part, lambda left: fences.claim(left).failed)

            def commit(left: list[TopicPartition]) -> Mapping[TopicPartition, str]:
                outcome = fences.commit({tp: offsets[tp] for tp in left}, stamps)
                for (topic, partition), why in outcome.refused.items():
                    raise KafkaError(f"topic {topic!r}, partition {partition}: refused: {why}; import again")
                return outcome.failed

            _until_done(part, commit)
            fences.release(part)


def _until_done(
    partitions: list[TopicPartition],
    ask: Callable[[list[TopicPartition]], Mapping[TopicPartition, str]],
) -> None:
    end = time.monotonic() + PATIENCE
    left = partitions
    while failed := ask(left):
        left = list(failed)
        if time.monotonic() > end:
            topic, partition = left[0]
            raise KafkaError(
                f"topic {topic!r}, partition {partition}: not committed within {PATIENCE:g} s: {failed[left[0]]}; "
                "check Kafka, and import again"
            )
