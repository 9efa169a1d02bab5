"""The producer of the tests with faults: what it makes of records that stand in Kafka twice."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.timed_numbers import NumberProducer

pytestmark = pytest.mark.stack


class Repeating(NumberProducer):
    """Writes number 3 of each partition, and behind it the number `behind`, of which it does not hear."""

    behind = 3

    def _produce(self, partition: int, times: list[float]) -> None:
        super()._produce(partition, times)
        if len(times) == 4:
            record = {"partition": partition, "number": self.behind, "generation": 0}
            self._producer.produce(self.topic, json.dumps(record).encode(), partition=partition)


def produced(kafka: KafkaSettings, behind: int, eventually: Eventually) -> Repeating:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    producer = Repeating(kafka.bootstrap_servers, topic, 2)
    producer.behind = behind
    producer.start()
    eventually(lambda: min(producer.acknowledged.values()) > 9, 30, "ten numbers")
    return producer


def test_record_that_stands_twice_is_seen_and_accounted_for(
    kafka: KafkaSettings, eventually: Eventually
) -> None:
    producer = produced(kafka, 3, eventually)
    ends = producer.stop()
    assert ends == {partition: len(times) + 1 for partition, times in producer.times.items()}


def test_any_other_record_in_between_is_a_failure(kafka: KafkaSettings, eventually: Eventually) -> None:
    producer = produced(kafka, 99, eventually)
    with pytest.raises(AssertionError, match=r"partition \d from 3 on"):
        producer.stop()
