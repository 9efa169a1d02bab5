"""`muster import-offsets` on real servers: from ZooKeeper nodes as Kafka 0.8 wrote them, and from another group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from kazoo.client import KazooClient

from muster.cli.main import main
from muster.core.history import CommandEntry
from muster.core.positions import Committed, parse_stamp
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.zookeeper import TopicStore, make_client, start_client, stop_client
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.integration.obedient import registered
from tests.support.kafka_topics import make_topic, produce

RECORDS = 10

pytestmark = pytest.mark.timeout(300)


@dataclass
class Place:
    """A cluster that has one topic with two partitions, no consumers, and a group of its own."""

    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    kafka: KafkaSettings
    folder: Path
    topic: str
    raw: KazooClient
    name: str = field(default_factory=lambda: f"c{uuid4().hex[:10]}")

    def run(self, *args: str) -> Result:
        clusters = self.folder / "clusters.yaml"
        entry = {
            "consul_service": self.name,
            "group_id": self.name,
            "topics": [self.topic],
            "consumers": {"handler": "not.used"},
        }
        clusters.write_text(yaml.safe_dump({"clusters": {self.name: entry}}))
        kafka = {"conn_type": "generic", "extra": dict(self.kafka.config)}
        env = {
            "MUSTER_CLUSTERS": str(clusters),
            "AIRFLOW_CONN_MUSTER_ZOOKEEPER": json.dumps(
                {"conn_type": "generic", "host": self.zookeeper.hosts}
            ),
            "AIRFLOW_CONN_MUSTER_CONSUL": f"http://{self.consul.host}:{self.consul.port}",
            "AIRFLOW_CONN_MUSTER_KAFKA": json.dumps(kafka),
        }
        return CliRunner().invoke(main, ["import-offsets", "--cluster", self.name, *args], env=env)

    def preview(self, *args: str) -> dict[str, Any]:
        done = self.run(*args, "--preview", "--json")
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.output)
        return found

    def committed(self) -> dict[int, Committed | None]:
        group = GroupOffsets(self.kafka, self.name)
        try:
            found = group.positions([(self.topic, p) for p in range(2)])
        finally:
            group.close()
        return {partition: position for (_, partition), position in found.items()}

    def offsets(self) -> dict[int, int | None]:
        return {partition: at and at.offset for partition, at in self.committed().items()}

    def nodes(self, group: str, offsets: Mapping[int, bytes]) -> None:
        """As `ZkUtils.updatePersistentPath` of Kafka 0.8 writes them."""
        for partition, data in offsets.items():
            self.raw.create(f"/consumers/{group}/offsets/{self.topic}/{partition}", data, makepath=True)

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        consumer = Consumer({**self.kafka.config, "group.id": group}, logger=librdkafka_logger())
        items = [KafkaPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=items, asynchronous=False)
        consumer.close()


@pytest.fixture
def place(
    zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings, tmp_path: Path
) -> Iterator[Place]:
    topic = make_topic(kafka, 2)
    for partition in range(2):
        produce(kafka, topic, partition, RECORDS)
    raw = make_client(zookeeper)
    start_client(raw, zookeeper)
    yield Place(zookeeper, consul, kafka, tmp_path, topic, raw)
    stop_client(raw, 5.0)


def test_offsets_of_a_zookeeper_consumer_are_previewed_and_imported(place: Place) -> None:
    group = f"old-{uuid4().hex[:8]}"
    place.nodes(group, {0: b"4", 1: str(RECORDS).encode()})
    found = place.preview("--zookeeper-group", group)
    assert [(i["partition"], i["now"], i["imported"], i["to_read"]) for i in found["imports"]] == [
        (0, None, 4, 6),
        (1, None, RECORDS, 0),
    ]
    assert place.offsets() == {0: None, 1: None}, "a preview changes nothing"
    done = place.run("--zookeeper-group", group, "--reason", "we move in", "--by", "ann")
    assert done.exit_code == 0, done.output
    assert place.offsets() == {0: 4, 1: RECORDS}
    stamps = {parse_stamp(at.metadata).cluster for at in place.committed().values() if at}  # type: ignore[union-attr]
    assert stamps == {place.name}, "the cluster's consumers take them for their own"
    with TopicStore(place.zookeeper, place.name) as store:
        (record,) = store.history().records
    assert isinstance(record.entry, CommandEntry)
    assert (record.entry.what, record.entry.who, record.entry.why) == ("import-offsets", "ann", "we move in")
    assert record.entry.details["source"] == f"group {group} in ZooKeeper"


def test_zookeeper_consumer_that_runs_is_refused(place: Place) -> None:
    group = f"old-{uuid4().hex[:8]}"
    place.nodes(group, {0: b"4"})
    running = f"/consumers/{group}/ids/{group}_host-1"
    place.raw.create(running, b"{}", makepath=True, ephemeral=True)
    done = place.run("--zookeeper-group", group, "--reason", "we move in")
    assert done.exit_code == 2
    assert f"consumers of group '{group}' run: {group}_host-1" in done.output
    assert place.offsets() == {0: None, 1: None}


def test_malformed_node_is_named_and_nothing_is_imported(place: Place) -> None:
    group = f"old-{uuid4().hex[:8]}"
    place.nodes(group, {0: b"4", 1: b'{"offset": 4}'})
    done = place.run("--zookeeper-group", group, "--reason", "we move in")
    assert done.exit_code == 2
    assert f"/consumers/{group}/offsets/{place.topic}/1: expected an offset as decimal text" in done.output
    assert place.offsets() == {0: None, 1: None}


def test_offsets_of_another_group_are_imported_over_those_that_are_there(place: Place) -> None:
    place.commit(place.name, {0: 8, 1: 1})
    place.commit("elsewhere", {0: 3, 1: 6})
    found = place.preview("--group", "elsewhere")
    assert [(i["read_again"], i["passed_over"]) for i in found["imports"]] == [(5, 0), (0, 5)]
    assert place.run("--group", "elsewhere", "--reason", "we move in").exit_code == 0
    assert place.offsets() == {0: 3, 1: 6}


def test_group_with_a_member_is_refused(place: Place, eventually: Eventually) -> None:
    group = f"old-{uuid4().hex[:8]}"
    place.commit(group, {0: 3})
    config = {**place.kafka.config, "group.id": group, "client.id": "old-consumer"}
    member = Consumer(config, logger=librdkafka_logger())
    try:
        member.subscribe([place.topic])
        eventually(lambda: member.poll(0.2) or member.assignment(), 60, "a member")
        done = place.run("--group", group, "--reason", "we move in")
        assert done.exit_code == 2
        assert f"consumers of group '{group}' run: old-consumer" in done.output
        assert place.offsets() == {0: None, 1: None}
    finally:
        member.close()
    assert place.run("--group", group, "--reason", "we move in").exit_code == 0


def test_import_is_refused_while_consumers_of_the_cluster_are_registered(place: Place) -> None:
    place.commit("elsewhere-too", {0: 3})
    discovery = ConsulCluster(place.consul, place.name, place.name)
    with TopicStore(place.zookeeper, place.name) as store, registered(store, discovery, {"a": {}}):
        done = place.run("--group", "elsewhere-too", "--reason", "we move in")
    assert done.exit_code == 2
    assert f"consumers of cluster '{place.name}' run: a" in done.output
    assert place.offsets() == {0: None, 1: None}


def test_consumer_that_lives_unregistered_commits_nothing_over_what_is_imported(
    place: Place, eventually: Eventually
) -> None:
    place.commit("elsewhere", {0: 3})
    group = GroupOffsets(place.kafka, place.name)
    zombie = FencedCommits(place.kafka, place.name, group)
    try:
        eventually(lambda: zombie.claim([(place.topic, 0)]).done, 60, "claimed")
        assert place.run("--group", "elsewhere", "--reason", "we move in").exit_code == 0
        eventually(lambda: zombie.commit({(place.topic, 0): 9}).refused, 60, "refused")
        assert place.offsets()[0] == 3
    finally:
        zombie.close()
        group.close()


def test_question_without_one_source_is_refused(place: Place) -> None:
    for wrong in ([], ["--group", "a", "--zookeeper-group", "b"]):
        done = place.run(*wrong, "--preview")
        assert done.exit_code == 2
        assert "give one of --zookeeper-group, --group and --checkpoint" in done.output
    assert "is the group of cluster" in place.run("--group", place.name, "--preview").output
    assert "has no /consumers/none/offsets" in place.run("--zookeeper-group", "none", "--preview").output
    assert "no reason was given" in _without_reason(place)


def _without_reason(place: Place) -> str:
    place.commit("elsewhere", {0: 3})
    return place.run("--group", "elsewhere").output
