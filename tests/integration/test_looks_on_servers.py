"""Since when partitions stand still, by looks at a real Kafka that are kept in a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from muster.core.progress import Look, Mark, look
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_offsets import OffsetReader
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import KafkaSettings, ZooKeeperSettings
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.stack


@pytest.fixture
def store(zookeeper: ZooKeeperSettings) -> Iterator[TopicStore]:
    with TopicStore(zookeeper, f"c-{uuid4().hex[:8]}") as opened:
        yield opened


def test_looks_of_a_real_kafka_are_kept_in_zookeeper(kafka: KafkaSettings, store: TopicStore) -> None:
    topic, group = make_topic(kafka, 3), f"g-{uuid4().hex[:8]}"
    producer = Producer(kafka.config)
    for partition in (0, 1):
        producer.produce(topic, b"a record", partition=partition)
    assert producer.flush(20) == 0
    partitions = {topic: frozenset(range(3))}
    offsets, committed = OffsetReader(kafka, group), GroupOffsets(kafka, group)
    tps = [(topic, p) for p in range(3)]

    def look_at(now: float) -> Look:
        before = store.look()
        after = look(before, tps, offsets.read(partitions, {}), now)
        store.note_look(before, after)
        assert store.look() == after
        return after

    try:
        assert store.look() == Look()
        assert look_at(100.0).marks == {(topic, p): Mark(0, 100, points=((0, 1),)) for p in (0, 1)}
        committed.commit({(topic, 0): 1})
        assert look_at(200.0).marks == {(topic, 1): Mark(0, 100, points=((0, 1), (0, 1)))}
        committed.commit({(topic, 1): 0})
        assert look_at(300.0).marks == {(topic, 1): Mark(0, 100, points=((0, 1), (0, 1)))}
        committed.commit({(topic, 1): 0})
        assert look_at(400.0).marks == {(topic, 1): Mark(0, 100, points=((0, 1), (0, 1)))}, (
            "to commit where it begins is no movement, nor to commit it again"
        )
        unknown = offsets.read({topic: frozenset({1, 7})}, {})
        assert unknown.errors
        assert unknown.lag((topic, 7)) is None
        committed.commit({(topic, 1): 1})
        assert look_at(500.0).marks == {}
    finally:
        offsets.close()
        committed.close()


def test_marks_are_shared_by_two_coordinators(store: TopicStore, zookeeper: ZooKeeperSettings) -> None:
    with TopicStore(zookeeper, store.cluster) as other:
        first = Look(100.0, {(f"t{number}", 0): Mark(number, 50) for number in range(40)})
        store.note_look(other.look(), first)
        read = other.look()
        assert read == first
        second = Look(160.0, {tp: mark for tp, mark in first.marks.items() if mark.offset != 3})
        other.note_look(read, second)
        store.note_look(store.look(), Look(220.0))
        assert other.look() == Look(220.0), "nothing is left of partitions that have moved"
