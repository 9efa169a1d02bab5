"""The examples of docs/state.md as they stand there, with a real Spark and a real Kafka."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame

from muster.consumer.handler import load_handlers
from muster.core.state_topics import StateTopics
from muster.edges.kafka import GroupOffsets
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.support.delta_rows import delta_rows
from tests.support.kafka_topics import make_topic
from tests.support.recipes import DOCS, Recipe
from tests.support.state_query import Make, begin_at_the_first_record, committed_records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def topic(kafka: KafkaSettings, group: GroupOffsets) -> str:
    name = make_topic(kafka, 2)
    begin_at_the_first_record(group, name, 2)
    return name


def module(heading: str, kafka: KafkaSettings, output: str) -> tuple[dict[str, Any], str]:
    """Run the code of a section; its output topic gets a name of its own."""
    to = make_topic(kafka, 1)
    code = Recipe("state.md", heading).code.replace(f'topic="{output}"', f'topic="{to}"')
    found: dict[str, Any] = {}
    exec(code, found)  # noqa: S102
    return found, to


def send(kafka: KafkaSettings, topic: str, records: list[tuple[str, str]]) -> None:
    producer = Producer(dict(kafka.config))
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def test_count_recipe_writes_each_count_once(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    code, to = module("Count by key", kafka, "counts")
    with state_query(tmp_path, code["process"], most=20) as query:
        query.hold(topic, range(2))
        send(kafka, topic, [(str(n % 5), "x") for n in range(60)])
        eventually(
            lambda: dict(committed_records(kafka, to)) == {str(n): "12" for n in range(5)}, 180, "counted"
        )
    assert max(Counter(committed_records(kafka, to)).values()) == 1


def test_counts_reach_delta_lake_once_though_handlers_fail(
    state_query: Make,
    kafka: KafkaSettings,
    group: GroupOffsets,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The settings of the page, with the code of its first example."""
    code, to = module("Count by key", kafka, "counts")
    begin_at_the_first_record(group, to, 1)
    monkeypatch.setitem(sys.modules, "my_project", ModuleType("my_project"))
    monkeypatch.setitem(sys.modules, "my_project.counts", counts := ModuleType("my_project.counts"))
    vars(counts).update(code)
    register_pickle_by_value(counts)  # Spark's Python processes cannot import it
    table = tmp_path / "counts"
    names = {"/data/counts": str(table), "bookings": topic, "counts]": f"{to}]", "counts: {": f"{to}: {{"}
    settings = settings_of("Counts in Delta Lake", tmp_path, names)
    assert settings.topics.names == (topic, to)
    loaded = load_handlers(settings.consumers)  # type: ignore[arg-type]  # has what is looked at
    calls = Counter[str]()

    def fails(name: str, handler: Any) -> Any:
        def call(frame: DataFrame, batch: Batch) -> None:
            handler(frame, batch)
            calls[name] += 1
            if calls[name] % 3 == 2:
                raise OSError(f"{name} lost the connection")

        return call

    handlers = replace(loaded, all=tuple(map(fails, ("sink", "state"), loaded.all)))
    topics = StateTopics(settings.consumers.state)
    with state_query(tmp_path / "stores", handlers, most=20, topics=topics) as query:
        query.hold(topic, range(2))
        query.hold(to, range(1))
        send(kafka, topic, [(str(n % 5), "x") for n in range(100)])
        eventually(lambda: newest(table) == {str(n): "20" for n in range(5)}, 240, "counted")
    assert min(calls.values()) > 2
    rows = delta_rows(table, "key", "value")
    assert sorted(rows) == sorted((k.encode(), v.encode()) for k, v in committed_records(kafka, to))  # type: ignore[union-attr]
    assert max(Counter(rows).values()) == 1


