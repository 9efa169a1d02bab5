"""Topics and records for the tests of the Spark source."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.settings.connections import KafkaSettings


def create_topic(
    kafka: KafkaSettings,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    replication: int = 1,
    replicas: Sequence[int] = (),
) -> str:
    """A new topic with a name of its own."""
    topic = f"source-{uuid.uuid4().hex[:12]}"
    make_topic(kafka, topic, partitions, config, replication, replicas)
    return topic


def make_topic(
    kafka: KafkaSettings,
    topic: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    replication: int = 1,
    replicas: Sequence[int] = (),
) -> None:
    """A topic, at the brokers `replicas` if there are any."""
    admin = _admin(kafka)
    where: dict[str, Any] = (
        {"replica_assignment": [list(replicas)] * partitions}
        if replicas
        else {"replication_factor": replication}
    )
    new = NewTopic(topic, partitions, config=dict(config or {}), **where)
    admin.create_topics([new])[topic].result()
    deadline = time.monotonic() + 20
    while topic not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, f"topic {topic} is not there"
        time.sleep(0.05)


def delete_topic(kafka: KafkaSettings, topic: str) -> None:
    admin = _admin(kafka)
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, f"topic {topic} is still there"
        time.sleep(0.05)


def transactional_producer(kafka: KafkaSettings, topic: str) -> Producer:
    producer = producer_of(kafka, **{"transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    return producer


def produce_in_transaction(producer: Producer, topic: str, value: str) -> None:
    """Write a value in a new transaction, which stays open."""
    producer.begin_transaction()
    producer.produce(topic, value.encode())
    assert producer.flush(30) == 0


def leader_of(kafka: KafkaSettings, topic: str, partition: int) -> int:
    return int(_admin(kafka).list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)


def in_sync(kafka: KafkaSettings, topic: str, partition: int) -> set[int]:
    return set(_admin(kafka).list_topics(topic, timeout=10).topics[topic].partitions[partition].isrs)


def stored_offsets(kafka: KafkaSettings, topic: str) -> Iterator[int]:
    """The offsets of the records that partition 0 holds."""
    settings = {"group.id": "unused", "enable.partition.eof": "true", "enable.auto.commit": "false"}
    consumer = Consumer({**kafka.config, **settings}, logger=librdkafka_logger())
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(10)) is not None and message.error() is None:
            yield message.offset()
    finally:
        consumer.close()


def delete_before(kafka: KafkaSettings, topic: str, partition: int, offset: int) -> None:
    """What retention does, at once."""
    admin = _admin(kafka)  # its futures need it alive
    futures = admin.delete_records([TopicPartition(topic, partition, offset)])
    for future in futures.values():
        future.result()


def produce(kafka: KafkaSettings, topic: str, values: Mapping[int, Iterable[str]]) -> None:
    """Write values to partitions and wait until they are there."""
    producer = producer_of(kafka)
    failures: list[object] = []
    for partition, of_partition in values.items():
        for value in of_partition:
            producer.produce(
                topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures


def producer_of(kafka: KafkaSettings, **config: str) -> Producer:
    return Producer(
        {
            **kafka.config,
            # What is tried again, as a new topic's first records may be, keeps its place.
            "enable.idempotence": "true",
            "linger.ms": "2",
            "queue.buffering.max.messages": "1000000",
            **config,
        },
        logger=librdkafka_logger(),
    )


def numbered(prefix: str, count: int, first: int = 0) -> list[str]:
    return [f"{prefix}{n}" for n in range(first, first + count)]


def commit(kafka: KafkaSettings, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a group without members."""
    consumer = Consumer({**kafka.config, "group.id": group, "enable.auto.commit": "false"})
    consumer.commit(offsets=[TopicPartition(*tp, at) for tp, at in offsets.items()], asynchronous=False)
    consumer.close()


def committed(kafka: KafkaSettings, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The committed offset of each partition, 0 where there is none."""
    offsets = GroupOffsets(kafka, group)
    try:
        return {p: at or 0 for (_, p), at in offsets.committed([(topic, p) for p in partitions]).items()}
    finally:
        offsets.close()


def end_offset(kafka: KafkaSettings, topic: str, partition: int) -> int:
    admin = _admin(kafka)  # its futures need it alive
    futures = admin.list_offsets({TopicPartition(topic, partition): OffsetSpec.latest()})
    return int(next(iter(futures.values())).result().offset)


def _admin(kafka: KafkaSettings) -> AdminClient:
    return AdminClient(dict(kafka.config), logger=librdkafka_logger())
