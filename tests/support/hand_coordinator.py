"""Assignments that a test writes by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kazoo.client import KazooClient

from muster.core.model import TopicAssignment
from muster.core.wire import assignment_path, format_assignment
from muster.edges.zookeeper import make_client, start_client, stop_client
from muster.settings.connections import KafkaSettings, ZooKeeperSettings


@dataclass
class HandCoordinator:
    """Writes assignment nodes as a coordinator would."""

    client: KazooClient
    kafka: KafkaSettings
    cluster: str
    group: str
    epochs: Counter[str] = field(default_factory=Counter)

    def assign(
        self, topic: str, owners: Mapping[int, str], standbys: Mapping[int, tuple[str, ...]] | None = None
    ) -> int:
        """Write the owners of a topic, and who stands by; returns the epoch."""
        self.epochs[topic] += 1
        node = TopicAssignment(
            self.kafka.bootstrap_servers,
            self.group,
            dict(owners),
            self.epochs[topic],
            standbys=dict(standbys or {}),
        )
        self.write(topic, format_assignment(node))
        return self.epochs[topic]

    def write(self, topic: str, data: bytes) -> None:
        path = assignment_path(self.cluster, topic)
        self.client.ensure_path(path)
        self.client.set(path, data)


@contextmanager
def coordinating(
    zookeeper: ZooKeeperSettings, kafka: KafkaSettings, cluster: str, group: str
) -> Iterator[HandCoordinator]:
    client = make_client(zookeeper)
    start_client(client, zookeeper)
    try:
        yield HandCoordinator(client, kafka, cluster, group)
    finally:
        stop_client(client, 5)
