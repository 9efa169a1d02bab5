"""One reading of a cluster after another, each as complete as its servers allow.

ZooKeeper, Consul, the consumers and Kafka are read beside each other, and each fails by itself: what could not be
read is what was read last, and `SourceHealth` says so, since when, and what is wrong. Reading never raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from muster.core.decisions import NOTHING_DECIDED, Decisions
from muster.core.model import Consumer, ConsumerStatus, TopicSnapshot
from muster.core.wire import WireError
from muster.dashboard.lag import Measured, Readings, measure
from muster.dashboard.last_rebalance import last_rebalance
from muster.dashboard.models import LastRebalance, SourceHealth
from muster.dashboard.sources import Offsets, Sources
from muster.edges.consul import ConsulError, IsolationEntry, Members
from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_parsing import ConnectionSettingsError

T = TypeVar("T")
Name = Literal["zookeeper", "consul", "kafka", "consumers", "history"]

OFFSETS_LAST = 5.0
"""Seconds for which Kafka's offsets are used again, at least; also five times as long as reading them took."""
HISTORY_READ = 100
"""Records of the history in which the last rebalance is looked for."""


@dataclass(frozen=True)
class InConsul:
    """What Consul holds on a cluster."""

    members: Members
    isolated: Mapping[str, IsolationEntry] = field(default_factory=dict)
    decisions: Decisions = NOTHING_DECIDED


@dataclass(frozen=True)
class Collected:
    """What is known of a cluster at `at` (seconds since the epoch).

    `topics` and `consul` are None if they could never be read yet. `failures` says why a status could not be had.
    """

    settings: ClusterSettings
    at: float
    topics: Mapping[str, TopicSnapshot | WireError] | None
    consul: InConsul | None
    statuses: Mapping[str, ConsumerStatus]
    failures: Mapping[str, str]
    measured: Measured
    health: tuple[SourceHealth, ...]
    offset_errors: tuple[str, ...] = ()
    last_rebalance: LastRebalance | None = None

    @property
    def live(self) -> Mapping[str, Consumer]:
        """The live consumers; none if Consul cannot be trusted."""
        if self.consul is None or self.consul.members.membership is None:
            return {}
        return self.consul.members.membership.live


@dataclass
class _Kept(Generic[T]):
    """What one source said last, and how it is doing."""

    value: T | None = None
    at: float | None = None
    error: str = ""
    failing_since: float | None = None

    def succeed(self, value: T, at: float) -> None:
        self.value, self.at, self.error, self.failing_since = value, at, "", None

    def fail(self, error: str, at: float) -> None:
        self.error = error
        if self.failing_since is None:
            self.failing_since = at


