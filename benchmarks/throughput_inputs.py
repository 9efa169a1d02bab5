"""What both sources read: topics of records of one size, written once and read by both."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.harness.servers import new_topic
from benchmarks.throughput_driver import Input
from muster.edges.kafka import librdkafka_logger
from muster.settings.connections import KafkaSettings

_VALUES = 2_000
_POLL_EVERY = 1_000


@contextmanager
def topic_of(kafka: KafkaSettings, given: Input, records: int) -> Iterator[str]:
    """Yield the name of a topic that holds `records` records as `given` says; it is deleted in the end."""
    name = f"throughput-{given.size}-{given.partitions}-{given.codec}"
    with new_topic(kafka, name, given.partitions) as topic:
        _fill(kafka, topic, given, records)
        yield topic


@contextmanager
def trickle_of(kafka: KafkaSettings, partitions: int, interval: float) -> Iterator[str]:
    """Yield the name of a topic to which a record is written every `interval` seconds; its value says when, in ns."""
    stop = threading.Event()

    def write(topic: str) -> None:
        producer = Producer({**kafka.config, "linger.ms": "0"}, logger=librdkafka_logger())
        for n in itertools.count():
            if stop.wait(interval):
                break
            producer.produce(topic, b"%d" % time.time_ns(), partition=n % partitions)
            producer.poll(0)
        producer.flush(30)

    with new_topic(kafka, "trickle", partitions) as topic:
        writer = threading.Thread(target=write, args=(topic,), daemon=True)
        writer.start()
        try:
            yield topic
        finally:
            stop.set()
            writer.join()


def _fill(kafka: KafkaSettings, topic: str, given: Input, records: int) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {
        **kafka.config,
        "compression.type": given.codec,
        "acks": "1",
        "linger.ms": "100",
        "queue.buffering.max.messages": "500000",
        "delivery.report.only.error": True,
    }
    producer = Producer(settings, logger=librdkafka_logger())
    values = _values(given.size)
    for n in range(records):
        value, key, partition = values[n % _VALUES], b"%08d" % n, n % given.partitions
        while True:
            try:
                producer.produce(topic, value, key=key, partition=partition, on_delivery=delivered)
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
