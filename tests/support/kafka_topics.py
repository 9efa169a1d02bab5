"""Topics on a real Kafka, with records."""

from __future__ import annotations

from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.edges.kafka import librdkafka_logger
from muster.settings.connections import KafkaSettings


def make_topic(kafka: KafkaSettings, partitions: int) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def produce(kafka: KafkaSettings, topic: str, partition: int, count: int) -> None:
    producer = Producer(dict(kafka.config), logger=librdkafka_logger())
    for n in range(count):
        producer.produce(topic, f"record {n}".encode(), partition=partition)
    assert producer.flush(30) == 0
