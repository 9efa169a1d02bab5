"""A topic that loses its end under the reader, on a real Kafka: a leader is elected that had not everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from devstack.brokers import Brokers
from devstack.place import HERE
from muster.core.positions import Why
from muster.edges.kafka import TopicLister
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.connected_query import Holder, reading
from tests.support.only_long import only_long
from tests.support.spark_topics import end_offset, leader_of, numbered, produce

pytestmark = [pytest.mark.spark, only_long]

TOPIC = "truncated"
SHORT, GROWN = 0, 1
"""The partition that gets no further record for a while, and the one that grows beyond its old end at once."""
LEADER, FOLLOWER = 2, 3


def test_records_that_stand_where_lost_ones_stood_are_read_and_those_are_counted(
    spark: SparkSession, tmp_path: Path, eventually: Eventually, tmp_path_factory: pytest.TempPathFactory
) -> None:
    brokers = Brokers(tmp_path_factory.mktemp("brokers"), [HERE] * 3)
    brokers.start()
    kafka = KafkaSettings(config={"bootstrap.servers": brokers.servers})
    try:
        admin = AdminClient(kafka.config)
        new = NewTopic(
            TOPIC,
            2,
            replica_assignment=[[LEADER, FOLLOWER]] * 2,
            config={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
        )
        admin.create_topics([new])[TOPIC].result()
        produce(kafka, TOPIC, {p: numbered("both:", 100) for p in (SHORT, GROWN)})
        with Holder(kafka, "group", fencing=True) as holder:
            holder.hold(TOPIC, [SHORT, GROWN], TopicLister(kafka).topic_ids([TOPIC])[TOPIC])
            with reading(spark, holder, tmp_path / "checkpoint") as query:
                eventually(query.has(200), 60)
                brokers[FOLLOWER].kill()
                produce(kafka, TOPIC, {p: numbered("lost:", 100) for p in (SHORT, GROWN)})
                eventually(query.has(400), 90)

                brokers[LEADER].kill()
                brokers[FOLLOWER].start()
                eventually(lambda: leader_of(kafka, TOPIC, GROWN) == FOLLOWER, 60, "the other one leads")
                produce(kafka, TOPIC, {GROWN: numbered("new:", 150)})
                eventually(
                    lambda: end_offset(kafka, TOPIC, SHORT) == 100, 20, "the other partition's end is lost"
                )
                lost = lambda: holder.agent.view().counters.lost  # noqa: E731
                eventually(lambda: lost().keys() == {(TOPIC, SHORT), (TOPIC, GROWN)}, 60, "all is counted")
                produce(kafka, TOPIC, {SHORT: numbered("new:", 50)})
                eventually(query.has(400 + 150 + 50), 60)
                query.check()
                assert lost()[TOPIC, SHORT] == {Why.TRUNCATION: 100}
                assert lost()[TOPIC, GROWN].keys() == {Why.TRUNCATION}
                assert lost()[TOPIC, GROWN][Why.TRUNCATION] >= 100
        for partition, records in {SHORT: 50, GROWN: 150}.items():
            assert query.values(TOPIC, partition) == [
                *numbered("both:", 100),
                *numbered("lost:", 100),
                *numbered("new:", records),
            ]
    finally:
        for broker in brokers:
            broker.kill()