class Collector:
    """Reads one cluster. Not to be used by two threads at once; see `muster.dashboard.shared`."""

    def __init__(
        self,
        settings: ClusterSettings,
        sources: Sources,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.sources = sources
        self._clock = clock
        self._monotonic = monotonic
        self._topics: _Kept[Mapping[str, TopicSnapshot | WireError]] = _Kept()
        self._consul: _Kept[InConsul] = _Kept()
        self._statuses: _Kept[tuple[Mapping[str, ConsumerStatus], Mapping[str, str]]] = _Kept()
        self._offsets: _Kept[Offsets] = _Kept()
        self._readings = Readings()
        self._trusted: Mapping[str, Consumer] = {}
        self._last: LastRebalance | None = None
        self._history_seen: frozenset[tuple[str, int]] = frozenset()
        self._offsets_due = float("-inf")

    def collect(self) -> Collected:
        """Read everything once."""
        now = self._clock()
        with ThreadPoolExecutor(2, thread_name_prefix="muster-dashboard") as pool:
            list(pool.map(lambda read: read(now), (self._read_topics, self._read_consul)))
            list(pool.map(lambda read: read(now), (self._read_statuses, self._read_offsets)))
        statuses, failures = self._statuses.value or ({}, {})
        offsets = self._offsets.value or Offsets()
        return Collected(
            settings=self.settings,
            at=now,
            topics=self._topics.value,
            consul=self._consul.value,
            statuses=statuses,
            failures=failures,
            measured=measure(offsets, self._readings, statuses.values(), current=not self._offsets.error),
            health=self._health(),
            offset_errors=offsets.errors,
            last_rebalance=self._last_rebalance(now),
        )

    def _read_topics(self, now: float) -> None:
        try:
            self._topics.succeed(self.sources.snapshots(), now)
        except (ZooKeeperError, ConnectionSettingsError) as error:
            self._topics.fail(str(error), now)

    def _read_consul(self, now: float) -> None:
        try:
            found = InConsul(self.sources.members(), self.sources.isolated(), self.sources.decisions())
        except (ConsulError, ConnectionSettingsError) as error:
            self._consul.fail(str(error), now)
        else:
            self._consul.succeed(found, now)

    def _read_statuses(self, now: float) -> None:
        """Ask the consumers that are live, or were when Consul was last trusted."""
        members = self._consul.value.members if self._consul.value is not None else None
        if members is not None and members.membership is not None:
            self._trusted = members.membership.live
        asked = self._trusted
        try:
            answers = self.sources.poll(
                [asked[consumer] for consumer in sorted(asked)], self.settings.status_timeout
            )
        except ConnectionSettingsError as error:
            self._statuses.fail(str(error), now)
            return
        statuses = {c: answer for c, answer in answers.items() if isinstance(answer, ConsumerStatus)}
        failures = {
            c: answer.reason for c, answer in answers.items() if not isinstance(answer, ConsumerStatus)
        }
        if failures and not statuses:
            # Nothing was read: no status is an older one, so that nobody takes it for present.
            self._statuses.value = ({}, failures)
            first = min(failures)
            self._statuses.fail(
                f"none of {len(failures)} consumer(s) answers; {first}: {failures[first]}", now
            )
        else:
            self._statuses.succeed((statuses, failures), now)

    def _read_offsets(self, now: float) -> None:
        found = (self._topics.value or {}).values()
        topics = [each for each in found if isinstance(each, TopicSnapshot)]
        partitions = {(each.topic, partition) for each in topics for partition in each.partitions}
        groups = {each.topic: each.assignment.group_id for each in topics if each.assignment is not None}
        began = self._monotonic()
        known = self._offsets.value is not None and not self._offsets.error
        if not partitions or (known and began < self._offsets_due):
            return
        try:
            offsets = self.sources.offsets(partitions, groups)
        except (KafkaError, ConnectionSettingsError) as error:
            self._offsets.fail(str(error), now)
        else:
            self._offsets.succeed(offsets, now)
            self._readings.add(began, offsets)
        ended = self._monotonic()
        self._offsets_due = ended + max(OFFSETS_LAST, 5 * (ended - began))

    def _last_rebalance(self, now: float) -> LastRebalance | None:
        """From the history, which is only read when some topic has gone on since."""
        found = (self._topics.value or {}).values()
        seen = frozenset((s.topic, s.state_version) for s in found if isinstance(s, TopicSnapshot))
        if not self._topics.error and seen != self._history_seen:
            with suppress(ZooKeeperError):  # if it lasts, the next reading of the topics says so
                self._last = last_rebalance(self.sources.history(HISTORY_READ, None).records, now)
                self._history_seen = seen
        return self._last

    def _health(self) -> tuple[SourceHealth, ...]:
        addresses = self.sources.addresses()

        def of(name: Name, kept: _Kept[Any]) -> SourceHealth:
            return SourceHealth(
                source=name,
                reachable=not kept.error,
                address=addresses.get(name, ""),
                error=kept.error,
                unreachable_since=kept.failing_since,
                last_read_at=kept.at if kept.error else None,
            )

        return (
            of("zookeeper", self._topics),
            of("consul", self._consul),
            of("consumers", self._statuses),
            of("kafka", self._offsets),
        )
