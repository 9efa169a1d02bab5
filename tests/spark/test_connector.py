"""The connector in a streaming query, on a real Kafka, with a real agent."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from devstack.brokers import Brokers
from devstack.certificates import Authority
from devstack.kafka import Kafka
from devstack.place import HERE
from devstack.secured import CertifiedKafka, SecureKafka
from muster.consumer.connector import FORMAT
from muster.consumer.metrics import ConsumerMetrics
from muster.consumer.query import scratch_uri
from muster.core.parking import Answer
from muster.core.positions import Why
from muster.edges.kafka import GroupOffsets, KafkaError, TopicLister
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.connected_query import Holder, reading
from tests.support.only_long import only_long
from tests.support.secured import CONSUMER, GROUP, TOPIC, Passwords
from tests.support.servers import running
from tests.support.spark_topics import (
    create_topic,
    delete_before,
    delete_topic,
    end_offset,
    in_sync,
    leader_of,
    make_topic,
    numbered,
    produce,
    produce_in_transaction,
    producer_of,
    stored_offsets,
    transactional_producer,
)

pytestmark = pytest.mark.spark

FLOW = 6.0
"""Seconds after which a record that a plain client of Kafka has got reaches the handler, too. Half of them are the
planning's: the dead leader of another partition may say where that ends."""
ONE_IN_SYNC = {"min.insync.replicas": "1"}


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def holder(kafka: KafkaSettings, group: str) -> Iterator[Holder]:
    with Holder(kafka, group) as made:
        yield made


def test_rows_have_keys_values_headers_and_timestamps(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
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
    holder.hold(topic, [0])
    holder.hold(stamped, [0])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        eventually(query.has(5), 60)
    rows = sorted((row for row in query.rows if row.topic == topic), key=lambda row: row.offset)
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
    assert rows[0].timestamp.astimezone(UTC) == datetime.fromtimestamp(moment / 1000, UTC)
    (by_broker,) = (row for row in query.rows if row.topic == stamped)
    assert by_broker.timestampType == 1
    assert by_broker.timestamp.year >= 2020


def test_partitions_come_and_go_without_a_restart(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 3)
    produce(kafka, topic, {p: numbered(f"{p}:", 100) for p in range(3)})
    holder.hold(topic, [0])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        eventually(query.has(100), 60)
        assert query.query is not None
        ids = (query.query.id, query.query.runId)
        holder.hold(topic, [0, 1, 2])
        eventually(query.has(300), 60)
        holder.hold(topic, [0, 2])
        eventually(lambda: set(holder.agent.view().held) == {(topic, 0), (topic, 2)}, 60, "1 is closed")
        produce(kafka, topic, {1: ["later"], 0: ["0:100"]})
        eventually(query.has(301), 60)
        holder.hold(topic, [])
        eventually(lambda: not holder.agent.view().held, 60, "all are closed")
        holder.hold(topic, [1])
        eventually(query.has(302), 60)
        query.check()
        assert (query.query.id, query.query.runId) == ids
    assert query.values(topic, 0) == numbered("0:", 101)
    assert query.values(topic, 1) == [*numbered("1:", 100), "later"], "it begins where it was committed"
    assert query.values(topic, 2) == numbered("2:", 100)


def test_consumer_without_partitions_warms_up_with_a_record_that_counts_for_nothing(
    spark: SparkSession,
    kafka: KafkaSettings,
    holder: Holder,
    group: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 100), 1: numbered("1:", 100)})
    holder.hold(topic, [], others=[0, 1])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        eventually(lambda: query.empty, 60)
        assert {(row.partition, row.offset) for row in query.empty[0]} == {(0, 99)}
        assert not holder.agent.view().held
        holder.hold(topic, [1])
        eventually(query.has(100), 60)
        query.check()
    assert query.offsets(topic, 1) == list(range(100))
    assert not query.offsets(topic, 0)
    assert GroupOffsets(kafka, group).committed([(topic, 0)]) == {(topic, 0): None}


