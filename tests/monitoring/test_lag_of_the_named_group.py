"""`/muster/metrics` on real servers, where a topic's assignment names another group than the settings."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from muster.cluster.cache import StateCache
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.zookeeper import TopicStore
from muster.monitoring.exporter import Exporter
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters
from muster.settings.connections import KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually

pytestmark = pytest.mark.usefixtures("connections")

PARTITIONS = 2


def make_topics(kafka: KafkaSettings, *topics: str) -> None:
    """With ten records in each partition."""
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(30)
    producer = Producer(dict(kafka.config), logger=librdkafka_logger())
    for topic in topics:
        for number in range(10 * PARTITIONS):
            producer.produce(topic, b"x", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def commit(kafka: KafkaSettings, group_id: str, topic: str, offset: int) -> None:
    group = GroupOffsets(kafka, group_id)
    group.commit({(topic, partition): offset for partition in range(PARTITIONS)})
    group.close()


def test_lag_is_of_the_group_that_the_assignment_names(
    zookeeper: ZooKeeperSettings, kafka: KafkaSettings, eventually: Eventually
) -> None:
    name = f"m{uuid4().hex[:8]}"
    changed, other = f"changed-{name}", f"other-{name}"
    make_topics(kafka, changed, other)
    settings = {"consul_service": name, "group_id": f"new-{name}", "topics": [changed, other]}
    cluster = ClusterSettings.model_validate({"name": name, **settings, "consumers": {"handler": "a.b"}})
    with TopicStore(zookeeper, name) as store:
        store.create_topic(changed, kafka.bootstrap_servers, f"old-{name}")
        store.create_topic(other, kafka.bootstrap_servers, f"new-{name}")
    commit(kafka, f"old-{name}", changed, 7)
    commit(kafka, f"new-{name}", other, 9)
    exporter = Exporter(StateCache(), settings=lambda: Clusters(Path("clusters.yaml"), {name: cluster}))

    def scraped() -> dict[tuple[str, str, str], float]:
        text = exporter.text((), partitions=True, within=20).decode()
        return {
            (sample.name, sample.labels["group"], sample.labels.get("topic", "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.endswith("_sum_lag")
        }

    expected = {
        ("kafka_consumergroup_group_topic_sum_lag", f"old-{name}", changed): 6.0,
        ("kafka_consumergroup_group_topic_sum_lag", f"new-{name}", other): 2.0,
        ("kafka_consumergroup_group_sum_lag", f"old-{name}", ""): 6.0,
        ("kafka_consumergroup_group_sum_lag", f"new-{name}", ""): 2.0,
    }
    # The first scrape asks Kafka before ZooKeeper has answered; what it says has the group in the settings as label.
    eventually(lambda: scraped() == expected, 30)
