"""What is in a topic: each record's place, and which ones were written back from a dead-letter topic."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from devstack.errors import DevstackError
from devstack.incident.account import Place
from devstack.silence import silent_logger
from muster.edges.dead_letters import REPLAY

PATIENCE = 120.0
"""Seconds for reading a whole topic, or writing one record."""


def records(address: str, topic: str, partitions: int, most: int | None = None) -> Iterator[Message]:
    """Yield the committed records of a topic from its beginning: `most` of each partition, which are waited for, or
    those up to its end. Raises `DevstackError` after `PATIENCE` seconds, and KafkaException."""
    config = {
        "bootstrap.servers": address,
        "group.id": "reader",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(config, logger=silent_logger())
    left = dict.fromkeys(range(partitions), most)
    deadline = time.monotonic() + PATIENCE
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            if time.monotonic() > deadline:
                raise DevstackError(
                    f"topic {topic!r} was not read within {PATIENCE:g} s; look at Kafka's log"
                )
            message = consumer.poll(1.0)
            if message is None:
                continue
            partition, error = int(message.partition() or 0), message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise DevstackError(f"topic {topic!r} cannot be read: {error}; look at Kafka's log")
                if most is None:
                    left.pop(partition, None)
                continue
            if partition not in left:
                continue
            yield message
            if most is not None:
                left[partition] = rest = (left[partition] or 0) - 1
                if rest == 0:
                    del left[partition]
    finally:
        consumer.close()


def produced_and_replayed(address: str, topic: str, partitions: int) -> tuple[set[Place], dict[Place, str]]:
    """Return the places of the records that were produced, and those of the records that were written back, each with
    the place of its letter, `[TOPIC]/[PARTITION]/[OFFSET]`. Raises as `records` does."""
    produced: set[Place] = set()
    replayed: dict[Place, str] = {}
    for message in records(address, topic, partitions):
        place = (topic, int(message.partition() or 0), int(message.offset() or 0))
        letter = dict(message.headers() or ()).get(REPLAY)
        if isinstance(letter, bytes):
            replayed[place] = letter.decode()
        else:
            produced.add(place)
    return produced, replayed


def produce_one(address: str, topic: str, partition: int, value: bytes) -> int:
    """Write one record and return its offset. Raises `DevstackError`."""
    written: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            written.append(int(message.offset() or 0))

    producer = Producer({"bootstrap.servers": address}, logger=silent_logger())
    producer.produce(topic, value, partition=partition, on_delivery=delivered)
    producer.flush(PATIENCE)
    if not written:
        raise DevstackError(
            f"topic {topic!r}, partition {partition}: Kafka did not take a record; see its log"
        )
    return written[0]