def test_checkpoint_is_of_files_whose_rights_no_process_is_started_for(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 1)
    produce(kafka, topic, {0: numbered("0:", 5)})
    holder.hold(topic, [0])
    with reading(spark, holder, tmp_path / "a folder") as query:
        eventually(query.has(5), 60)
        file = tmp_path / "a folder" / "offsets" / "0"
        before = eventually(file.stat, 10).st_mode
        jvm = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(scratch_uri(file))
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("777"))
    assert file.stat().st_mode == before


def test_batches_hold_what_was_planned_and_no_more_than_they_may(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 2500), 1: numbered("1:", 10)})
    with Holder(kafka, group, most=1000) as holder:
        holder.hold(topic, [0, 1])
        with reading(spark, holder, tmp_path / "checkpoint") as query:
            eventually(query.has(2510), 60)
        for plan, rows in query.batches:
            held = {(row.topic, row.partition, row.offset) for row in rows}
            assert held == {(t, p, n) for (t, p), bounds in plan.ranges.items() for n in range(*bounds)}
            assert len(rows) <= 1000
        assert holder.agent.view().counters.records == 2510
    assert query.values(topic) == numbered("0:", 2500)


def test_progress_and_metrics_say_how_far_behind_what_was_read_and_what_was_lost(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 2500), 1: numbered("1:", 10)})
    producer = producer_of(kafka)
    producer.produce(topic, b"v", key=b"key", headers=[("h", b"12")], partition=1)
    assert producer.flush(30) == 0

    def collect(frame: DataFrame) -> list[Row]:
        delete_before(kafka, topic, 0, 300)
        return frame.collect()

    with Holder(kafka, group, most=1000) as holder:
        holder.hold(topic, [0, 1])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(2211), 60)
            eventually(lambda: (last := query.metrics()) and last[-1]["maxOffsetsBehindLatest"] == "0", 60)
            eventually(lambda: holder.agent.view().counters.read_bytes, 60)
            found = [metrics for metrics in query.metrics() if "minOffsetsBehindLatest" in metrics]
            page = ConsumerMetrics(holder.agent, "c", "i").text().decode()
    behind = {name: found[0][f"{name}OffsetsBehindLatest"] for name in ("min", "max", "avg")}
    assert behind == {"min": "0", "max": "1511", "avg": "755.5"}
    sizes = [len(row.value) + (6 if row.key else 0) for row in query.rows]
    assert sum(int(metrics["bytesRead"]) for metrics in found) == sum(sizes)
    assert [int(metrics["recordsLost"]) for metrics in found][:2] == [0, 300], (
        "with the planning after the batch"
    )
    assert (
        f'muster_consumer_read_bytes_total{{cluster_name="c",consumer_id="me"}} {float(sum(sizes))}' in page
    )
    assert f'topic="{topic}"}} 300.0' in page.replace(',reason="retention"', "").replace(',partition="0"', "")


def test_batch_whose_records_are_deleted_under_it_fails_and_its_partition_is_parked(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 5), 1: numbered("1:", 10)})
    holder.agent.parked.fail_on_data_loss = True
    holder.hold(topic, [0, 1])
    with reading(spark, holder, tmp_path / "before") as query:
        eventually(query.has(15), 60)
        eventually(lambda: holder.agent.view().held[topic, 0].committed == 5, 60)
    produce(kafka, topic, {0: numbered("0:", 45), 1: numbered("1:", 5)})

    def collect(frame: DataFrame) -> list[Row]:
        delete_before(kafka, topic, 0, 30)
        return frame.collect()

    with reading(spark, holder, tmp_path / "first", collect) as query:
        assert query.query is not None
        failure = eventually(query.query.exception, 60)
    assert f"topic '{topic}', partition 0: the records from offset 5 up to 30 were deleted" in str(failure)
    assert query.rows == []
    with reading(spark, holder, tmp_path / "second") as query:
        eventually(query.has(5), 60)
        parked = eventually(lambda: holder.agent.answers.failing.get((topic, 0)), 60)
        assert (parked.offset, parked.lost) == (5, 25)
        assert query.offsets(topic) == []
        assert holder.agent.answers.answer((topic, 0), 5, Answer.SKIP, "ann (known)")
        eventually(query.has(25), 60)
    assert query.offsets(topic) == list(range(30, 50))
    assert query.offsets(topic, 1) == list(range(10, 15))
    assert holder.agent.view().counters.lost == {(topic, 0): {Why.RETENTION: 25}}


