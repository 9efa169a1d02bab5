"""What both sources read: topics of records of one size, written once and read by both."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.edges.kafka import librdkafka_logger
from muster.settings.connections import KafkaSettings

_VALUES = 2_000
_POLL_EVERY = 1_000


LZ4, ZSTD = "lz4", "zstd"
_MOST_RECORDS, _MOST_BYTES = 300_000, 100_000_000


@dataclass(frozen=True, order=True)
class Input:
    """A topic of records with values of `size` bytes each, spread evenly over `partitions`."""

    size: int
    partitions: int
    codec: str = LZ4

    @property
    def most(self) -> int:
        """The largest batch of either source, in records."""
        return min(_MOST_RECORDS, _MOST_BYTES // self.size)

    def __str__(self) -> str:
        return f"{self.size:,} B, {self.partitions} partition{'s'[: self.partitions - 1]}, {self.codec}"


@contextmanager
def topic_of(kafka: KafkaSettings, given: Input, records: int) -> Iterator[str]:
    """Yield the name of a topic that holds `records` records as `given` says; it is deleted in the end."""
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    topic = f"throughput-{given.size}-{given.partitions}-{given.codec}-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, given.partitions, 1)])[topic].result(60)
    _fill(kafka, topic, given, records)
    yield topic
    admin.delete_topics([topic])[topic].result(60)


@contextmanager
def trickle_of(kafka: KafkaSettings, partitions: int, interval: float) -> Iterator[str]:
    """Yield the name of a topic to which a record is written every `interval` seconds; its value says when, in ns."""
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    topic = f"trickle-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    stop = threading.Event()

    def write() -> None:
        producer = Producer({**kafka.config, "linger.ms": "0"}, logger=librdkafka_logger())
        for n in itertools.count():
            if stop.wait(interval):
                break
            producer.produce(topic, b"%d" % time.time_ns(), partition=n % partitions)
            producer.poll(0)
        producer.flush(30)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield topic
    finally:
        stop.set()
        writer.join()
        admin.delete_topics([topic])[topic].result(60)


def _fill(kafka: KafkaSettings, topic: str, given: Input, records: int) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            **kafka.config,
            "compression.type": given.codec,
            "acks": "1",
            "linger.ms": "100",
            "queue.buffering.max.messages": "500000",
            "delivery.report.only.error": True,
        },
        logger=librdkafka_logger(),
    )
    values = _values(given.size)
    for n in range(records):
        while True:
            try:
                producer.produce(
                    topic,
                    values[n % _VALUES],
                    key=b"%08d" % n,
                    partition=n % given.partitions,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if n % _POLL_EVERY == 0:
            producer.poll(0)
    if producer.flush(120) or failed:
        raise RuntimeError(f"topic {topic} could not be filled: {failed[:1] or 'no answer in two minutes'}")


def _values(size: int) -> list[bytes]:
    """Make lines of comma-separated numbers, as a log or an export has them: a codec makes half of them or so."""
    chance = random.Random(size)  # noqa: S311  not for secrets
    values = []
    for _ in range(_VALUES):
        line = ""
        while len(line) < size:
            line += f'"field":{chance.randrange(100_000)},'
        values.append(line[:size].encode())
    return values
