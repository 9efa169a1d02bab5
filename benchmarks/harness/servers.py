"""A Kafka of a benchmark's own, and topics on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.airflow_api import wait_for
from devstack.kafka import Kafka
from muster.edges.kafka import librdkafka_logger
from muster.settings.connections import KafkaSettings


@contextmanager
def kafka() -> Iterator[tuple[KafkaSettings, Path]]:
    """Yield a broker that runs, and a folder; both are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = Kafka(Path(folder) / "kafka", guarded=True, heap="1g")
        server.start(240)
        try:
            yield KafkaSettings(config={"bootstrap.servers": server.address}), Path(folder)
        finally:
            server.stop()


def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers}, logger=librdkafka_logger())


def create_topic(servers: str, topic: str, partitions: int) -> None:
    """Create a topic, and wait until the broker knows it: it acknowledges a creation before."""
    client = admin(servers)  # a client that nothing names is destroyed before its answer comes
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    wait_for(f"topic {topic}", lambda: topic in client.list_topics(timeout=10).topics, 60, interval=0.05)


@contextmanager
def new_topic(kafka: KafkaSettings, name: str, partitions: int) -> Iterator[str]:
    """Yield a topic whose name begins with `name`; it is deleted at the end."""
    topic = f"{name}-{uuid4().hex[:8]}"
    create_topic(kafka.bootstrap_servers, topic, partitions)
    yield topic
    client = admin(kafka.bootstrap_servers)
    client.delete_topics([topic])[topic].result(60)
