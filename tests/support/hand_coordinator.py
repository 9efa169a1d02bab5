"""Assignments that a test writes by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kazoo.client import KazooClient

from muster.core.model import Seek, TopicAssignment
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
    nodes: dict[str, TopicAssignment] = field(default_factory=dict)

    def assign(
        self,
        topic: str,
        owners: Mapping[int, str],
        standbys: Mapping[int, tuple[str, ...]] | None = None,
        topic_id: str = "",
    ) -> int:
        """Write the owners of a topic, and who stands by; returns the epoch."""
        self.epochs[topic] += 1
        before = self.nodes.get(topic)
        node = TopicAssignment(
            self.kafka.bootstrap_servers,
            self.group,
            dict(owners),
            self.epochs[topic],
            standbys=dict(standbys or {}),
            topic_id=topic_id,
            paused=before.paused if before is not None else frozenset(),
            seeks=before.seeks if before is not None else {},
        )
        self.nodes[topic] = node
        self.write(topic, format_assignment(node))
        return self.epochs[topic]

    def pause(self, topic: str, *partitions: int) -> None:
        """Pause the consumption of these partitions, and of no others; owners and epoch stay."""
        self.nodes[topic] = replace(self.nodes[topic], paused=frozenset(partitions))
        self.write(topic, format_assignment(self.nodes[topic]))

    def seek(self, topic: str, seeks: Mapping[int, Seek]) -> None:
        """Have these partitions sought, and no others; owners and epoch stay."""
        self.nodes[topic] = replace(self.nodes[topic], seeks=dict(seeks))
        self.write(topic, format_assignment(self.nodes[topic]))

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
