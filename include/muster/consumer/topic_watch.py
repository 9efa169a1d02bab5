"""Which topics Kafka has: under which id, and whether one is gone. For one place; the times come in.

A topic that was deleted and created again is known by its id. One that was only deleted is known by its absence, and
absence is believed late: a broker that has just started, or lags behind, may not know a topic yet. It counts as gone
when Kafka has not known it for `GONE_AFTER` seconds, and a list of all topics that succeeds has it neither among the
topics nor among those in error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from muster.edges.kafka import Identities, TopicListing

INTERVAL = 2.0
"""Seconds between two looks. What is read of a topic in between is read again when its new id is known."""
SHARE = 50
"""A look that takes long is followed by a pause of so many times that: many partitions cost Kafka and this process
time, and the looks must take no more than two per cent of it."""
GONE_AFTER = 10.0


class Topics(Protocol):
    """What is asked; `muster.edges.kafka.TopicLister` answers. Calls raise `KafkaError`."""

    def identities(self, topics: Collection[str]) -> Identities:
        """The ids of these topics, and which of them Kafka does not have."""

    def list_topics(self) -> TopicListing:
        """All topics."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The ids that Kafka reported, and the topics that are gone."""

    ids: Mapping[str, str]
    gone: frozenset[str] = frozenset()


@dataclass
class TopicWatch:
    """Remembers since when topics are absent."""

    topics: Topics
    _absent: dict[str, float] = field(default_factory=dict, init=False)
    _due: float = field(default=0.0, init=False)

    def pause(self, now: float) -> float:
        """Seconds until the next look."""
        return max(0.05, self._due - now)

    def look(self, topics: Collection[str], clock: Callable[[], float]) -> Seen:
        """Ask about `topics`. Raises `KafkaError`."""
        began = clock()
        self._due = began + INTERVAL
        if not topics:
            self._absent.clear()
            return Seen({})
        found = self.topics.identities(topics)
        now = clock()
        self._absent = {topic: self._absent.get(topic, now) for topic in found.absent}
        gone = frozenset(topic for topic, since in self._absent.items() if now - since >= GONE_AFTER)
        if gone:
            listing = self.topics.list_topics()
            gone -= listing.partitions.keys() | listing.errors.keys()
        self._due = clock() + max(INTERVAL, SHARE * (now - began))
        return Seen(found.ids, gone)
