"""What stands still: how far Kafka's offsets have come, looked at now and then, and what holds topics up."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from muster.core.diagnosis import Situation, Waiting, held_up
from muster.core.model import TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.core.progress import Look, look
from muster.core.stuck import blind, named, stuck
from muster.core.time_lag import gauges, of_all, time_lag
from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings

log = logging.getLogger(__name__)


class OffsetsSource(Protocol):
    """`muster.edges.kafka_offsets.OffsetReader`."""

    def read(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        """Read the offsets of these partitions. Raises `KafkaError`."""


@dataclass(eq=False)
class Progress:
    """Looks at the offsets of `cluster`, and keeps the looks in `store` for all that coordinate. Without `offsets`
    none are known."""

    cluster: ClusterSettings
    store: TopicStore
    offsets: OffsetsSource | None
    behind: dict[str, float] = field(init=False, default_factory=dict)
    """How far topics are behind, in the seconds or records of the last look, as metrics show it."""

    def look(self, topics: Mapping[str, TopicSnapshot], now: float) -> Look:
        """Return the last look at the offsets of `topics`: a new one, if it is time for one and Kafka answers."""
        before = self.store.look()
        if self.offsets is None or 0 <= now - before.at < before.pause(self.cluster.stuck_after):
            return before
        partitions = {topic: snapshot.partitions for topic, snapshot in topics.items()}
        groups = {t: s.assignment.group_id for t, s in topics.items() if s.assignment is not None}
        began = time.monotonic()
        try:
            found = self.offsets.read(partitions, groups)
        except KafkaError as error:
            log.warning("%s; since when partitions stand still is not known", error)
            if before.at:
                return before
            self.store.note_look(before, Look(now))  # nothing was seen, and `blind` counts from here
            return Look(now)
        for error_ in found.errors:
            log.warning("%s; their lag counts as unknown", error_)
        took = time.monotonic() - began
        after = look(before, [(t, p) for t in partitions for p in partitions[t]], found, now, took)
        self.store.note_look(before, after)
        behind = {t: of_all(time_lag(after, found, (t, p)) for p in partitions[t]) for t in partitions}
        self.behind = gauges(behind, self.cluster.max_lag_of)
        return after


@dataclass(frozen=True)
class Found:
    """What stands still. `topics` are those that a person is asked about, with the message; `stuck` are the messages,
    and that it is unknown what stands still; `named` is what a person has decided."""

    waiting: Mapping[str, list[Waiting]]
    topics: Mapping[str, str]
    stuck: list[str]
    named: list[str]

    @classmethod
    def of(cls, situation: Situation) -> Found:
        waiting = held_up(situation)
        paused = situation.overrides.paused is not None
        topics = {} if paused else stuck(situation, waiting)
        unknown = blind(situation)
        return cls(waiting, topics, [*topics.values(), *([unknown] if unknown else [])], named(waiting))
