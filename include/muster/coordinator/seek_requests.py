"""The seeks that people have asked for, in a run: carried out where no consumer can, and ended when they were."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from muster.coordinator.seeker import Seeker
from muster.coordinator.view import CoordinatorView
from muster.core.model import TopicAssignment, TopicPartition, TopicSnapshot
from muster.core.overrides import Overrides
from muster.edges.consul import OverrideStore
from muster.edges.kafka import KafkaError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SeekRequests:
    """The seeks in `overrides`, as `seeker` sees them in Kafka; without it none is carried out here."""

    seeker: Seeker | None
    overrides: OverrideStore

    def sought(
        self, decided: Overrides, snapshots: Mapping[str, TopicSnapshot]
    ) -> tuple[frozenset[TopicPartition], tuple[str, ...]]:
        """Find the partitions whose seek was carried out, and why that is unknown."""
        if not decided.seeks or self.seeker is None:
            return frozenset(), ()
        seeks = {tp: each.seek for tp, each in decided.seeks.items()}
        try:
            return self.seeker.carried_out(seeks, _assignments(snapshots)), ()
        except KafkaError as error:
            return frozenset(), (f"{error}; whether seeks were carried out is unknown",)

    def carry_out(self, view: CoordinatorView) -> bool:
        """Carry out the seeks that no consumer can, and end the requests of those that were carried out, or are for a
        topic that was deleted; return whether any was."""
        if view.overrides.paused is not None:
            return False
        for request, why in view.seeks_ended:
            log.log(
                logging.INFO if (request.topic, request.partition) in view.sought else logging.WARNING, why
            )
            self.overrides.end_seek(request)
        ended = bool(view.seeks_ended)
        seeks = view.seeks_without_owner
        if self.seeker is None or not seeks:
            return ended
        try:
            failures = self.seeker.carry_out(seeks, _assignments(view.snapshots))
        except KafkaError as error:
            log.warning("%s; the seeks of partitions without an owner are tried again", error)
            return ended
        for (topic, partition), why in failures.items():
            log.warning("topic %s, partition %d: seek: %s; it is tried again", topic, partition, why)
        return ended or failures.keys() < seeks.keys()


def _assignments(snapshots: Mapping[str, TopicSnapshot]) -> dict[str, TopicAssignment]:
    return {topic: s.assignment for topic, s in snapshots.items() if s.assignment is not None}