def test_topic_with_a_rate_is_read_no_faster_while_another_one_is_not_held_up(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    slow, quick = create_topic(kafka, 2), create_topic(kafka, 1)
    produce(kafka, slow, {0: numbered("0:", 500), 1: numbered("1:", 500)})
    produce(kafka, quick, {0: numbered("q:", 1000)})
    arrived: list[tuple[float, int]] = []

    def collect(frame: DataFrame) -> list[Row]:
        rows = frame.collect()
        arrived.append((time.monotonic(), sum(row.topic == slow for row in rows)))
        return rows

    with Holder(kafka, group, rates={slow: 200.0}) as holder:
        holder.hold(slow, [0, 1])
        holder.hold(quick, [0])
        began = time.monotonic()
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(lambda: len(query.offsets(quick)) == 1000, 60)
            assert len(query.offsets(slow)) < 1000
            eventually(query.has(2000), 60)
    so_far = 0
    for now, records in arrived:
        so_far += records
        assert so_far <= 200 * (now - began)
    assert [query.offsets(slow, p) for p in (0, 1)] == [list(range(500))] * 2


def test_handler_may_read_its_batch_several_times_in_part_and_at_once(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 5000), 1: numbered("1:", 5000)})
    counts: list[tuple[int, int, int, int, int]] = []

    def collect(frame: DataFrame) -> list[Row]:
        with ThreadPoolExecutor(2) as pool:
            at_once = [pool.submit(frame.count) for _ in range(2)]
            one, two = (future.result() for future in at_once)
        some = len(frame.limit(3).collect())
        both = frame.union(frame).count()
        rows = frame.collect()
        counts.append((one, two, some, both, len(rows)))
        return rows

    with Holder(kafka, group, most=4000) as holder:
        holder.hold(topic, [0, 1])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(10_000), 90)
    for one, two, some, both, rows in counts:
        assert (one, two, some, both) == (rows, rows, 3, 2 * rows)
    assert sorted(query.offsets(topic, 1)) == list(range(5000))


@only_long
def test_script_that_reads_from_another_thread_takes_no_other_tasks_records(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {p: numbered(f"{p}:", 5000) for p in range(2)})

    def collect(frame: DataFrame) -> list[Row]:
        # Spark feeds the script in a thread of its own, which outlives a task that a limit or the script ends early.
        frame.selectExpr("CAST(value AS STRING) AS value").createOrReplaceTempView("batch")
        session = frame.sparkSession
        few = session.sql("SELECT TRANSFORM(value) USING 'head -n 2' AS (value STRING) FROM batch").limit(1)
        some = len(few.collect())
        rows = frame.collect()
        again = session.sql("SELECT TRANSFORM(value) USING 'cat' AS (value STRING) FROM batch").collect()
        session.catalog.dropTempView("batch")
        assert some == min(1, len(rows))
        assert sorted(row.value for row in again) == sorted(str(row.value, "utf-8") for row in rows)
        return rows

    with Holder(kafka, group, most=3000) as holder:
        holder.hold(topic, [0, 1])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(10_000), 90)
    for partition in range(2):
        assert sorted(query.offsets(topic, partition)) == list(range(5000))


