"""The servers that a command acts on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_lookup import Connections


@dataclass(frozen=True)
class Target:
    """A cluster with its connections. `store` connects to ZooKeeper when it is entered: most commands need Consul
    only, and work while ZooKeeper is unavailable."""

    cluster: ClusterSettings
    consul: ConsulCluster
    store: Callable[[], AbstractContextManager[TopicStore]]

    @classmethod
    def of(cls, cluster: ClusterSettings, connections: Connections) -> Self:
        """Return the cluster's real servers. Raises `ConnectionSettingsError` without a connection to Consul."""
        return cls(
            cluster,
            ConsulCluster.of(connections.consul(cluster.consul), cluster),
            lambda: TopicStore(connections.zookeeper(cluster.zookeeper), cluster.name, read_only=True),
        )
