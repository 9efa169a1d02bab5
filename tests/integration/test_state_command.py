"""`muster state` on a real Kafka: it lists, shows and exports what is committed, and names what was asked wrongly."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from pyspark.sql.types import LongType, StringType, StructType

from muster.cli.main import main
from muster.consumer.state.handle import Handle, Overlay, key_bytes
from muster.consumer.state.position import FIRST, KEY, Place, Position
from muster.core.partitioner import partition_of
from muster.edges.kafka import librdkafka_logger
from muster.edges.state_changelog import ChangelogTopic, changelog_topic
from muster.settings.connections import KafkaSettings
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)

NUMBER, WORD = StructType().add("n", LongType()), StructType().add("word", StringType())
DAY = 86_400_000
PARTITIONS = 3
Give = Callable[..., Result]


class Nothing:
    """No committed state."""

    def get(self, _key: bytes) -> None:
        return None

    def get_many(self, _keys: object) -> dict[bytes, bytes]:
        return {}

    def scan(self, _prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


class Owner:
    """Writes a topic's state as its owner does: entries, then the position, in one transaction."""

    def __init__(self, kafka: KafkaSettings, cluster: str, topic: str) -> None:
        ChangelogTopic(kafka, cluster, [topic]).ensure()
        self.topic, self.of = changelog_topic(cluster, topic), topic
        settings = {**kafka.config, "transactional.id": self.topic}
        self.producer = Producer(settings, logger=librdkafka_logger())
        self.producer.init_transactions(30)

    def begin(self, partition: int, offset: int, *names: str, n: int = 1) -> None:
        """Begin a transaction in which each key has a count, a list, a map of two and a timer."""
        overlay = Overlay(Nothing(), FIRST)
        handle = Handle(overlay, {}, now=DAY)
        count = handle.getValueState("count", NUMBER, ttlDurationMs=1_000)
        words, by_word = handle.getListState("words", WORD), handle.getMapState("by_word", WORD, NUMBER)
        for name in names:
            handle.key = key_bytes((name,))
            count.update((n,))
            words.put([("a",), (None,)])
            by_word.updateValue(("x",), (1,))
            by_word.updateValue(("y",), (2,))
            handle.registerTimer(2 * DAY)
        position = Position({self.of: Place(offset, top=3 * DAY)}, n, time=DAY, variables=handle.variables())
        self.producer.begin_transaction()
        for key, value in [*zip(*overlay.written(), strict=True), (KEY, position.text())]:
            self.producer.produce(self.topic, value, key, partition=partition)
        self.producer.flush(30)

    def write(self, partition: int, offset: int, *names: str, n: int = 1) -> None:
        self.begin(partition, offset, *names, n=n)
        self.producer.commit_transaction(30)


@pytest.fixture
def topic(kafka: KafkaSettings) -> str:
    return make_topic(kafka, PARTITIONS)


