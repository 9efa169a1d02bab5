"""How state by key begins, and how much a batch may change of it, with a real Spark and a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from muster.consumer.state.errors import LargeBatchError
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.spark.state_processors import Begun, Totals
from tests.support.kafka_topics import make_topic
from tests.support.state_query import Make, begin_at_the_first_record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TOTALS = "key string, n long, total long"
PARTITIONS = 3


@pytest.fixture
def topic(kafka: KafkaSettings, group: GroupOffsets) -> str:
    name = make_topic(kafka, PARTITIONS)
    begin_at_the_first_record(group, name, PARTITIONS)
    return name


def send(kafka: KafkaSettings, topic: str, numbers: range, keys: int, partitioner: str = "murmur2") -> None:
    """Record n has the key n modulo `keys`, and the value n."""
    producer = Producer({**kafka.config, "partitioner": partitioner})
    for n in numbers:
        producer.produce(topic, str(n).encode(), f"k{n % keys}".encode())
    assert producer.flush(30) == 0


def expected(numbers: range, keys: int, begun: int = 0) -> dict[str, tuple[int, int]]:
    found = {f"k{k}": (begun, begun * k) for k in range(keys) if begun or k in numbers}
    for n in numbers:
        count, total = found.get(f"k{n % keys}", (0, 0))
        found[f"k{n % keys}"] = count + 1, total + n
    return found


class Handler:
    """Keeps the last totals of each key, and what its calls raised."""

    def __init__(self, call: Callable[[Batch, DataFrame], DataFrame]) -> None:
        self.call = call
        self.rows: dict[str, tuple[int, int]] = {}
        self.sizes: list[tuple[int, int]] = []
        """Of each batch: its records, and the bytes that it changes."""
        self.errors: list[Exception] = []

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        rows = frame.selectExpr(
            "topic",
            "partition",
            "offset",
            "CAST(key AS STRING) AS key",
            "CAST(CAST(value AS STRING) AS LONG) AS amount",
        )
        try:
            found = self.call(batch, rows).collect()
        except Exception as error:
            self.errors.append(error)
            raise
        self.rows |= {row.key: (row.n, row.total) for row in found}
        records = sum(end - begin for begin, end in batch.ranges.values())
        changes = [
            pair for one in batch.state.computed.values() for pair in zip(one.keys, one.values, strict=True)
        ]
        self.sizes.append((records, sum(len(key) + len(value or b"") for key, value in changes)))


def test_batch_is_smaller_where_it_would_change_too_much(
    state_query: Make, kafka: KafkaSettings, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    send(kafka, topic, range(2000), 2000)
    handler = Handler(lambda batch, rows: batch.state.transformWithState(rows, ["key"], Totals(), TOTALS))
    with state_query(tmp_path, handler) as query:
        query.states.most_changes = 3000
        query.hold(topic, range(PARTITIONS))
        eventually(lambda: handler.rows == expected(range(2000), 2000), 240, "all counted")
        assert query.agent.view().counters.handler_failures == 0
        assert query.errors() == {}
    assert handler.errors, "the first batch was too large"
    assert all(isinstance(error, LargeBatchError) for error in handler.errors)
    assert len(handler.errors) < len(handler.sizes) / 2, "batches learn how many records fit"
    generations = 4
    assert all(size <= 3000 + generations * records for records, size in handler.sizes)


def begin(spark: SparkSession, keys: int, times: int) -> Any:
    rows = [(f"k{k}", times, times * k) for k in range(keys)]
    return spark.createDataFrame(rows, "key string, n long, total long").groupBy("key")


def test_initial_state_is_taken_once_though_handlers_fail(
    spark: SparkSession,
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    failures: list[int] = []

    def call(batch: Batch, rows: DataFrame) -> DataFrame:
        found = batch.state.transformWithState(
            rows, ["key"], Begun(), TOTALS, initialState=begin(spark, 20, 5)
        )
        if len(failures) < 2:
            failures.append(1)
            raise OSError("after the state was computed")
        return found  # type: ignore[no-any-return]

    for number in range(2):
        send(kafka, topic, range(300 * number, 300 * (number + 1)), 20)
        handler = Handler(call)
        with state_query(tmp_path / str(number), handler, name=f"c{number}") as query:
            query.hold(topic, range(PARTITIONS))
            done = expected(range(300 * (number + 1)), 20, begun=5)
            eventually(lambda: handler.rows == done, 180, "all counted")  # noqa: B023


def test_initial_state_of_records_placed_otherwise_is_refused(
    spark: SparkSession,
    state_query: Make,
    kafka: KafkaSettings,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    send(kafka, topic, range(50), 20, partitioner="consistent")
    handler = Handler(
        lambda batch, rows: batch.state.transformWithState(
            rows, ["key"], Begun(), TOTALS, initialState=begin(spark, 20, 5)
        )
    )
    with state_query(tmp_path, handler) as query:
        query.hold(topic, range(PARTITIONS))
        eventually(lambda: handler.errors, 120, "refused")
    assert "Kafka's partitioner puts that key in partition" in str(handler.errors[0])
