"""Where a consumer with a zone reads."""

from __future__ import annotations

from muster.consumer.source.java_client import java_properties
from muster.settings.connections import KafkaSettings
from tests.support.consumer_settings import consumer_settings


def test_consumer_in_a_zone_reads_from_replicas_there() -> None:
    there = consumer_settings(metadata={"zone": "eu-west/1a"})
    assert java_properties(there.kafka_in_zone.config)["client.rack"] == "eu-west/1a"
    assert there.kafka_in_zone.bootstrap_servers == there.kafka.bootstrap_servers
    nowhere = consumer_settings()
    assert nowhere.kafka_in_zone == nowhere.kafka


def test_rack_of_the_connection_counts_before_the_zone() -> None:
    own = KafkaSettings(config={"bootstrap.servers": "k:9092", "client.rack": "b"})
    assert consumer_settings(metadata={"zone": "a"}, kafka=own).kafka_in_zone == own
