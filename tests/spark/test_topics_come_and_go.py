"""A topic is unsubscribed and subscribed again while a real job reads it and another one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from muster.commands.actions import topics
from muster.commands.command import Actor
from muster.commands.target import Target
from muster.coordinator.coordinator import Coordinator
from muster.coordinator.opening import open_coordinator
from muster.core.model import State
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.spark.job_topic import Topic
from tests.support.only_long import only_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ANN = Actor("ann", "cost", 1_700_000_000.0)


def target_of(coordinator: Coordinator) -> Target:
    return Target(coordinator.cluster, coordinator, lambda: nullcontext(coordinator.store))  # type: ignore[arg-type]


@pytest.fixture
def name() -> str:
    return f"topics-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def stays(kafka: KafkaSettings, name: str) -> Topic:
    return Topic(kafka, name)


@pytest.fixture
def goes(kafka: KafkaSettings, name: str) -> Topic:
    return Topic(kafka, name)


@pytest.fixture
def coordinator(
    name: str,
    stays: Topic,
    goes: Topic,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
) -> Iterator[Coordinator]:
    cluster = ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": name,
            "group_id": name,
            "topics": {"names": [stays.name], "patterns": [goes.name[:-1] + "."]},
            "consumers": {"handler": "not.used"},
        }
    )
    with open_coordinator(cluster, zookeeper, consul, kafka) as opened:
        yield opened


@pytest.fixture
def job(
    zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings, name: str, tmp_path: Path
) -> Iterator[ConsumerJob]:
    made = ConsumerJob(Servers(zookeeper, consul, kafka), name, f"{name}-1", tmp_path, service=name)
    made.start()
    yield made
    made.end()


@only_long
def test_an_unsubscribed_topic_is_closed_and_committed_in_order_while_the_others_do_not_pause(
    job: ConsumerJob, coordinator: Coordinator, stays: Topic, goes: Topic, eventually: Eventually
) -> None:
    eventually(job.registered, 120, "registered")
    for topic in (stays, goes):
        topic.produce(100)
    assert set(coordinator.fetch_partitions().new_topics) == {stays.name, goes.name}
    assert coordinator.advance(90).stable
    for topic in (stays, goes):
        eventually(
            lambda topic=topic: topic.committed() == topic.written, 90, "read from the earliest record"
        )

    goes.produce(3000)
    stays.produce(3000)
    topics.unsubscribe(target_of(coordinator), ANN, goes.name, False)
    seen: list[tuple[list[int], list[int], list[int]]] = []
    epoch = job.topic(stays.name)["epoch"]
    closed = threading.Event()

    def look() -> None:
        while not seen or not closed.wait(0.05):
            seen.append(job.lists(stays.name))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        report = coordinator.advance(90)
    finally:
        closed.set()
        looking.join()
    assert [change.after for change in report.changes][-1] is State.INITIAL, "its nodes went last"
    at_removal = goes.committed()
    assert {change.topic for change in report.changes} == {goes.name}
    assert set(coordinator.store.snapshots()) == {stays.name}
    assert all(lists == ([0, 1, 2], [], []) for lists in seen), "the other topic ran all the time"
    assert job.topic(stays.name)["epoch"] == epoch
    read = job.offsets_read()
    for partition, committed in at_removal.items():
        there = sum(key[:2] == (goes.name, partition) for key in read)
        assert there == committed, "what was committed when it was reported closed is what was written"
    eventually(lambda: stays.committed() == stays.written, 90, "the other topic")
    eventually(lambda: goes.name not in job.status()["topics"], 60, "dropped without a restart")
    goes.produce(50)
    assert coordinator.fetch_partitions().new_topics == []
    assert goes.committed() == at_removal

    topics.subscribe(target_of(coordinator), ANN, goes.name, False)
    assert coordinator.fetch_partitions().new_topics == [goes.name]
    assert coordinator.advance(90).stable
    eventually(lambda: goes.committed() == goes.written, 90, "on from the committed offsets")
    assert job.offsets_read() == goes.expected(0, 1, 2) | stays.expected(0, 1, 2)
    assert job.status()["errors"] == []
    assert job.registered(), "it is the same process"
