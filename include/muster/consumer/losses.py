"""What partitions have lost, since this process started: counted by reason, and logged with what to do about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.ownership import TopicPartition
from muster.core.positions import Jump, Why

log = logging.getLogger(__name__)


@dataclass
class Losses:
    """`offsets` are those that Kafka had no more, by partition and reason; `recreated` counts partitions that began
    at the first record of a topic that was created again."""

    offsets: dict[TopicPartition, dict[Why, int]] = field(default_factory=dict)
    recreated: int = 0

    def note(self, jumps: Mapping[TopicPartition, Jump]) -> None:
        """These partitions go on at another offset than the one they were read up to."""
        for key, jump in sorted(jumps.items()):
            if jump.why is Why.RECREATED:
                self.recreated += 1
            else:
                of_partition = self.offsets.setdefault(key, {})
                of_partition[jump.why] = of_partition.get(jump.why, 0) + jump.lost
            log.warning("topic %r, partition %d: %s", *key, _words(jump))


def _words(jump: Jump) -> str:
    match jump.why:
        case Why.RECREATED:
            return (
                f"offset {jump.before} is of a topic that was deleted, or is past the end; it begins at offset "
                f"{jump.after}, the first record of the topic that has the name now"
            )
        case Why.RETENTION:
            return (
                f"{jump.lost} records from offset {jump.before} on were deleted by retention before they were read; "
                "lengthen the topic's retention, or add consumers"
            )
        case Why.TRUNCATION:
            return (
                f"{jump.lost} records from offset {jump.after} on are gone from Kafka, as after the election of a "
                "leader that did not have them; it goes on there. Check min.insync.replicas and "
                "unclean.leader.election.enable"
            )
