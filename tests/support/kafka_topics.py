"""Topics on a real Kafka, with records."""

from __future__ import annotations

import time
from uuid import uuid4

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from muster.edges.kafka import librdkafka_logger
from muster.settings.connections import KafkaSettings


def make_topic(kafka: KafkaSettings, partitions: int) -> str:
    """Make a topic whose leaders answer: a busy broker says for a moment that it does not lead what it made."""
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    deadline = time.monotonic() + 60
    while not _led(admin, name, partitions):
        assert time.monotonic() < deadline, f"{name} has no leaders"
        time.sleep(0.05)
    return name


def _led(admin: AdminClient, topic: str, partitions: int) -> bool:
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    try:
        for future in admin.list_offsets(asked, request_timeout=10).values():
            future.result(10)
    except KafkaException:
        return False
    return True


def produce(kafka: KafkaSettings, topic: str, partition: int, count: int) -> None:
    producer = Producer(dict(kafka.config), logger=librdkafka_logger())
    for n in range(count):
        producer.produce(topic, f"record {n}".encode(), partition=partition)
    assert producer.flush(30) == 0
