"""`import-offsets` on real servers: from ZooKeeper nodes as Kafka 0.8 wrote them, another group, and a checkpoint."""

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
from fastapi.testclient import TestClient
from httpx import Response
from kazoo.client import KazooClient

from muster.cli.main import main
from muster.core.history import CommandEntry
from muster.core.positions import Committed, format_stamp, parse_stamp
from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.zookeeper import TopicStore, make_client, start_client, stop_client
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.obedient_consumers import registered
from tests.support.simulated_dashboard import OURS, by_header

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

    def environment(self, **settings: Any) -> dict[str, str]:
        """Where the command finds the cluster, with more `settings` of it, and its servers."""
        clusters = self.folder / "clusters.yaml"
        entry = {
            "consul_service": self.name,
            "group_id": self.name,
            "topics": [self.topic],
            "consumers": {"handler": "not.used"},
            **settings,
        }
        clusters.write_text(yaml.safe_dump({"clusters": {self.name: entry}}))
        kafka = {"conn_type": "generic", "extra": dict(self.kafka.config)}
        return {
            "MUSTER_CLUSTERS": str(clusters),
            "AIRFLOW_CONN_MUSTER_ZOOKEEPER": json.dumps(
                {"conn_type": "generic", "host": self.zookeeper.hosts}
            ),
            "AIRFLOW_CONN_MUSTER_CONSUL": f"http://{self.consul.host}:{self.consul.port}",
            "AIRFLOW_CONN_MUSTER_KAFKA": json.dumps(kafka),
        }

    def run(self, *args: str) -> Result:
        typed = ["import-offsets", "--cluster", self.name, *args]
        return CliRunner().invoke(main, typed, env=self.environment())

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

    def history(self) -> list[CommandEntry]:
        with TopicStore(self.zookeeper, self.name) as store:
            return [
                record.entry for record in store.history().records if isinstance(record.entry, CommandEntry)
            ]

    def checkpoint(self, folder: Path, offsets: Mapping[int, int]) -> Path:
        """As a Spark query leaves it that has finished one batch."""
        (folder / "commits").mkdir(parents=True)
        (folder / "offsets").mkdir()
        (folder / "commits" / "0").write_text("v1\n{}")
        of_kafka = json.dumps({self.topic: {str(partition): offset for partition, offset in offsets.items()}})
        (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{of_kafka}")
        return folder

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
    [entry] = place.history()
    assert (entry.what, entry.who, entry.why) == ("import-offsets", "ann", "we move in")
    assert entry.details["source"] == f"group {group} in ZooKeeper"


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


def test_partition_whose_state_has_begun_is_left_out(place: Place) -> None:
    group = GroupOffsets(place.kafka, place.name)
    group.commit({(place.topic, 0): 8}, {(place.topic, 0): format_stamp(place.name, "", seq=3)})
    place.commit("with-state", {0: 3, 1: 6})
    found = place.preview("--group", "with-state")
    (left,) = found["left_out"]
    assert (left["partition"], found["without"]) == (0, [])
    assert "its state by key has begun, and only an owner moves it: start the consumers" in left["why"]
    assert place.run("--group", "with-state", "--reason", "we move in").exit_code == 0
    assert place.offsets() == {0: 8, 1: 6}
    group.close()


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
        assert "give one source: a group, a group in ZooKeeper, or a checkpoint" in done.output
    assert "is the group of cluster" in place.run("--group", place.name, "--preview").output
    assert "has no /consumers/none/offsets" in place.run("--zookeeper-group", "none", "--preview").output
    place.commit("elsewhere", {0: 3})
    assert "Missing option '--reason'" in place.run("--group", "elsewhere").output
    assert "no reason was given" in place.run("--group", "elsewhere", "--reason", "").output
    assert place.offsets() == {0: None, 1: None}


def test_preview_in_words_has_a_line_for_each_partition_and_totals(place: Place) -> None:
    place.commit(place.name, {0: 8})
    checkpoint = place.checkpoint(place.folder / "query", {0: 3, 7: 1})
    shown = place.run("--checkpoint", str(checkpoint), "--preview")
    assert shown.output.splitlines() == [
        f"topic '{place.topic}', partition 0: 8 -> 3, 5 record(s) come again, 0 are left out, 0 are lost, "
        "7 are to be read",
        f"left out: topic '{place.topic}', partition 7: the cluster does not read it, or Kafka does not have it",
        f"topic '{place.topic}', partition 1: stays as it is, nothing was found",
        "1 partition(s) are imported, 1 left out, 1 stay as they are",
        "together 5 record(s) come again, 0 are left out, 0 are lost, 7 are to be read, by offsets and what is "
        "committed now",
    ]
    assert place.offsets() == {0: 8, 1: None}


class Page:
    """The page's API with the real servers, used by ann."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        for name, value in place.environment(**settings).items():
            monkeypatch.setenv(name, value)
        self.place, self.answers = place, Answers()
        access = by_header({"ann": ({place.name}, {place.name})})
        self.http = TestClient(create_app(self.answers, access))

    def post(self, path: str, **body: str) -> Response:
        url = f"/api/clusters/{self.place.name}/levers/import-offsets{path}"
        return self.http.post(url, json={"reason": "we move in", **body}, headers={"X-User": "ann", **OURS})

    def refused(self, **body: str) -> str:
        """Why both the preview and the command are refused."""
        found = [self.post(path, **body) for path in ("/foresee", "")]
        assert [answer.status_code for answer in found] == [409, 409], found[0].text
        preview, done = (str(answer.json()["detail"]) for answer in found)
        assert preview == done
        return preview


@pytest.fixture
def page(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    allowed = {"checkpoints": [str(place.folder / "allowed")]}
    made = Page(place, monkeypatch, allowed_imports=allowed)
    yield made
    made.answers.shared.close()


def test_page_previews_an_import_refuses_it_while_consumers_run_and_records_it(
    page: Page, eventually: Eventually
) -> None:
    place = page.place
    place.commit("elsewhere", {0: 3, 1: 6})
    discovery = ConsulCluster(place.consul, place.name, place.name)

    def preview(last: str) -> list[str]:
        """The preview, once its last line begins so: Consul's catalog follows its agent a moment later."""
        answer = page.post("/foresee", group="elsewhere")
        assert answer.status_code == 200, answer.text
        lines: list[str] = answer.json()["lines"]
        assert lines[-1].startswith(last), lines
        return lines

    together = "together 0 record(s) come again, 0 are left out, 0 are lost, 11 are to be read"
    refused = f"refused at present: consumers of cluster '{place.name}' run: a;"
    with TopicStore(place.zookeeper, place.name) as store, registered(store, discovery, {"a": {}}):
        assert eventually(lambda: preview(refused))[-2].startswith(together)
        answer = page.post("", group="elsewhere")
        assert (answer.status_code, place.offsets()) == (409, {0: None, 1: None})
        assert f"consumers of cluster '{place.name}' run: a" in answer.json()["detail"]
    assert "2 partition(s) are imported" in eventually(lambda: preview(together))[-2]
    assert place.offsets() == {0: None, 1: None}
    answer = page.post("", group="elsewhere")
    assert (answer.status_code, place.offsets()) == (200, {0: 3, 1: 6}), answer.text
    assert answer.json()["values"]["offsets"] == {place.topic: {"0": 3, "1": 6}}
    [entry] = place.history()
    assert (entry.what, entry.who, entry.via) == ("import-offsets", "ann", "dashboard")


def test_page_reads_checkpoints_only_in_folders_that_the_settings_allow(page: Page) -> None:
    place = page.place
    outside = place.checkpoint(place.folder / "outside", {0: 3})
    inside = place.checkpoint(place.folder / "allowed" / "query", {0: 5})
    assert "is not in a folder that 'allowed_imports.checkpoints'" in page.refused(checkpoint=str(outside))
    assert place.offsets() == {0: None, 1: None}
    answer = page.post("", checkpoint=str(inside))
    assert (answer.status_code, place.offsets()) == (200, {0: 5, 1: None}), answer.text


def test_page_uses_only_connections_that_the_settings_allow(
    place: Place, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"old-{uuid4().hex[:8]}"
    place.nodes(group, {0: b"4"})
    other = json.dumps({"conn_type": "generic", "host": place.zookeeper.hosts})
    monkeypatch.setenv("AIRFLOW_CONN_OLD_ZOOKEEPER", other)
    wanted = {"zookeeper_group": group, "zookeeper": "old_zookeeper"}
    assert "connection 'old_zookeeper' is not one of those that 'allowed_imports" in page.refused(**wanted)
    allowed = Page(place, monkeypatch, allowed_imports={"zookeeper": ["old_zookeeper"]})
    try:
        answer = allowed.post("", **wanted)
    finally:
        allowed.answers.shared.close()
    assert (answer.status_code, place.offsets()) == (200, {0: 4, 1: None}), answer.text
    assert place.history()[0].details["source"] == f"group {group} in ZooKeeper (connection old_zookeeper)"


def test_page_says_that_kafka_is_out_of_reach(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 1}
    variable = json.dumps({"conn_type": "kafka", "extra": nowhere})
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_KAFKA", variable)
    answer = page.post("/foresee", group="elsewhere")
    assert answer.status_code == 503
    assert "Kafka at 127.0.0.1:9" in answer.json()["detail"]
