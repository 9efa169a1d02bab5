"""The edges a command reads the live state through, opened for reading only. Kafka is not among them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from muster.coordinator.circumstances import CircumstancesReader
from muster.coordinator.ports import StatusPoller
from muster.core.assignors import NOTHING_FURTHER, Assignor, Circumstances
from muster.core.decisions import Decisions
from muster.core.history import HistoryPage
from muster.core.model import Consumer, TopicSnapshot
from muster.core.wire import WireError
from muster.edges.consul import Discovery, IsolationEntry, Members
from muster.edges.status import poll_statuses
from muster.edges.zookeeper import TopicStore
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_lookup import CONNECTIONS


class Topics(Protocol):
    """`muster.edges.zookeeper.TopicStore`, as far as it reads."""

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        """Read every topic of the cluster."""

    def history(self, *, limit: int = 100, before: int | None = None, since: float = 0.0) -> HistoryPage:
        """Part of the cluster's history, newest first."""


class Consumers(Protocol):
    """`muster.edges.consul.Discovery`, as far as it reads."""

    def members(self) -> Members:
        """Who is registered, live and isolated."""

    def isolated(self) -> Mapping[str, IsolationEntry]:
        """Who isolated whom, and why."""

    def decisions(self) -> Decisions:
        """All that persons decided about the cluster."""


Reader = Callable[
    [Mapping[str, TopicSnapshot], Mapping[str, Consumer], Assignor], tuple[Circumstances, tuple[str, ...]]
]
"""What a plan of this assignor is made with, by topics and live consumers; and what is unknown, in words."""


def nothing_further(
    _snapshots: Mapping[str, TopicSnapshot], _live: Mapping[str, Consumer], _assignor: Assignor
) -> tuple[Circumstances, tuple[str, ...]]:
    """Topics and consumers are all that there is."""
    return NOTHING_FURTHER, ()


@dataclass(frozen=True)
class Edges:
    """What a command reads from."""

    topics: Topics
    consumers: Consumers
    circumstances: Reader = nothing_further
    poll: StatusPoller = poll_statuses


Opener = Callable[[ClusterSettings], AbstractContextManager[Edges]]
"""How a command comes to the edges of a cluster; tests put simulated ones in their place."""


@contextmanager
def open_edges(cluster: ClusterSettings) -> Iterator[Edges]:
    """Connect to ZooKeeper and Consul and close the connections again at the end.

    Raises `ConnectionSettingsError` if a connection is missing, `ZooKeeperError` if ZooKeeper is out of reach. Consul
    is contacted when it is first needed.
    """
    consul = CONNECTIONS.consul(cluster.consul)
    poll = partial(poll_statuses, token=CONNECTIONS.token(cluster.status))
    with TopicStore(CONNECTIONS.zookeeper(cluster.zookeeper), cluster.name, read_only=True) as store:
        discovery = Discovery.of(consul, cluster)
        reader = CircumstancesReader(store, discovery, poll, time.time, cluster.status_timeout)

        def circumstances(
            snapshots: Mapping[str, TopicSnapshot], live: Mapping[str, Consumer], assignor: Assignor
        ) -> tuple[Circumstances, tuple[str, ...]]:
            known = reader.read(snapshots, live, assignor)
            return known.circumstances, known.warnings

        yield Edges(store, discovery, circumstances, poll)
