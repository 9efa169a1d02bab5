"""Lag in time on a real Kafka and ZooKeeper without any consumer; retention deletes nothing sooner than said.

The clock is the test's own; records have its times. The broker looks for what it may delete several times a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from devstack.kafka import Kafka
from muster.cli.main import main
from muster.cluster.cache import StateCache
from muster.core.model import TopicPartition
from muster.core.offsets import Retention, TopicOffsets
from muster.core.progress import LOOK_EVERY, look
from muster.core.time_lag import TimeLag, time_lag
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.kafka_offsets import OffsetReader
from muster.edges.zookeeper import TopicStore
from muster.monitoring.exporter import Exporter
from muster.settings.clusters import load_clusters
from muster.settings.connections import KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.servers import running

pytestmark = pytest.mark.timeout(300)

MEGABYTE = 1 << 20
"""The smallest segment that Kafka 4 makes."""


class DeletesAtOnce(Kafka):
    def settings(self) -> dict[str, str]:
        return {
            **super().settings(),
            "log.retention.check.interval.ms": "200",
            "log.initial.task.delay.ms": "100",
            "log.cleaner.backoff.ms": "100",
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    """The broker that deletes at once, in place of the one that all tests share."""
    with running(DeletesAtOnce(tmp_path_factory.mktemp("deletes") / "kafka", guarded=True)) as server:
        yield KafkaSettings(config={"bootstrap.servers": server.address})


class World:
    """A topic with one partition, a group, and looks that are kept in ZooKeeper."""

    def __init__(self, kafka: KafkaSettings, store: TopicStore, **config: object) -> None:
        self.now = 1_700_000_000.0
        self.topic, self.group_id = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
        self.tp: TopicPartition = (self.topic, 0)
        admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        admin.create_topics([NewTopic(self.topic, 1, 1, config=settings)])[self.topic].result(60)
        self.producer = Producer(dict(kafka.config), logger=librdkafka_logger())
        self.group = GroupOffsets(kafka, self.group_id)
        self.kafka, self.store = kafka, store
        self.reader = OffsetReader(kafka, self.group_id, lambda: self.now)

    def reopen(self) -> None:
        """Have a reader that knows nothing yet."""
        self.reader.close()
        self.reader = OffsetReader(self.kafka, self.group_id, lambda: self.now)

    def produce(self, *moments: float, value: bytes = b"a record", key: bytes | None = None) -> None:
        for moment in moments:
            self.producer.produce(self.topic, value, key, partition=0, timestamp=round(moment * 1000))
        assert self.producer.flush(30) == 0

    def read(self) -> TopicOffsets:
        return self.reader.read({self.topic: frozenset({0})}, {})

    def look(self) -> None:
        before = self.store.look()
        self.store.note_look(before, look(before, [self.tp], self.read(), self.now))

    def behind(self) -> TimeLag:
        return time_lag(self.store.look(), self.read(), self.tp)

    def begins(self) -> int:
        return self.group.beginning_offsets([self.tp])[self.tp]

    def close(self) -> None:
        self.reader.close()
        self.group.close()


@pytest.fixture
def store(zookeeper: ZooKeeperSettings) -> Iterator[TopicStore]:
    with TopicStore(zookeeper, f"c{uuid4().hex[:8]}") as opened:
        yield opened


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("before", "committed"),
    [(7_200, 8), (0, 1)],
    ids=["backlog of two hours", "idle before, and read at once"],
)
def test_lag_in_time_is_near_the_truth(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World], before: int, committed: int
) -> None:
    """`before` records wait, one a second; then one arrives a second, and so many are committed."""
    worlds.append(world := World(kafka, store, retention_ms=-1))
    began = world.now
    world.produce(*(began - before + n for n in range(before)))
    assert world.behind().age == pytest.approx(before, rel=0.05, abs=1), "without a look and a commit"
    for minute in range(3):
        world.look()
        world.produce(*(began + n for n in range(60 * minute, 60 * (minute + 1))))
        world.now += LOOK_EVERY
        done = min(committed * 60 * (minute + 1), before + 60 * (minute + 1))
        world.group.commit({world.tp: done})
        found = world.behind()
        assert found.age == pytest.approx((before - done) + 60 * (minute + 1), rel=0.05, abs=1)
        left = before + 60 * (minute + 1) - done
        assert found.catch_up == pytest.approx(left / max(1, committed - 1), rel=0.05, abs=1)


def test_burst_is_caught_up_with_at_the_present_rate(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World]
) -> None:
    worlds.append(world := World(kafka, store, retention_ms=-1))
    world.look()
    assert world.behind() == TimeLag(0.0, 0.0)
    world.now += 50
    began = world.now
    world.produce(*[began] * 3_000)
    for after in (10, 70, 130):
        world.now = began + after
        world.group.commit({world.tp: 20 * after})
        world.look()
    for after in (141, 149):
        world.now = began + after
        world.group.commit({world.tp: 20 * after})
        found = world.behind()
        assert found.age == pytest.approx(after, rel=0.05, abs=1)
        assert found.catch_up == pytest.approx(150 - after, rel=0.05, abs=1)
    world.group.commit({world.tp: 3_000})
    assert world.behind() == TimeLag(0.0, 0.0)


def test_markers_at_the_end_are_no_lag(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World], eventually: Eventually
) -> None:
    worlds.append(world := World(kafka, store))
    transactional = Producer(dict(kafka.config) | {"transactional.id": world.group_id})
    transactional.init_transactions(20)
    transactional.begin_transaction()
    transactional.produce(world.topic, b"a record", partition=0)
    transactional.commit_transaction(20)
    world.group.commit({world.tp: 1})
    eventually(lambda: world.read().ends[world.tp] == 2, 30, what="the marker")
    found = world.read()
    assert found.lag(world.tp) == 0
    assert world.behind() == TimeLag(0.0, 0.0)


def test_compacted_records_are_not_the_oldest(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World], eventually: Eventually
) -> None:
    compacted = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.001}
    worlds.append(world := World(kafka, store, **compacted))
    world.produce(*(world.now - 1_000 + n for n in range(10)), key=b"a")

    moments = count(world.now - 400)

    def later() -> bool:
        world.produce(next(moments), key=b"a")  # which begins a segment: only those before are compacted
        world.reopen()
        age = world.behind().age
        return age is not None and age < 500

    eventually(later, 60, what="compaction")
    assert world.behind().kept is None, "compaction deletes nothing by age"


def test_retention_by_time_deletes_nothing_sooner_than_said(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World], eventually: Eventually
) -> None:
    worlds.append(world := World(kafka, store, retention_ms=60_000))
    world.now = time.time()
    world.produce(world.now - 54, world.now - 53)
    kept = world.behind().kept
    assert kept == pytest.approx(6.0, abs=0.01)
    assert world.behind().near_deletion
    until = world.now + kept
    eventually(lambda: world.begins() > 0, 60, what="deletion")
    assert time.time() >= until


def test_retention_by_size_deletes_nothing_sooner_than_said(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World], eventually: Eventually
) -> None:
    """Ten records of 10 kB a second; 200 are committed, and nothing more ever."""
    small = {"retention_bytes": 10 * MEGABYTE, "segment_bytes": MEGABYTE}
    worlds.append(world := World(kafka, store, retention_ms=-1, **small))
    began, said, near = world.now, [], False
    while world.begins() <= 200:
        assert world.now < began + 300, "nothing is deleted"
        world.produce(*(world.now + n / 10 for n in range(50)), value=bytes(10_000))
        world.now += 5
        world.group.commit({world.tp: 200})
        world.look()
        found = world.behind()
        if world.begins() <= 200:
            near = found.near_deletion
        if found.kept is not None:
            said.append(world.now + found.kept)
    assert max(said) <= world.now
    assert near, "nobody was warned before"
    assert said[0] > began + 110, "it deletes after 126 s at the earliest"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"retention.ms": 5_000, "segment.bytes": MEGABYTE}, Retention(5.0, None, MEGABYTE)),
        ({"retention.ms": -1, "retention.bytes": 7}, Retention(None, 7)),
        ({"cleanup.policy": "compact", "retention.ms": 5_000}, Retention()),
        ({"cleanup.policy": "compact,delete", "retention.ms": 5_000}, Retention(5.0)),
    ],
    ids=str,
)
def test_retention_is_read_from_the_topic(
    kafka: KafkaSettings, store: TopicStore, worlds: list[World], config: dict[str, Any], expected: Retention
) -> None:
    worlds.append(world := World(kafka, store, **config))
    assert world.group.topics.retention({world.topic, "missing"}) == {world.topic: expected}


@pytest.mark.usefixtures("connections")
def test_topic_is_held_to_its_max_lag_without_consumers(
    kafka: KafkaSettings,
    zookeeper: ZooKeeperSettings,
    worlds: list[World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"c{uuid4().hex[:8]}"
    with TopicStore(zookeeper, name) as store:
        worlds.append(world := World(kafka, store))
        store.create_topic(world.topic, kafka.bootstrap_servers, world.group_id)
        store.set_partitions(world.topic, frozenset({0}))
        world.produce(time.time() - 400)
        settings = {
            "consul_service": name,
            "group_id": world.group_id,
            "topics": [world.topic],
            "max_lag": "5m",
            "consumers": {"handler": "a.b"},
        }
        (tmp_path / "clusters.yaml").write_text(yaml.safe_dump({"clusters": {name: settings}}))
        monkeypatch.setenv("MUSTER_CLUSTERS", str(tmp_path / "clusters.yaml"))
        done = CliRunner().invoke(main, ["status", "--check", "--json"])
        assert done.exit_code == 5, done.output
        found = json.loads(done.stdout)
        [topic] = found["topics"]
        assert (topic["lag"], topic["max_lag"], topic["age"]) == (1, 300.0, pytest.approx(400, abs=20))
        [late] = found["behind"]
        assert f"Topic {world.topic} is 6 min 4" in late and "max_lag is 5 min: partition(s) 0" in late
        text = Exporter(StateCache(), settings=load_clusters).text((), partitions=True, within=30).decode()
        scraped = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert scraped["muster_topic_lag_seconds"] == pytest.approx(400, abs=30)
        assert scraped["kafka_consumergroup_group_lag_seconds"] == scraped["muster_topic_lag_seconds"]
        assert scraped["muster_topic_max_lag_seconds"] == 300
        assert scraped["muster_topic_kept_seconds"] == pytest.approx(7 * 86_400 - 400, abs=30)
