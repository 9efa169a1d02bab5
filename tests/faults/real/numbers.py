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
    """A thread. The number is the record's offset, too: asserted for each acknowledgement.

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
        self._misplaced: tuple[int, int, str] | None = None
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
        """End; returns how many numbers each partition got."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(60) == 0, "not all numbers were acknowledged"
        assert self._misplaced is None, self._around(*self._misplaced)
        assert self.acknowledged == {p: len(times) for p, times in self.times.items()}
        return dict(self.acknowledged)

    def grow(self, partitions: int) -> None:
        """From now on there are so many partitions. AssertionError if the producer does not hear of them yet."""
        found = self._producer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        assert len(found) == partitions, f"{len(found)} partitions"
        for partition in range(len(self.times), partitions):
            self.acknowledged[partition] = 0
            self.times[partition] = []

    def first_since(self, moment: float) -> dict[int, int]:
        """The first number of each partition that was produced at `moment` (seconds since the epoch) or later."""
        return {partition: bisect_left(times, moment) for partition, times in list(self.times.items())}

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
        if error is not None or offset not in {None, number}:
            said = f"partition {partition}: number {number} is at offset {offset}: {error}"
            self._misplaced = self._misplaced or (partition, number, said)
        self.acknowledged[partition] += 1

    def _around(self, partition: int, number: int, said: str) -> str:
        """What was said of a number, and what Kafka has where it should be."""
        settings = {"bootstrap.servers": self._servers, "group.id": "unused", "enable.auto.commit": False}
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(self.topic, partition, max(0, number - 3))])
            found = consumer.consume(7, timeout=10)
        return f"{said}; it has " + ", ".join(
            f"{record.offset()}: {(record.value() or b'').decode()} at {record.timestamp()[1]}"
            for record in found
        )
