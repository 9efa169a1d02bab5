"""The Spark source in a streaming query, on a real Kafka."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from devstack.kafka import Kafka
from muster.consumer.source.datasource import SCHEMA
from muster.consumer.source.records import ARROW_SCHEMA
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.spark.local_agent import LocalAgent
from tests.spark.stream import streaming
from tests.spark.topics import commit, create_topic, end_offset, numbered, produce, producer_of

pytestmark = pytest.mark.spark


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def agent(kafka: KafkaSettings, group: str) -> Iterator[LocalAgent]:
    with LocalAgent(kafka, group) as made:
        yield made


def test_the_schema_is_what_spark_makes_of_it() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW_SCHEMA)


def test_keys_values_headers_and_timestamps(
    spark: SparkSession, kafka: KafkaSettings, agent: LocalAgent, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka)
    stamped = create_topic(kafka, 1, {"message.timestamp.type": "LogAppendTime"})
    producer = producer_of(kafka)
    moment = 1_700_000_000_123
    producer.produce(topic, b"v", key=b"k", timestamp=moment)
    producer.produce(topic, None, key=b"k", headers=[("a", b"1"), ("b", None), ("a", b"")])
    producer.produce(topic, b"", key=b"")
    producer.produce(topic, b"\x00\xff", headers=[("\u00e4", b"\xff")])
    producer.produce(stamped, b"w", timestamp=1000)
    assert producer.flush(30) == 0
    agent.hold(topic, [0])
    agent.hold(stamped, [0])
    with streaming(spark, agent, tmp_path / "checkpoint") as stream:
        eventually(stream.has(5), 60)
    rows = sorted((row for row in stream.rows if row.topic == topic), key=lambda row: row.offset)
    assert [(row.key, row.value) for row in rows] == [
        (b"k", b"v"),
        (b"k", None),
        (b"", b""),
        (None, b"\x00\xff"),
    ]
    assert [row.headers if row.headers is None else [tuple(h) for h in row.headers] for row in rows] == [
        None,
        [("a", b"1"), ("b", None), ("a", b"")],
        None,
        [("\u00e4", b"\xff")],
    ]
    assert [(row.partition, row.offset, row.timestampType) for row in rows] == [(0, n, 0) for n in range(4)]
    # Spark's `collect` gives local times without a zone.
    assert rows[0].timestamp.astimezone(UTC) == datetime.fromtimestamp(moment / 1000, UTC)
    (by_broker,) = (row for row in stream.rows if row.topic == stamped)
    assert by_broker.timestampType == 1
    assert by_broker.timestamp.year >= 2020


def test_partitions_come_and_go_without_a_restart(
    spark: SparkSession,
    kafka: KafkaSettings,
    agent: LocalAgent,
    group: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    """Added ones begin at the committed offset, or earliest; others do not pause; no partition is fine too."""
    topic = create_topic(kafka, 3)
    produce(kafka, topic, {p: numbered(f"{p}:", 100) for p in range(3)})
    commit(kafka, group, {(topic, 1): 60})
    agent.hold(topic, [0])
    with streaming(spark, agent, tmp_path / "checkpoint") as stream:
        eventually(stream.has(100), 60)
        assert stream.query is not None
        ids = (stream.query.id, stream.query.runId)
        steady = threading.Event()

        def feed() -> None:
            producer = producer_of(kafka)
            n = 100
            while not steady.wait(0.02):
                producer.produce(topic, f"0:{n}".encode(), partition=0)
                producer.flush(10)
                n += 1

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            agent.hold(topic, [0, 1])
            eventually(lambda: len(stream.values(topic, 1)) == 40, 90, "partition 1")
            agent.hold(topic, [0, 1, 2])
            eventually(lambda: len(stream.values(topic, 2)) == 100, 90, "partition 2")
            agent.hold(topic, [0, 2])
            eventually(lambda: set(stream.last_offset().get(topic, {})) == {"0", "2"}, 90, "1 is gone")
        finally:
            steady.set()
            feeder.join()
        planned = len(agent.planned)
        produce(kafka, topic, {1: ["not for us"]})
        total = end_offset(kafka, topic, 0)
        eventually(lambda: len(stream.values(topic, 0)) == total, 90, "all of partition 0")
        # It comes back: from the offset that was committed meanwhile, not from where it was.
        commit(kafka, group, {(topic, 1): 100})
        produce(kafka, topic, {1: ["again"]})
        agent.hold(topic, [0, 1, 2])
        eventually(lambda: "again" in stream.values(topic, 1), 90, "partition 1 again")
        agent.hold(topic, [])
        eventually(lambda: stream.last_offset() == {}, 90, "no partition at all")
        agent.hold(topic, [2])
        eventually(lambda: set(stream.last_offset().get(topic, {})) == {"2"}, 90, "partition 2 again")
        stream.check()
        assert (stream.query.id, stream.query.runId) == ids
    assert stream.values(topic, 0) == numbered("0:", total)
    assert stream.values(topic, 1) == [*numbered("1:", 40, 60), "not for us", "again"]
    changing = [plan for plan in agent.planned[:planned] if plan.plans_batch and plan.offsets.get(topic)]
    assert {p for plan in changing for p in plan.offsets[topic]} == {"0", "1", "2"}
    for plan in changing:
        assert plan.offsets[topic]["0"][1] == plan.ends[topic]["0"], (
            "partition 0 is read to its end in every batch"
        )


def test_agent_hears_of_every_batch_and_its_end(
    spark: SparkSession, kafka: KafkaSettings, agent: LocalAgent, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 250), 1: numbered("1:", 10)})
    agent.max_records = 100
    agent.hold(topic, [0, 1])
    with streaming(spark, agent, tmp_path / "checkpoint") as stream:
        eventually(stream.has(260), 60)
        idle = eventually(lambda: agent.planned[-1] if not agent.planned[-1].plans_batch else None, 90)
        seen = len(agent.planned)
        eventually(lambda: len(agent.planned) > seen + 3, 90, "plannings go on while nothing happens")
        batches = len(stream.batches)
        assert not agent.planned[-1].plans_batch
    assert len(stream.batches) == batches, "no batch without records or changes"
    assert idle.finished[topic]["0"][1] == 250
    assert idle.ends == {topic: {"0": 250, "1": 10}}
    assert idle.problems == []
    assert all(len(rows) <= 100 for _, rows in stream.batches)
    first = stream.batches[0][1]
    assert {row.partition for row in first} == {0, 1}, (
        "the short partition is not kept waiting by the long one"
    )
    told = [plan for plan in agent.planned if plan.plans_batch]
    assert [plan.asked for plan in told] == sorted({plan.asked for plan in told})
    for earlier, later in pairwise(told):
        assert later.finished == earlier.offsets
    for plan, (_, rows) in zip(told, stream.batches, strict=True):
        held = {(row.partition, row.offset) for row in rows}
        assert held == {(int(p), n) for p, bounds in plan.offsets[topic].items() for n in range(*bounds)}


def test_a_batch_that_is_planned_again_is_the_same_batch(
    spark: SparkSession, kafka: KafkaSettings, agent: LocalAgent, tmp_path: Path, eventually: Eventually
) -> None:
    topic, other = create_topic(kafka, 2), create_topic(kafka)
    produce(kafka, topic, {0: numbered("0:", 30), 1: numbered("1:", 30)})
    agent.hold(topic, [0, 1])
    checkpoint = tmp_path / "checkpoint"
    with streaming(spark, agent, checkpoint) as stream:
        eventually(stream.has(60), 60)
        # A batch counts as done when Spark has reported it, which is after its handler has returned.
        ends = {topic: {"0": 30, "1": 30}}
        eventually(lambda: _tos(stream.last_offset()) == ends, 60, "the first records are done")
    done = len(stream.batches)
    # The next batch fails after it was planned; then everything that could change it changes.
    produce(kafka, topic, {0: numbered("0:", 20, 30), 1: numbered("1:", 10, 30)})
    produce(kafka, other, {0: numbered("other:", 5)})
    with (
        streaming(spark, agent, checkpoint, fail=lambda batch_id: True) as failing,
        pytest.raises(StreamingQueryException, match="handler failed"),
    ):
        eventually(failing.has(10**9), 60)
    ((failed_id, failed),) = failing.batches
    assert failed_id == done
    produce(kafka, topic, {0: numbered("0:", 100, 50)})
    agent.hold(topic, [0])
    agent.hold(other, [0])
    with streaming(spark, agent, checkpoint) as again:
        eventually(again.has(len(failed) + 105), 60)
    again_id, rows = again.batches[0]
    assert again_id == failed_id
    assert sorted((r.topic, r.partition, r.offset, r.value) for r in rows) == sorted(
        (r.topic, r.partition, r.offset, r.value) for r in failed
    )
    offsets = (checkpoint / "offsets" / str(failed_id)).read_text().splitlines()
    assert json.loads(offsets[-1]) == {topic: {"0": [30, 50], "1": [30, 40]}}
    assert again.values(topic, 0) == numbered("0:", 120, 30)
    assert again.values(other) == numbered("other:", 5)


@pytest.mark.parametrize("chosen", [True, False], ids=["chosen", "fixed"])
def test_a_handler_may_read_its_batch_more_than_once_or_in_part(
    spark: SparkSession, kafka: KafkaSettings, agent: LocalAgent, tmp_path: Path, chosen: bool
) -> None:
    """Whether tasks choose what they read of it, or not."""
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 3000), 1: numbered("1:", 3000)})
    agent.hold(topic, [0, 1])
    agent.max_records = 2000
    seen: list[tuple[int, int, int]] = []
    options = {**agent.options, "shares": str(tmp_path) if chosen else ""}
    source = spark.readStream.format("muster").options(**options, parallelism=2).load()

    def process(batch, batch_id):  # type: ignore[no-untyped-def]
        some = len(batch.limit(3).collect())
        seen.append((batch.count(), some, batch.union(batch).count()))

    query = (
        source.writeStream.foreachBatch(process)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert seen == [(2000, 3, 4000)] * 3
    books = [book.read_text().splitlines() for book in tmp_path.glob("batch-*")]
    assert bool(books) == chosen
    assert all(
        sorted(line.split()[part] for line in book) in (["0"], ["1"], ["0", "1"])
        for book in books
        for part in (0, 1)
    )


def test_available_now_ends_at_the_end_of_its_beginning(
    spark: SparkSession, kafka: KafkaSettings, agent: LocalAgent, tmp_path: Path
) -> None:
    """And 100 partitions do not mean 100 tasks."""
    topic = create_topic(kafka, 100)
    produce(kafka, topic, {p: numbered(f"{p}:", 5) for p in range(100)})
    agent.hold(topic, range(100))
    counts: list[tuple[int, int]] = []

    def process(batch, batch_id):  # type: ignore[no-untyped-def]
        counts.append((batch.count(), batch.rdd.getNumPartitions()))
        produce(kafka, topic, {0: ["late"]})

    query = (
        spark.readStream.format("muster")
        .options(**agent.options, parallelism=2)
        .load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert counts == [(500, 2)]


def test_an_agent_that_is_away_for_a_moment_fails_nothing(
    spark: SparkSession, kafka: KafkaSettings, agent: LocalAgent, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, {0: numbered("", 5)})
    agent.hold(topic, [0])
    with streaming(spark, agent, tmp_path / "checkpoint") as stream:
        eventually(stream.has(5), 60)
        agent.refusing = True
        produce(kafka, topic, {0: numbered("", 5, 5)})
        eventually(lambda: agent.refused >= 3, 90, "the planner asks again")
        stream.check()
        told = len(agent.planned)
        agent.refusing = False
        eventually(stream.has(10), 90)
        assert len(agent.planned) > told
    assert stream.values() == numbered("", 10)


def test_missing_options_are_named(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"option 'agent' is missing"):
        spark.readStream.format("muster").load().writeStream.format("noop").start().awaitTermination(30)


def well(agent: LocalAgent) -> bool:
    assert not agent.planned[-1].problems, (len(agent.planned), agent.planned[-1])
    return True


def test_kafka_away_for_a_while_fails_nothing_and_holds_up_no_other_kafka(
    spark: SparkSession,
    kafka: KafkaSettings,
    tmp_path: Path,
    group: str,
    eventually: Eventually,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = Kafka(tmp_path_factory.mktemp("kafka"), guarded=True)
    server.start()
    shaky = KafkaSettings(config={"bootstrap.servers": server.address})
    quick = KafkaSettings(config=kafka.config, operation_timeout=2)
    try:
        steady_topic, shaky_topic = create_topic(kafka), create_topic(shaky, 2)
        produce(kafka, steady_topic, {0: numbered("a", 5)})
        produce(shaky, shaky_topic, {0: numbered("b", 5), 1: numbered("c", 5)})
        with LocalAgent(quick, group) as agent:
            agent.hold(steady_topic, [0])
            agent.hold(shaky_topic, [0], server.address)
            with streaming(spark, agent, tmp_path / "checkpoint") as stream:
                eventually(stream.has(10), 60)
                faults = ((server.pause, server.resume), (server.kill, server.start))
                for times, (fault, repair) in enumerate(faults, 1):
                    before = len(stream.rows)
                    fault()
                    eventually(lambda: agent.planned[-1].problems, 60, "the agent is told")
                    assert server.address in agent.planned[-1].problems[0]
                    produce(kafka, steady_topic, {0: ["meanwhile"]})
                    eventually(stream.has(before + 1), 60, "the other Kafka's topic goes on")
                    agent.hold(shaky_topic, [0, 1], server.address)
                    repair()
                    produce(shaky, shaky_topic, {0: ["after"]})
                    eventually(lambda: well(agent), 60, "all is well again")
                    eventually(
                        lambda: stream.values(shaky_topic, 0).count("after") == times,  # noqa: B023
                        60,
                        "what was written after the fault",
                    )
                eventually(
                    lambda: len(stream.values(shaky_topic, 1)) == 5, 60, "the partition added meanwhile"
                )
                stream.check()
                assert stream.values(steady_topic) == [*numbered("a", 5), "meanwhile", "meanwhile"]
                assert stream.values(shaky_topic, 0) == [*numbered("b", 5), "after", "after"]
    finally:
        server.kill()


def _tos(offset: dict[str, dict[str, list[int]]]) -> dict[str, dict[str, int]]:
    return {topic: {p: end for p, (_, end) in of_topic.items()} for topic, of_topic in offset.items()}