@pytest.fixture
def give(kafka: KafkaSettings, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Give:
    """Gives the command `muster state`."""
    entry = {"consul_service": "c", "group_id": "g", "topics": ["t"], "consumers": {"handler": "json.dumps"}}
    other = entry | {"consul_service": "d", "group_id": "h"}
    path = tmp_path / "clusters.yaml"
    path.write_text(yaml.safe_dump({"clusters": {cluster: entry, f"{cluster}.more": other}}))
    monkeypatch.chdir(tmp_path)
    for name in ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        monkeypatch.delenv(name, raising=False)

    def run(typed: str, settings: KafkaSettings = kafka) -> Result:
        environment = {
            "MUSTER_CLUSTERS": str(path),
            "HOME": str(tmp_path),
            "AIRFLOW_CONN_MUSTER_KAFKA": json.dumps({"extra": dict(settings.config)}),
        }
        done = CliRunner().invoke(
            main, [*shlex.split(f"state {typed}"), "--cluster", cluster], env=environment
        )
        assert "Traceback" not in done.output, done.output
        return done

    return run


def test_listed_states_are_the_committed_ones(
    kafka: KafkaSettings, cluster: str, topic: str, give: Give
) -> None:
    """An open transaction neither counts nor keeps the command waiting, nor does an aborted one."""
    owner = Owner(kafka, cluster, topic)
    owner.write(0, 17, "a", "b")
    owner.write(0, 19, "a", n=2)
    Owner(kafka, f"{cluster}.more", topic).write(1, 5, "c")
    for end in ("abort", "leave open"):
        owner.begin(0, 99, "d", n=9)
        if end == "abort":
            owner.producer.abort_transaction(30)
        done = give("--json")
        [state] = json.loads(done.stdout)["states"]
        first, *others = state["partitions"]
        assert (state["topic"], first["keys"], first["offset"], first["commit"]) == (topic, 14, 19, 2)
        assert first["bytes"] > 0
        assert first["variables"] == {"count": "value", "words": "list", "by_word": "map"}
        assert first["largest_event_time"] == "1970-01-04T00:00:00.000+00:00"
        assert [(each["keys"], each["offset"], each["commit"]) for each in others] == [(0, None, 0)] * 2
    assert (
        f"state: cluster {cluster}, 1 topic(s) with state, 3 partition(s), 14 keys"
        in give(f"--topic {topic}").stdout
    )
    owner.producer.abort_transaction(30)


def test_key_is_shown_where_kafkas_partitioner_puts_it(
    kafka: KafkaSettings, cluster: str, topic: str, give: Give
) -> None:
    owner = Owner(kafka, cluster, topic)
    place = partition_of(b"anna", PARTITIONS)
    owner.write(place, 17, "anna", n=3)
    shown = json.loads(give(f"show {topic} anna --json").stdout)
    assert (shown["partition"], shown["offset"], shown["commit"]) == (place, 17, 3)
    expires = "1970-01-02T00:00:01.000+00:00"
    assert shown["entries"] == [
        {"key": ["anna"], "variable": "count", "value": {"n": 3}, "expires": expires},
        {"key": ["anna"], "variable": "words", "value": [{"word": "a"}, {"word": None}]},
        {"key": ["anna"], "variable": "by_word", "of": {"word": "x"}, "value": {"n": 1}},
        {"key": ["anna"], "variable": "by_word", "of": {"word": "y"}, "value": {"n": 2}},
        {"key": ["anna"], "timer": "1970-01-03T00:00:00.000+00:00"},
    ]
    lines = give(f"show {topic} '[\"anna\"]' --columns --partition {place}").stdout.splitlines()
    assert lines[1] == f'count: {{"n": 3}}, until {expires}'
    other = (place + 1) % PARTITIONS
    owner.write(other, 1, "ben")
    for typed, said in (
        (
            f"anna --partition {other}",
            f"Kafka's default partitioner puts that key into partition {place}: --partition",
        ),
        ("absent", "if the producer uses another one, name the partition with --partition"),
        (f"absent --partition {partition_of(b'absent', PARTITIONS)}", "has all its keys"),
    ):
        done = give(f"show {topic} {typed}")
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr


def test_partition_is_exported_to_json_and_parquet(
    kafka: KafkaSettings, cluster: str, topic: str, give: Give, tmp_path: Path
) -> None:
    Owner(kafka, cluster, topic).write(2, 17, "a", "b")
    done = json.loads(give(f"export {topic} 2 all.json --json").stdout)
    lines = [json.loads(line) for line in (tmp_path / "all.json").read_text().splitlines()]
    assert (done["file"], done["entries"], len(lines)) == ("all.json", 10, 10)
    assert {"key": ["b"], "variable": "by_word", "of": {"word": "y"}, "value": {"n": 2}} in lines
    for variable, row in (
        ("count", {"key": "a", "value": {"n": 1}}),
        ("words", {"key": "a", "value": [{"word": "a"}, {"word": None}]}),
        ("by_word", {"key": "a", "of": {"word": "x"}, "value": {"n": 1}}),
    ):
        assert give(f"export {topic} 2 {variable}.parquet --variable {variable}").exit_code == 0
        [found, *_] = pq.read_table(tmp_path / f"{variable}.parquet").to_pylist()
        found.pop("expires", None)
        assert found == row
    for typed, said in (
        (
            "2 all.parquet",
            "has 3 variables, and a Parquet file takes one: name it with --variable (by_word, count",
        ),
        ("2 x.json --variable none", "has no variable 'none'; it has: by_word, count, words"),
        ("7 x.json", "has the partitions 0-2, and not 7"),
        ("1 x.json", "has no state yet"),
        ("2 no/such/x.json", "no/such/x.json cannot be written: No such file or directory"),
    ):
        done = give(f"export {topic} {typed}")
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr


def test_topic_without_state_is_named_with_others(
    kafka: KafkaSettings, cluster: str, topic: str, give: Give
) -> None:
    assert "0 topic(s) with state" in give("").stdout
    done = give(f"show {topic} key")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"has no state in cluster {cluster!r}" in done.stderr
    assert "no topic has state yet" in done.stderr
    Owner(kafka, cluster, topic).write(0, 1, "a")
    done = give("export none 0 x.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "topic 'none' is not at" in done.stderr
    assert f"with state: {topic}" in done.stderr


def test_partitioner_is_that_of_kafkas_producers(kafka: KafkaSettings, topic: str) -> None:
    placed: dict[bytes, int] = {}
    producer = Producer({**kafka.config, "partitioner": "murmur2"}, logger=librdkafka_logger())
    for n in range(200):
        key = b"k" * (n % 7) + str(n).encode()
        producer.produce(
            topic,
            b"",
            key,
            on_delivery=lambda _, message: placed.update({message.key(): message.partition()}),
        )
    assert producer.flush(30) == 0
    assert placed == {key: partition_of(key, PARTITIONS) for key in placed}
    assert len(placed) == 200
