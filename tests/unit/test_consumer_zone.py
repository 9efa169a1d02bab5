"""Where a consumer with a zone reads."""

from __future__ import annotations

from typing import Any

import pytest

from muster.consumer import main
from muster.consumer.handler import load_handlers
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


def process(batch_df: object, batch: object) -> None:
    pass


def test_job_with_a_zone_plans_and_commits_with_the_rack_of_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local API plans, and passes the connection on to the tasks that read."""
    given: list[KafkaSettings] = []
    for name in ("make_local_api", "Committer"):
        original = getattr(main, name)

        def make(agent: object, kafka: KafkaSettings, *more: Any, original: Any = original) -> Any:
            given.append(kafka)
            return original(agent, kafka, *more)

        monkeypatch.setattr(main, name, make)
    settings = consumer_settings(metadata={"zone": "eu-west/1a"}, handler=f"{__name__}.process")
    job = main.Job(settings, load_handlers(settings))
    for server in (job._page, job._local_api):
        server.start()
        server.stop()
    assert given == [settings.kafka_in_zone, settings.kafka_in_zone]
    assert given[0].config["client.rack"] == "eu-west/1a"
