"""A topic whose records a job counts by key, and the topic that it writes each new count to."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Producer

from muster.settings.connections import KafkaSettings
from tests.support.kafka_topics import make_topic
from tests.support.state_query import committed_records


class KeyCounts:
    """Sends records of so many `keys` in turn, and reads their counts."""

    def __init__(self, kafka: KafkaSettings, partitions: int, keys: int) -> None:
        self._kafka, self._keys = kafka, keys
        self.topic, self.counts = make_topic(kafka, partitions), make_topic(kafka, 1)
        self.sent: Counter[str] = Counter()

    def send(self, count: int) -> None:
        producer = Producer({**self._kafka.config, "partitioner": "murmur2"})
        for n in range(count):
            key = f"k{n % self._keys}"
            producer.produce(self.topic, b"", key.encode())
            self.sent[key] += 1
        assert producer.flush(60) == 0

    def written(self) -> dict[str, list[int]]:
        """The counts that were written of each key, in order."""
        found: dict[str, list[int]] = {}
        for key, value in committed_records(self._kafka, self.counts):
            found.setdefault(key or "", []).append(int(value))
        return found

    def counted(self) -> bool:
        """Whether the last count of each key is that of its records."""
        return {key: counts[-1] for key, counts in self.written().items()} == self.sent
