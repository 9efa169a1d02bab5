"""State by key with a real Spark and a real Kafka, from `batch.state` to the changelog and the output topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.spark.state_processors import Announced, Totals, TotalsInPandas, totals_in_arrow
from tests.support.kafka_topics import make_topic
from tests.support.state_query import Make, begin_at_the_first_record, committed_records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TOTALS = "key string, n long, total long"


@pytest.fixture
def topic(kafka: KafkaSettings, group: GroupOffsets) -> str:
    name = make_topic(kafka, 3)
    begin_at_the_first_record(group, name, 3)
    return name


def send(kafka: KafkaSettings, topic: str, numbers: range, keys: int = 7) -> None:
    """Record n has the key n modulo `keys`, null for 0, and the value n."""
    producer = Producer({**kafka.config, "partitioner": "murmur2"})
    for n in numbers:
        key = None if n % keys == 0 else str(n % keys).encode()
        producer.produce(topic, str(n).encode(), key, **({"partition": 0} if key is None else {}))
    assert producer.flush(30) == 0


def expected(numbers: range, keys: int = 7) -> dict[str | None, tuple[int, int]]:
    counts: Counter[str | None] = Counter()
    sums: Counter[str | None] = Counter()
    for n in numbers:
        key = None if n % keys == 0 else str(n % keys)
        counts[key] += 1
        sums[key] += n
    return {key: (counts[key], sums[key]) for key in counts}


def selected(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(
        "topic",
        "partition",
        "offset",
        "CAST(key AS STRING) AS key",
        "CAST(CAST(value AS STRING) AS LONG) AS amount",
    )


class Handler:
    """Keeps what `call` returns, the last of each key."""

    def __init__(self, call: Callable[[Batch, DataFrame], DataFrame | None]) -> None:
        self.call = call
        self.rows: dict[str | None, tuple[int, int]] = {}
        self.order: list[Any] = []
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        try:
            out = self.call(batch, selected(frame))
        except Exception as error:
            self.error = error
            raise
        for row in out.collect() if out is not None else ():
            self.rows[row.key] = (row.n, row.total)
            self.order.append(row)


CALLS = {
    "rows": lambda batch, frame: batch.state.transformWithState(frame, ["key"], Totals(), TOTALS),
    "pandas": lambda batch, frame: batch.state.transformWithStateInPandas(
        frame, ["key"], TotalsInPandas(), TOTALS
    ),
    "arrow": lambda batch, frame: batch.state.transformWithStateInArrow(
        frame, totals_in_arrow, {"totals": "n long, total long"}, TOTALS
    ),
}


@pytest.mark.parametrize("form", CALLS)
def test_totals_by_key_go_on_at_the_next_owner(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
    form: str,
) -> None:
    for number, numbers in enumerate((range(500), range(1000))):
        send(kafka, topic, numbers[500 * number :])
        handler = Handler(CALLS[form])
        with state_query(tmp_path / str(number), handler, most=100, name=f"c{number}") as query:
            query.hold(topic, range(3))
            eventually(lambda: handler.rows == expected(numbers), 120, "all counted")  # noqa: B023
            assert handler.error is None


def committed_values(kafka: KafkaSettings, topic: str) -> list[tuple[str | None, dict[str, Any]]]:
    return [(key, json.loads(value)) for key, value in committed_records(kafka, topic)]


def test_output_to_a_topic_counts_each_record_once_though_handlers_fail(
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    to = make_topic(kafka, 1)
    batches: list[str] = []

    def call(batch: Batch, frame: DataFrame) -> None:
        out = batch.state.transformWithState(
            frame, ["key"], Announced(), "key string, value string", topic=to
        )
        assert out is None
        batches.append(batch.id)
        if len(batches) % 3 == 0:
            raise OSError("after the state was computed")

    send(kafka, topic, range(700))
    with state_query(tmp_path, Handler(call), most=100) as query:
        query.hold(topic, range(3))
        eventually(
            lambda: {k: (v["n"], v["total"]) for k, v in committed_values(kafka, to)} == expected(range(700)),
            180,
            "all counted",
        )
    counts: dict[str | None, list[int]] = {}
    for key, value in committed_values(kafka, to):
        counts.setdefault(key, []).append(value["n"])
    assert all(found == sorted(set(found)) for found in counts.values()), "no total was written twice"
    assert len(batches) > len(set(batches)), "some batches came again"
