"""Consumers that share no code with Muster take part in rebalances: the wire protocol is all they know."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.coordinator.coordinator import open_coordinator
from muster.core.model import TopicSnapshot
from muster.edges.zookeeper import TopicStore
from muster.settings.clusters import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually

SCRIPT = Path(__file__).with_name("foreign_consumer.py")
PARTITIONS = 4


class Foreign:
    """A running foreign consumer and what it has printed."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def leave(self) -> int:
        """Ask it to leave in order; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)


@pytest.fixture
def cluster() -> ClusterSettings:
    name = f"foreign-{uuid.uuid4().hex[:8]}"
    return ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": name,
            "group_id": name,
            "topics": [name],
            "consumers": {"handler": "not.used"},
            "tick": "5s",
            # Standbys stand beside the owners in the topic node; who does not know that key is not disturbed by it.
            "assignor": {"name": "co-partitioned", "options": {"standbys": 1}},
        }
    )


@pytest.fixture
def coordinating(
    cluster: ClusterSettings, zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings
) -> Iterator[None]:
    """A coordinator that makes run after run, as the DAG does."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def runs() -> None:
        try:
            while not stop.is_set():
                with open_coordinator(cluster, zookeeper, consul, kafka) as coordinator:
                    coordinator.fetch_partitions()
                    coordinator.fetch_consumers()
                    if coordinator.compute_assignment(1).needed:
                        coordinator.advance(10)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=runs)
    thread.start()
    yield
    stop.set()
    thread.join(30)
    assert not failures, failures


def test_foreign_consumers_take_part(
    cluster: ClusterSettings,
    coordinating: None,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    eventually: Eventually,
) -> None:
    topic, group = cluster.name, cluster.group_id
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    consul_url = f"http://{consul.host}:{consul.port}"
    arguments = [
        cluster.name,
        cluster.consul_service,
        zookeeper.hosts,
        consul_url,
        kafka.bootstrap_servers,
        group,
    ]
    produced = 0
    running: list[Foreign] = []

    def produce(count: int) -> None:
        nonlocal produced
        for _ in range(count):
            producer.produce(topic, json.dumps({"row": produced}).encode(), str(produced))
            produced += 1
        assert producer.flush(30) == 0

    def read() -> list[str]:
        return [line for consumer in running for line in consumer.lines]

    with TopicStore(zookeeper, cluster.name) as store:

        def standbys() -> set[tuple[str, ...]]:
            snapshot = store.snapshots()[topic]
            assert isinstance(snapshot, TopicSnapshot)
            assert snapshot.assignment is not None
            return set(snapshot.assignment.standbys.values())

        def stable_shares() -> dict[str, int]:
            snapshot = store.snapshots().get(topic)
            if (
                not isinstance(snapshot, TopicSnapshot)
                or snapshot.name != "Stable"
                or not snapshot.assignment
            ):
                return {}
            return dict(Counter(snapshot.assignment.owners.values()))

        try:
            running.append(Foreign("alpha", arguments))
            eventually(lambda: stable_shares() == {"alpha": PARTITIONS}, 30, "alpha has all")
            produce(500)
            eventually(lambda: len(read()) == produced, 30, "alpha reads all")
            running.append(Foreign("beta", arguments))
            eventually(lambda: stable_shares() == {"alpha": 2, "beta": 2}, 30, "beta gets its half")
            assert standbys() == {("alpha",), ("beta",)}
            produce(500)
            eventually(lambda: len(read()) == produced, 30, "both read")
            assert running[1].lines, "beta read something"
            assert running[0].leave() == 0
            eventually(lambda: stable_shares() == {"beta": PARTITIONS}, 30, "beta has all")
            assert standbys() == set()
            produce(500)
            eventually(lambda: len(read()) >= produced, 30, "beta reads all")
        finally:
            for consumer in running:
                consumer.process.kill()
                consumer.process.wait()
    twice = [place for place, times in Counter(read()).items() if times > 1]
    assert twice == [], "a planned hand-over reads nothing twice"
    assert len(set(read())) == produced
