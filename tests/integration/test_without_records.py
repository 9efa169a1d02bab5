"""Offsets behind which nothing can be read are no standstill: markers of transactions, and aborted records."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import Producer

from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_readable import without_records
from muster.settings.connections import KafkaSettings
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.stack


def test_markers_and_aborted_records_are_nothing_to_read(kafka: KafkaSettings) -> None:
    topic = make_topic(kafka, 5)
    producer = Producer(dict(kafka.config) | {"transactional.id": f"x-{uuid4().hex[:8]}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in (0, 2, 2):
        producer.produce(topic, b"a record", partition=partition)
    producer.commit_transaction(20)
    producer.begin_transaction()
    for partition in (1, 2):
        producer.produce(topic, b"never to be read", partition=partition)
    assert producer.flush(20) == 0
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, b"under way", partition=4)
    assert producer.flush(20) == 0
    group = GroupOffsets(kafka, f"g-{uuid4().hex[:8]}")
    try:
        ends = group.end_offsets([(topic, p) for p in range(5)])
        assert [ends[topic, p] for p in range(5)] == [2, 2, 5, 0, 0]
        begins = {(topic, 0): 1, (topic, 1): 0, (topic, 2): 1, (topic, 3): 0, (topic, 4): 0}
        found = without_records(kafka, group.group_id, begins)
        assert found == {(topic, 0), (topic, 1), (topic, 3), (topic, 4)}
        assert without_records(kafka, group.group_id, {(topic, 2): 2}) == {(topic, 2)}
        assert without_records(kafka, group.group_id, {(topic, 9): 0, (topic, 0): 0}) == set()
        assert without_records(kafka, group.group_id, {}) == set()
    finally:
        producer.abort_transaction(20)
        group.close()
