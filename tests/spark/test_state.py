"""State by key with a real Spark and a real Kafka, from `batch.state` to the changelog and the output topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from muster.core.model import Seek, SeekState
from muster.core.parking import Answer
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.spark.state_processors import Alarmed, Announced, Totals, TotalsInPandas, totals_in_arrow
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long
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


@pytest.mark.parametrize(
    "form", ["rows", *(pytest.param(form, marks=only_long) for form in ("pandas", "arrow"))]
)
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


def test_failing_timer_parks_its_shard_until_it_is_dropped(
    state_query: Make,
    kafka: KafkaSettings,
    group: GroupOffsets,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    def call(batch: Batch, frame: DataFrame) -> DataFrame | None:
        return batch.state.transformWithState(frame, ["key"], Alarmed(), TOTALS, timeMode="ProcessingTime")

    handler = Handler(call)
    send(kafka, topic, range(70))
    with state_query(tmp_path, handler) as query:
        query.hold(topic, range(3))
        eventually(lambda: query.agent.answers.failing, 120, "parked")
        ((parked, failing),) = query.agent.answers.failing.items()
        assert failing.timer
        assert failing.error.startswith("the timer of key ('1',) at ")
        assert failing.error.endswith(" failed: OSError: no service")
        assert handler.rows == expected(range(70))
        send(kafka, topic, range(70, 140))
        others = group.end_offsets([(topic, p) for p in range(3) if (topic, p) != parked])
        eventually(lambda: group.committed(others) == others, 60, "the others go on")
        assert not query.agent.answers.answer(parked, failing.offset, Answer.DEAD_LETTER, "ann")
        assert query.agent.answers.answer(parked, failing.offset, Answer.RETRY, "ann")
        eventually(lambda: parked in query.agent.answers.failing, 60, "parked again")
        assert query.agent.answers.answer(parked, failing.offset, Answer.SKIP, "ann")
        eventually(lambda: handler.rows == expected(range(140)), 60, "all counted, of each key")
        assert query.agent.answers.failing == {}


@only_long
def test_records_that_a_seek_skips_change_no_state(
    state_query: Make,
    kafka: KafkaSettings,
    group: GroupOffsets,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    handler = Handler(CALLS["rows"])
    send(kafka, topic, range(70))
    with state_query(tmp_path, handler, most=20) as query:
        query.hold(topic, range(3))
        eventually(lambda: handler.rows == expected(range(70)), 120, "all counted")
        query.hold(topic, range(3), {p: Seek("s1", 0, state=SeekState.SKIP) for p in range(3)})
        ends = group.end_offsets([(topic, p) for p in range(3)])

        def read_again() -> bool:
            found = group.positions(ends)
            there = {tp: at.offset for tp, at in found.items() if at and "s1" in at.metadata}
            return there == ends

        eventually(read_again, 120, "all read again")
        send(kafka, topic, range(70, 140))
        eventually(lambda: handler.rows == expected(range(140)), 120, "what is new counts once")


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


@only_long
@pytest.mark.parametrize("fails", [False, True], ids=["goes on", "waits for a person"])
def test_expired_records_are_counted_and_the_state_goes_on(
    state_query: Make,
    kafka: KafkaSettings,
    group: GroupOffsets,
    tmp_path: Path,
    eventually: Eventually,
    fails: bool,
) -> None:
    """`fails` is `failOnDataLoss`."""
    topic = make_topic(kafka, 1)
    begin_at_the_first_record(group, topic, 1)
    producer, handler = Producer(dict(kafka.config)), Handler(CALLS["rows"])

    def sent(numbers: range) -> None:
        for n in numbers:
            producer.produce(topic, str(n).encode(), b"k", 0)
        assert producer.flush(30) == 0

    sent(range(50))
    with state_query(tmp_path, handler) as query:
        query.hold(topic, range(1))
        eventually(lambda: handler.rows == {"k": (50, sum(range(50)))}, 120, "counted")
    sent(range(50, 100))
    admin = AdminClient(dict(kafka.config))
    (deleted,) = admin.delete_records([KafkaPartition(topic, 0, 80)]).values()
    deleted.result(30)
    there = {"k": (70, sum(range(50)) + sum(range(80, 100)))}
    with state_query(tmp_path, handler) as query:
        query.agent.parked.fail_on_data_loss = fails
        query.hold(topic, range(1))
        if fails:
            eventually(lambda: query.agent.answers.failing, 120, "parked")
            ((parked, failing),) = query.agent.answers.failing.items()
            assert (parked, failing.offset, failing.lost) == ((topic, 0), 50, 30)
            assert handler.rows == {"k": (50, sum(range(50)))}
            assert query.agent.answers.answer(parked, failing.offset, Answer.SKIP, "ann")
        eventually(lambda: handler.rows == there, 120, "counted on, behind what is lost")
        assert sum(query.agent.view().counters.lost[topic, 0].values()) == 30