def test_several_tasks_read_one_partition_where_that_is_asked_for(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 1)
    produce(kafka, topic, {0: numbered("0:", 5000)})
    tasks: list[list[list[int]]] = []

    def collect(frame: DataFrame) -> list[Row]:
        rows = frame.withColumn("task", F.spark_partition_id()).collect()
        tasks.append(
            [[row.offset for row in rows if row.task == task] for task in sorted({row.task for row in rows})]
        )
        return rows

    with Holder(kafka, group, most=1000, source_options={"minPartitions": "2"}) as holder:
        holder.hold(topic, [0])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(5000), 60)
            produce(kafka, topic, {0: numbered("more:", 50)})
            eventually(query.has(5050), 60)
            delete_before(kafka, topic, 0, 5050)
            produce(kafka, topic, {0: numbered("again:", 700)})
            eventually(query.has(5750), 60)
            eventually(lambda: holder.agent.view().held[topic, 0].committed == 5750, 60)
    assert sorted(query.offsets(topic)) == list(range(5750)), "each once"
    read = [task for batch in tasks for task in batch]
    assert all(task == list(range(task[0], task[0] + len(task))) for task in read), "in order within a task"
    assert tasks[:5] == [
        [list(range(n, n + 500)), list(range(n + 500, n + 1000))] for n in range(0, 5000, 1000)
    ]
    few = [batch for batch in tasks if 5000 <= batch[0][0] < 5050]
    assert few and all(len(batch) == 1 for batch in few), "few records are not worth two tasks"


def test_records_that_several_tasks_of_a_partition_miss_are_each_counted_once(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 1)
    produce(kafka, topic, {0: numbered("0:", 1000)})

    def collect(frame: DataFrame) -> list[Row]:
        delete_before(kafka, topic, 0, 700)
        return frame.collect()

    with Holder(kafka, group, source_options={"minPartitions": "2"}) as holder:
        holder.hold(topic, [0])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(300), 60)
            eventually(lambda: holder.agent.view().counters.lost, 60)
        assert holder.agent.view().counters.lost == {(topic, 0): {Why.RETENTION: 700}}
    assert query.offsets(topic) == list(range(700, 1000))


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_records_of_each_compression_are_read(
    spark: SparkSession,
    kafka: KafkaSettings,
    holder: Holder,
    tmp_path: Path,
    eventually: Eventually,
    compression: str,
) -> None:
    topic = create_topic(kafka)
    producer = producer_of(kafka, **{"compression.type": compression, "linger.ms": "100"})
    for value in numbered("the same text again and again ", 1000):
        producer.produce(topic, value.encode())
    assert producer.flush(30) == 0
    holder.hold(topic, [0])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        eventually(query.has(1000), 60)
    assert query.values(topic) == numbered("the same text again and again ", 1000)


def test_records_of_20_mb_are_read(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    size = 20 * 2**20
    topic = create_topic(kafka, 1, {"max.message.bytes": str(size + 2**16)})
    producer = producer_of(kafka, **{"message.max.bytes": str(size + 2**16)})
    for number in range(4):
        producer.produce(topic, bytes([number]) * size if number % 2 else bytes([number]))
    assert producer.flush(60) == 0

    def collect(frame: DataFrame) -> list[Row]:
        return frame.selectExpr(
            "topic", "partition", "offset", "length(value) size", "substr(value, -1) last"
        ).collect()

    with Holder(kafka, group) as holder:
        holder.hold(topic, [0])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(4), 90)
    assert [(row.size, bytes(row.last)) for row in query.rows] == [
        (1, b"\x00"),
        (size, b"\x01"),
        (1, b"\x02"),
        (size, b"\x03"),
    ]


def test_only_committed_records_of_transactions_are_read(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka)
    producer = transactional_producer(kafka, topic)
    for name, end in (
        ("kept", producer.commit_transaction),
        ("aborted", producer.abort_transaction),
        ("also kept", producer.commit_transaction),
    ):
        produce_in_transaction(producer, topic, name)
        end(30)
    produce_in_transaction(producer, topic, "open")
    holder.hold(topic, [0])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        eventually(query.has(2), 60)
        planned = eventually(lambda: holder.agent.view().held[topic, 0].committed == 6 and 6, 60)
        assert planned == end_offset(kafka, topic, 0) - 1, "the open transaction is not waited for"
        assert query.values(topic) == ["kept", "also kept"]
        producer.commit_transaction(30)
        eventually(query.has(3), 60)
    assert query.values(topic) == ["kept", "also kept", "open"]


