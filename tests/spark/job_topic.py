"""A real topic that consumer jobs read."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.core.positions import noted
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings

PARTITIONS = 3


class Topic:
    """A real topic, and how many records were written to each partition."""

    def __init__(self, kafka: KafkaSettings, group: str, prefix: str = "t") -> None:
        self.name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self._config = {"bootstrap.servers": kafka.bootstrap_servers}
        admin = AdminClient(self._config)
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(20)
        self._group = GroupOffsets(kafka, group)

    def produce(self, count: int, partitions: tuple[int, ...] = tuple(range(PARTITIONS))) -> None:
        producer = Producer(self._config)
        for number in partitions:
            for _ in range(count):
                producer.produce(self.name, f"{self.written[number]}".encode(), partition=number)
                self.written[number] += 1
        assert producer.flush(30) == 0

    def committed(self) -> dict[int, int | None]:
        found = self._group.committed([(self.name, number) for number in range(PARTITIONS)])
        return {number: found[self.name, number] for number in range(PARTITIONS)}

    def sought(self) -> dict[int, str]:
        """The id of the last seek of each partition, by what is committed."""
        found = self._group.positions([(self.name, number) for number in range(PARTITIONS)])
        return {number: noted(at, "").sought for (_, number), at in found.items()}

    def expected(self, *partitions: int) -> dict[tuple[str, int, int], int]:
        """Every record of these partitions, once."""
        return {
            (self.name, number, offset): 1 for number in partitions for offset in range(self.written[number])
        }
