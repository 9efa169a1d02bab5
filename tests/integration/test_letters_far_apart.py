"""A thousand records for dead letters, each a hundred from the next, are read back from a real Kafka in time."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from muster.edges.record_reader import RecordReader
from muster.settings.connections import KafkaSettings
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)


def test_records_far_apart_are_read_at_once(kafka: KafkaSettings) -> None:
    topic = make_topic(kafka, 1)
    producer = Producer({**kafka.config, "queue.buffering.max.messages": 200_000})
    for _ in range(100_000):
        producer.produce(topic, b"x" * 200, partition=0)
    assert producer.flush(120) == 0
    wanted = range(0, 100_000, 100)
    found = RecordReader(kafka, "r").read_all({(topic, 0): wanted})
    assert found.failed == {}
    assert sorted(found.records[topic, 0]) == list(wanted)