def test_records_of_open_and_aborted_transactions_are_read_when_that_is_asked_for(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka)
    producer = transactional_producer(kafka, topic)
    produce_in_transaction(producer, topic, "aborted")
    producer.abort_transaction(30)
    produce_in_transaction(producer, topic, "open")
    settings = KafkaSettings(config={**kafka.config, "isolation.level": "read_uncommitted"})
    with Holder(settings, group) as holder:
        holder.hold(topic, [0])
        with reading(spark, holder, tmp_path / "checkpoint") as query:
            eventually(query.has(2), 60)
    assert query.values(topic) == ["aborted", "open"]


def test_compacted_topic_is_read_with_its_gaps(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(
        kafka,
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "segment.bytes": "1048576",
            "max.compaction.lag.ms": "100",
        },
    )
    producer = producer_of(kafka)
    producer.produce(topic, b"first", key=b"first")  # stays, so there is a gap behind it
    for number in range(300):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7))
        producer.flush(30)

    def offsets() -> list[int]:
        producer.produce(
            topic, b"last", key=b"last"
        )  # a record rolls the segment, which is not compacted itself
        assert producer.flush(30) == 0
        return list(stored_offsets(kafka, topic))

    found = eventually(lambda: offsets() if len(offsets()) < 200 else [], 90, "Kafka compacts the topic")
    assert found[-1] - found[0] >= len(found), "there are gaps"
    holder.hold(topic, [0])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        end = end_offset(kafka, topic, 0)
        eventually(lambda: holder.agent.view().held[topic, 0].committed == end, 60, "all is committed")
        query.check()
    assert query.offsets(topic) == list(stored_offsets(kafka, topic))
    assert holder.agent.view().counters.lost == {}


@only_long
def test_records_arrive_when_the_leader_dies(
    spark: SparkSession,
    tmp_path: Path,
    group: str,
    eventually: Eventually,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    brokers = Brokers(tmp_path_factory.mktemp("brokers"), [HERE] * 3)
    brokers.start()
    kafka = KafkaSettings(config={"bootstrap.servers": brokers.servers})
    try:
        topic = create_topic(kafka, 3, replication=3)
        produce(kafka, topic, {p: numbered(f"{p}:", 100) for p in range(3)})
        with Holder(kafka, group) as holder:
            holder.hold(topic, [0, 1, 2])
            with reading(spark, holder, tmp_path / "checkpoint") as query:
                eventually(query.has(300), 60)
                brokers[leader_of(kafka, topic, 0)].kill()
                produce(kafka, topic, {p: numbered(f"{p}:", 100, 100) for p in range(3)})
                eventually(query.has(600), 90)
                query.check()
        for partition in range(3):
            assert query.values(topic, partition) == numbered(f"{partition}:", 200)
    finally:
        for broker in brokers:
            broker.kill()


def test_records_deleted_between_planning_and_reading_are_counted(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("0:", 1000), 1: numbered("1:", 1000)})
    deleted = threading.Event()

    def collect(frame: DataFrame) -> list[Row]:
        if not deleted.is_set():
            delete_before(kafka, topic, 0, 300)
            deleted.set()
        return frame.collect()

    with Holder(kafka, group) as holder:
        holder.hold(topic, [0, 1])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(query.has(1700), 60)
            eventually(lambda: holder.agent.view().counters.lost, 60)
            produce(kafka, topic, {0: ["more"]})
            eventually(query.has(1701), 60)
            query.check()
        assert holder.agent.view().counters.lost == {(topic, 0): {Why.RETENTION: 300}}
    assert query.offsets(topic, 0) == list(range(300, 1001))
    assert query.offsets(topic, 1) == list(range(1000))


