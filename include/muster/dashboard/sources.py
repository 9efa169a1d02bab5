"""Where the dashboard reads one cluster from: ZooKeeper, Consul, the consumers' status pages and Kafka.

Connections are opened when they are first needed and kept, because a dashboard that is looked at reads every few
seconds. One that fails is closed and opened anew the next time, so that a corrected connection takes effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from muster.core.decisions import Decisions
from muster.core.history import HistoryPage
from muster.core.model import Consumer, TopicSnapshot
from muster.core.wire import WireError
from muster.core.wire_racks import Racks
from muster.edges.consul import Discovery, IsolationEntry, Members
from muster.edges.consul_http import address
from muster.edges.kafka import PartitionError, TopicPartition
from muster.edges.kafka_groups import TopicGroups
from muster.edges.status import StatusResult, poll_statuses
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_lookup import CONNECTIONS

T = TypeVar("T")


@dataclass(frozen=True)
class Offsets:
    """Offsets in Kafka: after the last record (`ends`), of the topic's group (`committed`; absent if there is none),
    and the first of partitions without a committed one (`begins`). `errors` says what could not be had of some."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()


class Sources(Protocol):
    """One cluster's servers. Each raises the error of its edge, or `ConnectionSettingsError`."""

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        """Every topic, from ZooKeeper."""

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        """The racks of the partitions' leaders, from ZooKeeper."""

    def members(self) -> Members:
        """Who is there, from Consul."""

    def isolated(self) -> Mapping[str, IsolationEntry]:
        """Who isolated whom, from Consul."""

    def decisions(self) -> Decisions:
        """Pins and exclusions, from Consul."""

    def poll(self, consumers: Iterable[Consumer], timeout: float) -> Mapping[str, StatusResult]:
        """Ask consumers for their status."""

    def offsets(self, partitions: Collection[TopicPartition], groups: Mapping[str, str]) -> Offsets:
        """Offsets, from Kafka. `groups` maps topics to the group that their assignment names."""

    def history(self, limit: int, before: int | None) -> HistoryPage:
        """What happened, from ZooKeeper: so many records, older than number `before`, the newest first."""

    def addresses(self) -> Mapping[str, str]:
        """Where each server is, as far as known, by the names of `SourceHealth.source`."""

    def close(self) -> None:
        """Let go of all connections."""


class OpenSources:
    """The real servers of `cluster`, through its Airflow connections.

    One collector reads; racks and history may be asked for beside it, from any thread.
    """

    def __init__(self, cluster: ClusterSettings) -> None:
        self._cluster = cluster
        self._store: TopicStore | None = None
        self._discovery: Discovery | None = None
        self._groups: TopicGroups | None = None
        self._addresses: dict[str, str] = {}
        self._opening = threading.Lock()

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        """As `Sources`."""
        return self._zookeeper(lambda store: store.snapshots())

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        """As `Sources`."""
        return self._zookeeper(lambda store: store.racks(topics))

    def members(self) -> Members:
        """As `Sources`."""
        return self.discovery().members()

    def isolated(self) -> Mapping[str, IsolationEntry]:
        """As `Sources`."""
        return self.discovery().isolated()

    def decisions(self) -> Decisions:
        """As `Sources`."""
        return self.discovery().decisions()

    def poll(self, consumers: Iterable[Consumer], timeout: float) -> Mapping[str, StatusResult]:
        """As `Sources`."""
        return poll_statuses(consumers, timeout, CONNECTIONS.token(self._cluster.status))

    def offsets(self, partitions: Collection[TopicPartition], groups: Mapping[str, str]) -> Offsets:
        """As `Sources`."""
        if self._groups is None:
            settings = CONNECTIONS.kafka(self._cluster.kafka)
            self._addresses["kafka"] = settings.bootstrap_servers
            self._groups = TopicGroups(settings, self._cluster.group_id)
        group, errors = self._groups.default, []

        def some(
            ask: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, T]],
            of: Collection[TopicPartition],
        ) -> dict[TopicPartition, T]:
            try:
                return dict(ask(of)) if of else {}
            except PartitionError as error:
                errors.append(str(error))
                return dict(error.offsets)

        ends = some(group.end_offsets, partitions)
        committed = {
            key: offset
            for reader, keys in self._groups.each(partitions, groups)
            for key, offset in some(reader.committed, keys).items()
            if offset is not None
        }
        return Offsets(
            ends, committed, some(group.beginning_offsets, ends.keys() - committed.keys()), tuple(errors)
        )

    def history(self, limit: int, before: int | None) -> HistoryPage:
        """As `Sources`."""
        return self._zookeeper(lambda store: store.history(limit=limit, before=before))

    def addresses(self) -> Mapping[str, str]:
        """As `Sources`."""
        return dict(self._addresses)

    def close(self) -> None:
        """As `Sources`."""
        self._close_store()
        groups, self._groups = self._groups, None
        if groups is not None:
            groups.close()

    def discovery(self) -> Discovery:
        """The cluster's consumers and keys in Consul."""
        if self._discovery is None:
            settings = CONNECTIONS.consul(self._cluster.consul)
            self._addresses["consul"] = address(settings)
            self._discovery = Discovery.of(settings, self._cluster)
        return self._discovery

    def _zookeeper(self, ask: Callable[[TopicStore], T]) -> T:
        with self._opening:
            if self._store is None:
                settings = CONNECTIONS.zookeeper(self._cluster.zookeeper)
                self._addresses["zookeeper"] = settings.hosts
                opened = TopicStore(settings, self._cluster.name, read_only=True)
                opened.__enter__()
                self._store = opened
            store = self._store
        try:
            return ask(store)
        except ZooKeeperError:
            self._close_store(store)
            raise

    def _close_store(self, failed: TopicStore | None = None) -> None:
        """Close the connection, unless another one is in the place of the one that failed."""
        with self._opening:
            store = self._store
            if store is None or failed not in {None, store}:
                return
            self._store = None
        store.__exit__(None, None, None)
