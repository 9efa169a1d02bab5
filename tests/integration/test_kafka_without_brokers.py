"""Clients go on after a broker that was fenced has answered that Kafka has no broker.

librdkafka (2.13 to 2.16) forgets all brokers then, and may never connect again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from devstack.kafka import Kafka
from muster.edges.kafka import GroupOffsets, KafkaError, TopicLister
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long
from tests.support.servers import running

LISTERS = 6
FENCED = 2
"""Times that the broker is fenced; a partition's producer is lost each time, of the others some."""


class Late(Kafka):
    """A broker whose heartbeats are so rare that the controller fences it between two of them."""

    def settings(self) -> dict[str, str]:
        """Return what stands in `server.properties`."""
        return super().settings() | {
            "broker.heartbeat.interval.ms": "8000",
            "broker.session.timeout.ms": "3000",
        }


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Late]:
    with running(Late(tmp_path / "kafka", guarded=True)) as server:
        yield server


@only_long
def test_clients_go_on_after_kafka_was_without_brokers(late: Late, eventually: Eventually) -> None:
    settings = KafkaSettings(config={"bootstrap.servers": late.address}, operation_timeout=1.0)

    def made() -> str:
        try:
            return make_topic(settings, 2)
        except KafkaException as error:  # it is fenced just now
            raise AssertionError(str(error)) from error

    topic = eventually(made, 60)
    group = GroupOffsets(settings, "g")
    fenced = FencedCommits(settings, "c", group)
    listers = [TopicLister(settings) for _ in range(LISTERS)]
    eventually(lambda: fenced.claim([(topic, 1)]).done, 60)
    calls: list[Callable[[], object]] = [
        *(lister.list_partitions for lister in listers),
        lambda: group.commit({(topic, 0): 1}),
        lambda: group.end_offsets([(topic, 0)]),
    ]

    def all_work() -> bool:
        failures = []
        for call in calls:
            try:
                call()
            except KafkaError as error:
                failures.append(str(error))
        assert not failures, failures
        return True

    def all_commit() -> bool:
        failed = fenced.commit({(topic, 1): 1}).failed
        assert not failed, failed
        return all_work()

    for _ in range(FENCED):
        while not late.healthy():
            with suppress(AssertionError):
                all_commit()
        # Kafka (4.3) may lose the marker of a transaction that commits at the moment in which its broker is fenced:
        # its offset is held for good then. So none commits just then.
        while late.healthy():
            with suppress(AssertionError):
                all_work()
    late.stop()
    with running(Kafka(late.data_dir, late.ports, guarded=True)):
        eventually(all_commit, 60)
        for each in (fenced, *listers, group):
            each.close()