def test_topic_recreated_under_the_reader_fails_nothing_and_is_read_from_its_beginning(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic, steady = create_topic(kafka), create_topic(kafka)
    produce(kafka, topic, {0: numbered("old", 1000)})
    produce(kafka, steady, {0: numbered("s", 10)})
    lister = TopicLister(kafka)
    recreated = threading.Event()

    def collect(frame: DataFrame) -> list[Row]:
        if not recreated.is_set():
            delete_topic(kafka, topic)
            make_topic(kafka, topic)
            produce(kafka, topic, {0: numbered("new", 50)})
            recreated.set()
        return frame.collect()

    with Holder(kafka, group) as holder:
        holder.hold(topic, [0], lister.topic_ids([topic])[topic])
        holder.hold(steady, [0])
        with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
            eventually(recreated.is_set, 60)
            holder.hold(topic, [0], lister.topic_ids([topic])[topic])
            eventually(lambda: query.values(topic)[-50:] == numbered("new", 50), 90)
            produce(kafka, steady, {0: ["last"]})
            eventually(lambda: "last" in query.values(steady), 60)
            query.check()
    assert query.values(steady) == [*numbered("s", 10), "last"]


@only_long
def test_topic_made_again_after_leader_changes_beside_one_that_never_pauses(
    spark: SparkSession,
    tmp_path: Path,
    group: str,
    eventually: Eventually,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Each change of a leader raises the topic's epoch; the new topic's epochs begin below what the client has seen.
    brokers = Brokers(tmp_path_factory.mktemp("brokers"), [HERE] * 3)
    brokers.start()
    kafka = KafkaSettings(config={"bootstrap.servers": brokers.servers})
    arrived: dict[int, float] = {}

    def collect(frame: DataFrame) -> list[Row]:
        rows = frame.collect()
        arrived.update((row.offset, time.monotonic()) for row in rows if row.topic == steady)
        return rows

    try:
        # The new one is shorter than what was read of the old one, or longer.
        topics = {create_topic(kafka, config=ONE_IN_SYNC, replicas=[2, 3]): records for records in (50, 2000)}
        steady = create_topic(kafka, config=ONE_IN_SYNC, replicas=[1])
        lister = TopicLister(kafka)
        with Holder(kafka, group) as holder:
            holder.hold(steady, [0])
            for topic, topic_id in lister.topic_ids(topics).items():
                produce(kafka, topic, {0: numbered("old", 1000)})
                holder.hold(topic, [0], topic_id)
            with reading(spark, holder, tmp_path / "checkpoint", collect) as query:
                has = lambda topic, count: lambda: len(query.values(topic)) >= count  # noqa: E731
                for topic in topics:
                    eventually(has(topic, 1000), 60)
                with writing_steadily(kafka, steady) as written, reading_beside(kafka, steady) as beside:
                    for dies, leads in ((2, 3), (3, 2)):
                        brokers[dies].kill()
                        for topic in topics:
                            eventually(
                                lambda t=topic, n=leads: leader_of(kafka, t, 0) == n, 60, "the other leads"
                            )
                        brokers[dies].start()
                        for topic in topics:
                            eventually(lambda t=topic: in_sync(kafka, t, 0) == {2, 3}, 60, "it has caught up")
                    for topic in topics:
                        produce(kafka, topic, {0: ["last"]})
                        eventually(has(topic, 1001), 60)
                    for topic in topics:
                        delete_topic(kafka, topic)
                    seen = lambda: holder.agent.view().problems.get("source", "")  # noqa: E731
                    eventually(
                        lambda: all(topic in seen() for topic in topics), 30, "the topics are seen gone"
                    )
                    for topic, records in topics.items():
                        make_topic(kafka, topic, config=ONE_IN_SYNC, replicas=[2, 3])
                        produce(kafka, topic, {0: numbered("new", records)})
                        holder.hold(topic, [0], lister.topic_ids([topic])[topic])
                    for topic, records in topics.items():
                        eventually(has(topic, 1001 + records), 60)
                eventually(has(steady, len(written)), 60)
                query.check()
        for topic, records in topics.items():
            assert query.values(topic) == [*numbered("old", 1000), "last", *numbered("new", records)]
        assert query.values(steady) == written
        # What the brokers hold up while they elect, and a busy machine, holds up the client beside, too.
        late = max(arrived[offset] - got for offset, got in beside.items())
        assert late < FLOW + longest_pause(beside), f"a record came {late:.1f} s after a plain client had it"
    finally:
        for broker in brokers:
            broker.kill()


def longest_pause(arrivals: dict[int, float]) -> float:
    return max(after - before for before, after in pairwise(arrivals.values()))


@contextmanager
def in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have a thread do it until the event; its error is raised."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work, over)
        try:
            yield
        finally:
            over.set()
            doing.result(60)


@contextmanager
def reading_beside(kafka: KafkaSettings, topic: str) -> Iterator[dict[int, float]]:
    """Read a topic with a plain client, in the background; yield when each offset arrived."""
    arrived: dict[int, float] = {}
    consumer = Consumer({**kafka.config, "group.id": "beside"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read(over: threading.Event) -> None:
        while not over.is_set():
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                arrived[message.offset()] = time.monotonic()

    with closing(consumer), in_background(read):
        yield arrived


@contextmanager
def writing_steadily(kafka: KafkaSettings, topic: str) -> Iterator[list[str]]:
    """Write ten records a second, whose values it yields, in the background."""
    written: list[str] = []

    def write(over: threading.Event) -> None:
        while not over.wait(0.1):
            produce(kafka, topic, {0: [f"s{len(written)}"]})
            written.append(f"s{len(written)}")

    with in_background(write):
        yield written


def test_agent_that_is_away_for_a_moment_fails_nothing(
    spark: SparkSession, kafka: KafkaSettings, holder: Holder, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, {0: numbered("", 5)})
    holder.hold(topic, [0])
    with reading(spark, holder, tmp_path / "checkpoint") as query:
        eventually(query.has(5), 60)
        holder.go_away()
        produce(kafka, topic, {0: numbered("", 5, 5)})
        threading.Event().wait(2.0)  # some plannings
        query.check()
        assert len(query.rows) == 5
        holder.come_back()
        eventually(query.has(10), 60)
    assert query.values(topic) == numbered("", 10)
    for (earlier, _), (later, _) in pairwise(query.batches):
        assert earlier.asked < later.asked


def test_kafka_away_for_a_while_fails_nothing_and_holds_up_no_other_kafka(
    spark: SparkSession,
    kafka: KafkaSettings,
    group: str,
    tmp_path: Path,
    eventually: Eventually,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = Kafka(tmp_path_factory.mktemp("kafka"), guarded=True)
    server.start()
    shaky = KafkaSettings(config={"bootstrap.servers": server.address})
    try:
        steady_topic, shaky_topic = create_topic(kafka), create_topic(shaky)
        produce(kafka, steady_topic, {0: numbered("a", 5)})
        produce(shaky, shaky_topic, {0: numbered("b", 5)})
        with Holder(KafkaSettings(config=kafka.config, operation_timeout=2), group) as holder:
            holder.hold(steady_topic, [0])
            holder.hold(shaky_topic, [0], servers=server.address)
            with reading(spark, holder, tmp_path / "checkpoint") as query:
                eventually(query.has(10), 60)
                for fault, repair in ((server.pause, server.resume), (server.kill, server.start)):
                    before = len(query.rows)
                    fault()
                    eventually(lambda: server.address in holder.agent.view().problems.get("source", ""), 60)
                    produce(kafka, steady_topic, {0: ["meanwhile"]})
                    eventually(query.has(before + 1), 60, "the other Kafka's topic goes on")
                    repair()
                    produce(shaky, shaky_topic, {0: ["after"]})
                    eventually(query.has(before + 2), 90, "what was written after the fault")
                    eventually(lambda: "source" not in holder.agent.view().problems, 60)
        assert query.values(steady_topic) == [*numbered("a", 5), "meanwhile", "meanwhile"]
        assert query.values(shaky_topic) == [*numbered("b", 5), "after", "after"]
    finally:
        server.kill()


def test_query_whose_token_is_wrong_says_so(spark: SparkSession, holder: Holder, tmp_path: Path) -> None:
    source = spark.readStream.format(FORMAT).options(agent=holder.url, token="wrong").load()  # noqa: S106
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="check the source's options 'agent' and 'token'"):
        query.awaitTermination(60)


def test_missing_options_are_named(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format(FORMAT).load()
    with pytest.raises(Exception, match="option 'agent' is missing"):
        source.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path)
        ).start().awaitTermination(60)


def test_secured_kafka_is_read_with_librdkafkas_settings(
    spark: SparkSession,
    secure_kafka: SecureKafka,
    passwords: Passwords,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    admin = KafkaSettings(config=secure_kafka.client_settings())
    if TOPIC not in TopicLister(admin).list_partitions():
        make_topic(admin, TOPIC)
    produce(admin, TOPIC, {0: ["secret"]})
    settings = KafkaSettings(config=secure_kafka.settings_of(CONSUMER, passwords.users()[CONSUMER]))
    with Holder(settings, GROUP) as holder:
        holder.hold(TOPIC, [0])
        with reading(spark, holder, tmp_path / "checkpoint") as query:
            eventually(query.has(1), 60)
    assert "secret" in query.values(TOPIC)


@pytest.fixture(scope="module")
def certified_kafka(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, server_certificate: Path
) -> Iterator[CertifiedKafka]:
    with running(
        CertifiedKafka(tmp_path_factory.mktemp("kafka"), server_certificate, authority.ca)
    ) as server:
        yield server


@pytest.mark.parametrize(
    "kind", ["files", *(pytest.param(kind, marks=only_long) for kind in ("text", "keystore"))]
)
def test_kafka_is_read_with_a_client_certificate(
    spark: SparkSession,
    certified_kafka: CertifiedKafka,
    authority: Authority,
    group: str,
    tmp_path: Path,
    eventually: Eventually,
    kind: str,
) -> None:
    without = certified_kafka.settings_without_certificate()
    with pytest.raises(KafkaError):
        TopicLister(KafkaSettings(config=without, operation_timeout=2)).list_partitions()
    pem, p12 = authority.issue(f"client-{kind}"), tmp_path / "client.p12"
    text = pem.read_text()
    p12.write_bytes(keystore(pem, b"changeit"))
    own = {
        "files": {"ssl.certificate.location": str(pem), "ssl.key.location": str(pem)},
        "text": {"ssl.certificate.pem": text, "ssl.key.pem": text},
        "keystore": {"ssl.keystore.location": str(p12), "ssl.keystore.password": "changeit"},
    }[kind]
    settings = KafkaSettings(config=without | own)
    topic = create_topic(settings)
    produce(settings, topic, {0: numbered("", 5)})
    with Holder(settings, group) as holder:
        holder.hold(topic, [0])
        with reading(spark, holder, tmp_path / "checkpoint") as query:
            eventually(query.has(5), 60)
    assert query.values(topic) == numbered("", 5)


def keystore(pem: Path, password: bytes) -> bytes:
    """PKCS#12 with the key and the certificate of `pem`."""
    text = pem.read_bytes()
    key = serialization.load_pem_private_key(text, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return pkcs12.serialize_key_and_certificates(
        b"client",
        key,
        x509.load_pem_x509_certificate(text),
        None,
        serialization.BestAvailableEncryption(password),
    )


def test_setting_that_kafkas_java_client_does_not_have_fails_the_query_and_is_named(
    spark: SparkSession, kafka: KafkaSettings, group: str, tmp_path: Path, eventually: Eventually
) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, {0: ["a"]})
    settings = KafkaSettings(config={**kafka.config, "ssl.curves.list": "P-256"})
    with Holder(settings, group, source_options={"kafka.max.pol.records": "7"}) as holder:
        holder.hold(topic, [0])
        with reading(spark, holder, tmp_path / "checkpoint") as query:
            error = eventually(lambda: query.query and query.query.exception(), 60, "the query fails")
    assert "Kafka's Java consumer has no setting max.pol.records, ssl.curves.list; correct" in str(error)
