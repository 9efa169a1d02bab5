"""The servers of one cluster: ZooKeeper, Consul, the consumers' status pages and Kafka, opened for reading only.

Connections are opened when they are first needed and kept. One that fails is closed, and the next call looks its
settings up again, so that a corrected connection takes effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from typing import TypeVar

from muster.core.history import HistoryPage
from muster.core.model import Consumer, TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.core.overrides import Overrides
from muster.core.progress import Look
from muster.core.starting import Starting
from muster.core.wire import Racks, WireError
from muster.edges.consul import ConsulCluster, ConsulError, Members
from muster.edges.consul_api import address
from muster.edges.kafka import KafkaError
from muster.edges.kafka_offsets import OffsetReader
from muster.edges.status import StatusResult, poll_statuses
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connection_lookup import CONNECTIONS, Connections

T = TypeVar("T")


class Sources:
    """The servers of `cluster`. Each call raises the error of its edge, or `ConnectionSettingsError`.

    One reader reads each of them; racks and history may be asked for from any other thread at the same time.
    """

    def __init__(self, cluster: ClusterSettings, connections: Connections = CONNECTIONS) -> None:
        self._cluster = cluster
        self._connections = connections
        self._store: TopicStore | None = None
        self._in_consul: ConsulCluster | None = None
        self._offsets: OffsetReader | None = None
        self._addresses: dict[str, str] = {}
        self._opening = threading.Lock()

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        return self._zookeeper(lambda store: store.snapshots())

    def look(self) -> Look:
        """Read from ZooKeeper since when partitions stand still."""
        return self._zookeeper(lambda store: store.look())

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        """Read the racks of the partitions' leaders from ZooKeeper."""
        return self._zookeeper(lambda store: store.racks(topics))

    def history(self, *, limit: int = 100, before: int | None = None, since: float = 0.0) -> HistoryPage:
        """Read part of the cluster's history from ZooKeeper, newest first."""
        return self._zookeeper(lambda store: store.history(limit=limit, before=before, since=since))

    def members(self) -> Members:
        """Read from Consul which consumers are registered, live and isolated."""
        return self._consul(lambda consul: consul.catalog.members())

    def starting(self) -> Mapping[str, Starting]:
        """Read from Consul how far the jobs have come that were submitted and not live since."""
        return self._consul(lambda consul: consul.jobs.all_starting())

    def overrides(self) -> Overrides:
        """Read from Consul all that persons decided about the cluster."""
        return self._consul(lambda consul: consul.overrides.read())

    def poll(
        self,
        consumers: Iterable[Consumer],
        timeout: float,
        *,
        topics: Mapping[str, Collection[str]] | None = None,
    ) -> Mapping[str, StatusResult]:
        """Ask consumers for their status, as `muster.coordinator.asking.StatusPoller`."""
        return poll_statuses(
            consumers,
            timeout,
            self._connections.status_pages(self._cluster.status),
            topics,
            self._cluster.name,
        )

    def offsets(self, reads: Callable[[str], bool], groups: Mapping[str, str]) -> TopicOffsets:
        """Read the offsets of the topics that the cluster `reads` from Kafka.

        `groups` maps topics to the group that their assignment names, if that is not the one in the settings.
        """
        if self._offsets is None:
            settings = self._connections.kafka(self._cluster.kafka)
            self._addresses["kafka"] = settings.bootstrap_servers
            self._offsets = OffsetReader(settings, self._cluster.group_id)
        try:
            return self._offsets.read_of(reads, groups)
        except KafkaError:
            self._close_kafka()
            raise

    def addresses(self) -> Mapping[str, str]:
        """Return where each server is, as far as known, by the names of `muster.cluster.reading.SourceName`."""
        return dict(self._addresses)

    def close(self) -> None:
        """Close all connections."""
        self._close_store()
        self._close_kafka()

    def _consul(self, ask: Callable[[ConsulCluster], T]) -> T:
        consul = self._in_consul
        if consul is None:
            settings = self._connections.consul(self._cluster.consul)
            self._addresses["consul"] = address(settings)
            consul = self._in_consul = ConsulCluster.of(settings, self._cluster)
        try:
            return ask(consul)
        except ConsulError:
            self._in_consul = None
            raise

    def _zookeeper(self, ask: Callable[[TopicStore], T]) -> T:
        with self._opening:
            if self._store is None:
                settings = self._connections.zookeeper(self._cluster.zookeeper)
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

    def _close_kafka(self) -> None:
        offsets, self._offsets = self._offsets, None
        if offsets is not None:
            offsets.close()


Opener = Callable[[ClusterSettings], AbstractContextManager[Sources]]
"""Opens the servers of a cluster for a command."""


def open_sources(cluster: ClusterSettings) -> AbstractContextManager[Sources]:
    """Open the servers of `cluster`; their connections are closed at the end."""
    return closing(Sources(cluster))
