"""The first record that a group has not committed, its timestamp, and that markers and aborted records are none."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from muster.core.offsets import FirstRecord
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_readable import LARGEST_BATCH, FirstRecords
from muster.settings.connections import KafkaSettings
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.stack


@pytest.fixture
def records(kafka: KafkaSettings) -> Iterator[FirstRecords]:
    opened = FirstRecords(kafka, f"g-{uuid4().hex[:8]}")
    yield opened
    opened.close()


def test_markers_and_aborted_records_are_nothing_to_read(kafka: KafkaSettings, records: FirstRecords) -> None:
    topic = make_topic(kafka, 5)
    producer = Producer(dict(kafka.config) | {"transactional.id": f"x-{uuid4().hex[:8]}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in (0, 2, 2):
        producer.produce(topic, b"a record", partition=partition, timestamp=1_000)
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
        begins = {0: 1, 1: 0, 2: 1, 3: 0, 4: 0}
        found, why = records.read({(topic, p): (begin, ends[topic, p]) for p, begin in begins.items()})
        assert found.pop((topic, 2)) == FirstRecord(1, 1.0, 88)
        assert found == dict.fromkeys([(topic, 0), (topic, 1), (topic, 3), (topic, 4)])
        assert why == ""
        assert records.read({(topic, 2): (2, 5)}) == ({(topic, 2): None}, "")
        found, why = records.read({(topic, 9): (0, 1), (topic, 0): (0, 2)})
        assert found == {(topic, 0): FirstRecord(0, 1.0, 88)}
        assert why == "no answer within 5 s"
        assert records.read({}) == ({}, "")
    finally:
        producer.abort_transaction(20)
        group.close()


def test_first_records_of_large_batches_are_found(kafka: KafkaSettings, records: FirstRecords) -> None:
    topic = make_topic(kafka, 20)
    producer = Producer(dict(kafka.config) | {"linger.ms": 500})
    for partition in range(20):
        for _ in range(4):
            producer.produce(topic, bytes(LARGEST_BATCH // 5), partition=partition, timestamp=1_000)
    assert producer.flush(30) == 0
    found, why = records.read({(topic, partition): (0, 4) for partition in range(20)})
    assert {record.offset for record in found.values() if record is not None} == {0}
    assert (len(found), why) == (20, "")


def test_record_is_read_again_once_it_is_committed(kafka: KafkaSettings) -> None:
    topic, now = make_topic(kafka, 1), 0.0
    tp = (topic, 0)
    producer = Producer(dict(kafka.config))

    def produce(*moments: int) -> None:
        for moment in moments:
            producer.produce(topic, b"a record", b"key", partition=0, timestamp=moment * 1000)
        assert producer.flush(20) == 0

    records = FirstRecords(kafka, f"g-{uuid4().hex[:8]}", lambda: now)
    try:
        produce(50, 60)
        assert records.read({tp: (0, 2)})[0] == {tp: FirstRecord(0, 50.0, 91)}
        produce(70)
        assert records.read({tp: (0, 3)})[0][tp] == FirstRecord(0, 50.0, 91)
        assert records.read({tp: (1, 3)})[0][tp] == FirstRecord(1, 60.0, 91)
        assert records.read({tp: (0, 3)})[0][tp] == FirstRecord(0, 50.0, 91), "sought back"
        assert records.read({tp: (3, 3)})[0][tp] is None
        produce(80)
        assert records.read({tp: (3, 4)})[0][tp] == FirstRecord(3, 80.0, 91)
    finally:
        records.close()
