"""One parallel reading of a cluster, as complete as its servers allow: each source fails by itself.

What cannot be read now is what was read last, and `SourceReading` says so, since when, and what is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from muster.cluster.lag import Rates
from muster.cluster.latest import Latest
from muster.cluster.reading import (
    InConsul,
    PartialError,
    Reading,
    SourceName,
    SourceReading,
    Statuses,
    Topics,
)
from muster.cluster.sources import Sources
from muster.core.history import Record
from muster.core.model import Consumer, ConsumerStatus, TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.settings.cluster_settings import ClusterSettings

OFFSETS_LAST = 5.0
"""Seconds for which a sparing reader uses Kafka's offsets again, at least; also `OFFSETS_SHARE` times as long as
reading them took."""
OFFSETS_SHARE = 6.0
FIRST_WAIT = 1.0
"""Seconds that the very first reading of Kafka waits for ZooKeeper and Consul to name the topics and groups."""
HISTORY_READ = 100
"""Records of the history that are read."""


_AFTER = {
    SourceName.CONSUMERS: SourceName.CONSUL,
    SourceName.PROGRESS: SourceName.ZOOKEEPER,
    SourceName.HISTORY: SourceName.ZOOKEEPER,
}
"""Sources that are read with what another one has just said."""

Begun = Mapping[SourceName, Future[SourceReading[Any]]]
"""The readings that were begun, or shared because they are under way or fresh."""


class Reader:
    """Reads one cluster in the threads of `pool`. Thread-safe: those that ask together share a reading."""

    def __init__(
        self,
        settings: ClusterSettings,
        sources: Sources,
        pool: Executor,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._monotonic = monotonic
        self._trusted: Mapping[str, Consumer] = {}
        self._seen: frozenset[tuple[str, int]] = frozenset()
        self._rates = Rates()

        def latest(place: SourceName, read: Callable[[], Any]) -> Latest[Any]:
            return Latest(f"cluster {settings.name}: {place}", read, pool, clock, monotonic)

        self._zookeeper: Latest[Topics] = latest(SourceName.ZOOKEEPER, sources.snapshots)
        self._consul: Latest[InConsul] = latest(SourceName.CONSUL, self._read_consul)
        self._history: Latest[tuple[Record, ...]] = latest(SourceName.HISTORY, self._read_history)
        self._latest: dict[SourceName, Latest[Any]] = {
            SourceName.ZOOKEEPER: self._zookeeper,
            SourceName.CONSUL: self._consul,
            SourceName.CONSUMERS: latest(SourceName.CONSUMERS, self._read_consumers),
            SourceName.KAFKA: latest(SourceName.KAFKA, self._read_kafka),
            SourceName.PROGRESS: latest(SourceName.PROGRESS, sources.look),
            SourceName.HISTORY: self._history,
        }

    def begin(self, places: Collection[SourceName], *, sparing: bool = False) -> Begun:
        """Begin to read what of `places` is not fresh; `sparing` reads Kafka, which costs most, less often."""
        begun: dict[SourceName, Future[SourceReading[Any]]] = {}
        for place, latest in self._latest.items():
            if place not in places:
                continue
            if place is SourceName.KAFKA and sparing:
                begun[place] = latest.begin(OFFSETS_LAST, OFFSETS_SHARE)
            else:
                after = begun.get(_AFTER[place]) if place in _AFTER else None
                begun[place] = latest.begin(after=after)
        return begun

    def result(self, begun: Begun) -> Reading:
        """Return what was read; a source whose reading is still under way has a `LateError`."""
        addresses = self._sources.addresses()
        found: dict[str, Any] = {
            place: replace(self._latest[place].result(future), address=addresses.get(place, ""))
            for place, future in begun.items()
        }
        return Reading(**found)

    def read(self, places: Collection[SourceName], *, sparing: bool = False) -> Reading:
        """Read `places`, and wait until all have answered or failed."""
        begun = self.begin(places, sparing=sparing)
        wait(begun.values())
        return self.result(begun)

    def expire(self) -> None:
        """Read everything but Kafka again the next time: something was changed."""
        for place in (SourceName.ZOOKEEPER, SourceName.CONSUL, SourceName.CONSUMERS):
            self._latest[place].expire()

    def wait(self) -> None:
        """Wait for the readings under way."""
        for latest in self._latest.values():
            latest.wait()

    def _read_consul(self) -> InConsul:
        members = self._sources.members()
        registered = members.registered.keys()
        starting = {c: each for c, each in self._sources.starting().items() if c not in registered}
        return InConsul(members, self._sources.overrides(), starting)

    def _read_consumers(self) -> Statuses:
        """Ask the consumers that are live, or were when Consul was last trusted."""
        known = self._consul.newest.value
        if known is not None and known.members.membership is not None:
            self._trusted = known.members.membership.live
        asked = self._trusted
        answers = self._sources.poll([asked[c] for c in sorted(asked)], self._settings.status_timeout)
        statuses = {c: answer for c, answer in answers.items() if isinstance(answer, ConsumerStatus)}
        failures = {c: a.reason for c, a in answers.items() if not isinstance(a, ConsumerStatus)}
        if failures and not statuses:
            first = min(failures)
            # No status at all, so that an older one is not taken for the present one.
            raise PartialError(
                f"none of {len(failures)} consumer(s) answers; {first}: {failures[first]}",
                Statuses({}, failures),
            )
        return Statuses(statuses, failures)

    def _read_kafka(self) -> TopicOffsets:
        """Read the topics that are subscribed or have an assignment, by what is known of both without asking."""
        for other in (self._zookeeper, self._consul):
            if other.newest.value is None:
                other.wait(FIRST_WAIT)
        topics, consul = self._zookeeper.newest.value or {}, self._consul.newest.value
        decided = consul.overrides.subscriptions if consul is not None else ()
        subscription = self._settings.topics.read_with(decided)
        groups = {
            topic: found.assignment.group_id
            for topic, found in topics.items()
            if isinstance(found, TopicSnapshot) and found.assignment is not None
        }
        began = self._monotonic()
        offsets = self._sources.offsets(lambda topic: topic in topics or subscription.includes(topic), groups)
        arriving, consumed = self._rates.add(began, offsets)
        return replace(offsets, arriving=arriving, consumed=consumed)

    def _read_history(self) -> tuple[Record, ...]:
        """Read the newest records, if some topic has gone on since they were read."""
        topics, before = self._zookeeper.newest, self._history.newest.value
        found = (topics.value or {}).values()
        seen = frozenset((s.topic, s.state_version) for s in found if isinstance(s, TopicSnapshot))
        if topics.error is not None or seen == self._seen:
            return before or ()
        records = tuple(self._sources.history(limit=HISTORY_READ).records)
        self._seen = seen
        return records


def read_once(settings: ClusterSettings, sources: Sources, places: Collection[SourceName]) -> Reading:
    """Read `places` once, all at the same time, and wait for all of them."""
    with ThreadPoolExecutor(len(places), thread_name_prefix="muster-read") as pool:
        return Reader(settings, sources, pool).read(places)
