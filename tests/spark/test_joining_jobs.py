"""Consumer jobs that join two topics which share their state: one is killed, and no pair is missing or twice."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from muster.core.partitioner import partition_of
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.support.hand_coordinator import coordinating
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long
from tests.support.state_query import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), only_long]

PARTITIONS, KEYS, AT_ONCE, ROUNDS = 2, 7, 20, 6


def test_killed_owner_of_a_join_loses_no_pair(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    cluster, group = (f"join-{uuid.uuid4().hex[:8]}" for _ in range(2))
    left, right, output = make_topic(kafka, PARTITIONS), make_topic(kafka, PARTITIONS), make_topic(kafka, 1)
    offsets = GroupOffsets(kafka, group)
    ids = offsets.topics.identities({left, right}).ids
    options = {"left": left, "right": right, "output": output}
    sent: dict[str, list[tuple[str, str]]] = {left: [], right: []}
    producer = Producer(dict(kafka.config))

    def send(rounds: int) -> None:
        for _ in range(rounds):
            for topic, records in sent.items():
                for _ in range(AT_ONCE):
                    key, value = str(len(records) % KEYS), f"{topic}-{len(records)}"
                    producer.produce(topic, value, key, partition_of(key.encode(), PARTITIONS))
                    records.append((key, value))
        assert producer.flush(30) == 0

    def job(name: str) -> ConsumerJob:
        return ConsumerJob(
            Servers(zookeeper, consul, kafka),
            cluster,
            name,
            tmp_path / name,
            handler="joining_handler.Joins",
            options=options,
            master="local[2]",
            more={"state": ((left, right),), "max_records_per_batch": 30},
        )

    def expected() -> Counter[tuple[str | None, str]]:
        pairs = ((a, b) for a in sent[left] for b in sent[right] if a[0] == b[0])
        return Counter((key, f"{one} {other}") for (key, one), (_, other) in pairs)

    def came_out() -> Counter[tuple[str | None, str]]:
        return Counter(committed_records(kafka, output))

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with coordinating(zookeeper, kafka, cluster, group) as coordinator, job("one") as one, job("two") as two:
        for each in (one, two):
            eventually(each.registered, 180, "registered")

        def assign(owner: str) -> None:
            for topic in (left, right):
                coordinator.assign(topic, dict.fromkeys(range(PARTITIONS), owner), topic_id=ids[topic])

        assign("one")
        send(ROUNDS)
        eventually(lambda: len(came_out()) > 100, 180, "some pairs")
        one.end()
        assign("two")
        send(ROUNDS)
        eventually(lambda: came_out().total() >= expected().total(), 300, "all pairs")
        assert came_out() == expected()
        assert two.lists(left)[0] == two.lists(right)[0] == [*range(PARTITIONS)]
