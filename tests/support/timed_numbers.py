"""Produces 0, 1, 2, ... to each partition, all the time, and knows when each number was produced."""

from __future__ import annotations

import json
import logging
import threading
import time
from bisect import bisect_left
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PAUSE = 0.05
"""Seconds between two numbers of a partition."""


class NumberProducer:
    """A thread. The number is the record's offset, too, but for records that Kafka's client has written twice.

    It does so, though idempotent, now and then when the leader of a partition is killed: the same record stands there
    again, right behind. `again` counts them by partition, and `stop` looks whether it was so. Everything else that is
    not in its place fails `stop`.

    Each `PAUSE` every partition gets the next `at_once` numbers. `generation` says which of the topics of that name
    it is, for those that are deleted and created again.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, at_once: int = 1, generation: int = 0
    ) -> None:
        self.topic = topic
        self.at_once = at_once
        self.generation = generation
        self.times: dict[int, list[float]] = {partition: [] for partition in range(partitions)}
        self.acknowledged: dict[int, int] = dict.fromkeys(self.times, 0)
        self.again: dict[int, int] = dict.fromkeys(self.times, 0)
        self._first_again: dict[int, int] = {}
        self._failure = ""
        self._servers = bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 500,
            },
            logger=logging.getLogger("tests.faults.producer"),
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="test-producer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[int, int]:
        """End; returns where each partition ends."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(60) == 0, "not all numbers were acknowledged"
        assert not self._failure, self._failure
        assert self.acknowledged == {p: len(times) for p, times in self.times.items()}
        for partition, number in self._first_again.items():
            found = self._numbers(partition, number - 1)
            expected = list(range(number - 1, self.acknowledged[partition]))
            assert sorted(set(found)) == expected, f"partition {partition} from {number - 1} on: {found[:9]}"
            assert found == sorted(found), f"partition {partition}: out of order"
            assert len(found) == len(expected) + self.again[partition]
            print(f"{self.topic} [{partition}]: {self.again[partition]} records stand twice")
        return self.ends()

    def ends(self) -> dict[int, int]:
        """Where each partition ends, as far as Kafka has acknowledged it."""
        return {partition: count + self.again[partition] for partition, count in self.acknowledged.items()}

    def grow(self, partitions: int) -> None:
        """From now on there are so many partitions. AssertionError if the producer does not hear of them yet."""
        found = self._producer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        assert len(found) == partitions, f"{len(found)} partitions"
        for partition in range(len(self.times), partitions):
            self.acknowledged[partition] = self.again[partition] = 0
            self.times[partition] = []

    def first_since(self, moment: float) -> dict[int, int]:
        """The offset of the first number that was produced to each partition at `moment` (seconds since the epoch) or
        later."""
        return {
            partition: bisect_left(times, moment) + self.again[partition]
            for partition, times in list(self.times.items())
        }

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            for partition, times in list(self.times.items()):
                for _ in range(self.at_once):
                    self._produce(partition, times)
            self._producer.poll(0)

    def _produce(self, partition: int, times: list[float]) -> None:
        number = len(times)
        times.append(time.time())
        self._producer.produce(
            self.topic,
            json.dumps({"partition": partition, "number": number, "generation": self.generation}).encode(),
            partition=partition,
            on_delivery=self._acknowledge,
        )

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        number = json.loads(message.value() or b"{}")["number"]
        # A record that was written before its broker died, and was sent again, has no offset in its answer.
        if error is not None or (offset is not None and offset < number + self.again[partition]):
            self._failure = (
                self._failure or f"partition {partition}: number {number} is at offset {offset}: {error}"
            )
        elif offset is not None and offset > number + self.again[partition]:
            self._first_again.setdefault(partition, number)
            self.again[partition] = offset - number
        self.acknowledged[partition] += 1

    def _numbers(self, partition: int, first: int) -> list[int]:
        """What stands in Kafka from offset `first` on."""
        settings = {"bootstrap.servers": self._servers, "group.id": "unused", "enable.auto.commit": False}
        found: list[int] = []
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(self.topic, partition, first)])
            while first + len(found) < self.ends()[partition]:
                records = consumer.consume(1000, timeout=10)
                assert records, f"partition {partition} ends before {self.ends()[partition]}"
                found += [json.loads(record.value() or b"{}")["number"] for record in records]
        return found