def settings_of(heading: str, folder: Path, names: dict[str, str]) -> ClusterSettings:
    """The settings of a section of the page, with other names in them."""
    text = (DOCS / "state.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    block = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    for name, new in names.items():
        block = block.replace(name, new)
    path = folder / "clusters.yaml"
    path.write_text("clusters:\n" + indent(block, "  "), encoding="utf-8")
    return load_clusters(path)["flights"]


def newest(table: Path) -> dict[str, str]:
    """The last value of each key in a table of Kafka's records."""
    rows: Any = delta_rows(table, "partition", "offset", "key", "value")
    return {key.decode(): value.decode() for _, _, key, value in rows}


def test_deduplication_recipe_passes_each_id_once(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    code, _ = module("Drop duplicates", kafka, "")
    path = tmp_path / "data"

    def written() -> list[str]:
        lines = [line for file in path.glob("*.json") for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["id"] for line in lines)

    handler = code["Deduplicate"](str(path))
    with state_query(tmp_path / "state", handler, most=7) as query:
        query.hold(topic, range(2))
        send(kafka, topic, [(str(n % 6), "{}") for n in range(30)])
        eventually(lambda: written() == [str(n) for n in range(6)], 180, "the first ones")
        send(kafka, topic, [("6", "{}"), ("1", "{}"), ("7", "{}")])
        eventually(lambda: written() == [str(n) for n in range(8)], 180, "the new ones")


def test_session_recipe_ends_sessions_without_further_records(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    code, to = module("Sessions", kafka, "sessions")
    with state_query(tmp_path, code["process"]) as query:
        query.hold(topic, range(2))
        send(kafka, topic, [("a", "x"), ("b", "x"), ("a", "x")])
        eventually(lambda: sorted(committed_records(kafka, to)) == [("a", "2"), ("b", "1")], 180, "ended")
        assert query.errors() == {}


def test_latest_value_recipe_writes_changes_only(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    code, to = module("Latest value by key", kafka, "prices")
    with state_query(tmp_path, code["process"]) as query:
        query.hold(topic, range(2))
        for sent, expected in (
            ([("a", "1"), ("b", "5"), ("a", "2")], [("a", "2"), ("b", "5")]),
            ([("a", "2"), ("b", "6")], [("a", "2"), ("b", "5"), ("b", "6")]),
        ):
            send(kafka, topic, sent)
            eventually(lambda: sorted(committed_records(kafka, to)) == expected, 180, "written")  # noqa: B023


class Noted:
    """A handler that keeps what its call raises."""

    def __init__(self, call: Any) -> None:
        self.call, self.said = call, ""

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        try:
            self.call(frame, batch)
        except Exception as error:
            self.said = str(error)
            raise


OUT = "key string, value string"
PLACED = ("topic", "partition", "offset", "CAST(key AS STRING) AS key")
REFUSED = {
    "a shuffled frame": (
        lambda f, b, p: b.state.transformWithState(f.selectExpr(*PLACED).repartition(2), ["key"], p, OUT),
        "the frame was shuffled",
    ),
    "another group": (
        lambda f, b, p: b.state.transformWithState(f.selectExpr(*PLACED, "'x' AS other"), ["other"], p, OUT),
        "say that these columns follow from that key",
    ),
    "no place": (
        lambda f, b, p: b.state.transformWithState(f.selectExpr("key"), ["key"], p, OUT),
        r"lacks the columns \['topic', 'partition', 'offset'\]",
    ),
    "no key column": (
        lambda f, b, p: b.state.transformWithState(f.select("topic", "partition", "offset"), ["key"], p, OUT),
        r"lacks the columns \['key'\]",
    ),
    "no processor": (
        lambda f, b, p: b.state.transformWithState(f.selectExpr(*PLACED), ["key"], object(), OUT),
        "a object is no StatefulProcessor",
    ),
    "another output for a topic": (
        lambda f, b, p: b.state.transformWithState(
            f.selectExpr(*PLACED), ["key"], p, "key string, n long", topic="t"
        ),
        "the output is Kafka's records",
    ),
    "initial state": (
        lambda f, b, p: b.state.transformWithState(f.selectExpr(*PLACED), ["key"], p, OUT, initialState=f),
        r"a DataFrame; give a grouped frame: rows.groupBy\('key'\)",
    ),
    "initial state by another key": (
        lambda f, b, p: b.state.transformWithState(
            f.selectExpr(*PLACED), ["key"], p, OUT, initialState=f.groupBy("topic")
        ),
        r"grouped by \['topic'\], and the batch by \['key'\]",
    ),
    "a time mode": (
        lambda f, b, p: b.state.transformWithState(
            f.selectExpr(*PLACED), ["key"], p, OUT, timeMode="EventTime", eventTimeColumnName="key"
        ),
        "no timestamp column",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_use_that_cannot_work_is_refused_by_name(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
    what: str,
) -> None:
    call, said = REFUSED[what]
    code, _ = module("Count by key", kafka, "counts")
    handler = Noted(lambda frame, batch: call(frame, batch, code["Count"]()))
    with state_query(tmp_path, handler) as query:
        query.hold(topic, range(2))
        send(kafka, topic, [("a", "x")])
        eventually(lambda: handler.said, 120, "refused")
    assert re.search(said, handler.said)
