"""What the reader holds, seen from outside: the live `byte[]` and the connector's objects, every two seconds.

`LONG=1`: the shapes that take minutes. Otherwise a smaller one of each kind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from devstack.brokers import Brokers
from devstack.place import HERE
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.connected_query import Holder, Query, reading
from tests.support.only_long import LONG, only_long
from tests.support.spark_topics import create_topic, producer_of

pytestmark = pytest.mark.spark

BOUND = 32 << 20
LIMIT = 1.25
"""Of the bound: Spark and the JVM have byte arrays of their own."""
EVERY = 2.0
"""Seconds between two looks."""
SHARE = 1 if LONG else 8
"""Each shape has so many times fewer bytes."""


def live_bytes(spark: SparkSession) -> int:
    """The bytes of all live `byte[]` and of the connector's objects.

    Of two looks the lesser counts: while native code holds an array, jmap leaves out the collection, and counts what
    is dead.
    """
    return min(histogram(spark), histogram(spark))


def histogram(spark: SparkSession) -> int:
    jmap = shutil.which("jmap")
    assert jmap, "jmap is not there; install a JDK"
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    found = subprocess.run(
        [jmap, "-histo:live", str(pid)], capture_output=True, text=True, check=True, timeout=60
    )
    lines = (line.split() for line in found.stdout.splitlines())
    return sum(
        int(line[2])
        for line in lines
        if len(line) >= 4 and (line[3] == "[B" or "muster.connector." in line[3])
    )


class Looks:
    """Looks at the JVM until it is closed; `most` is the largest number of bytes above those at the beginning."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before = live_bytes(spark)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.found: list[int] = []
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.found.append(live_bytes(self._spark) - self._before)

    def close(self) -> None:
        self._over.set()
        self._thread.join(120)

    @property
    def most(self) -> int:
        return max(self.found)


def count(frame: DataFrame) -> list[Row]:
    """Read a batch to its end, and keep none of its records."""
    return frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").collect()


def records(query: Query) -> int:
    query.check()
    return sum(rows[0].records for _, rows in query.batches)


def compressible(size: int) -> bytes:
    """A value that packs to about a tenth."""
    return os.urandom(size // 10).hex().encode()[: size // 10] + b"x" * (size - size // 10)


def backlog(kafka: KafkaSettings, topic: str, partitions: int, size: int, number: int) -> int:
    """Write records, compressed; return how many."""
    settings = {"compression.type": "lz4", "linger.ms": "50", "batch.size": "500000"}
    producer = producer_of(kafka, **settings, **{"queue.buffering.max.kbytes": "200000"})
    values = [compressible(size) for _ in range(50)]
    for n in range(number):
        while True:
            try:
                producer.produce(topic, values[n % 50], partition=n // 20 % partitions)
                break
            except BufferError:
                producer.poll(0.5)
        producer.poll(0)
    assert producer.flush(240) == 0
    return number


@contextmanager
def looked_at(
    spark: SparkSession,
    kafka: KafkaSettings,
    topic: str,
    partitions: int,
    folder: Path,
    collect: Callable[[DataFrame], list[Row]] = count,
    before: int = 0,
) -> Iterator[tuple[Holder, Query, Looks]]:
    """A query that has read `before` records when the looks begin."""
    with Holder(kafka, f"group-{uuid.uuid4().hex[:8]}", most=500_000) as holder:
        holder.hold(topic, range(partitions))
        with reading(spark, holder, folder, collect, max_read_ahead=BOUND) as query:
            deadline = time.monotonic() + 120
            while not query.empty and records(query) < max(before, 1) and time.monotonic() < deadline:
                time.sleep(0.1)
            looks = Looks(spark)
            try:
                yield holder, query, looks
            finally:
                looks.close()


def check(looks: Looks) -> None:
    assert len(looks.found) >= 2
    assert looks.most <= LIMIT * BOUND, [f"{found / 2**20:.1f} MB" for found in looks.found]


@pytest.mark.parametrize(
    ("partitions", "size", "number"),
    [pytest.param(300, 1000, 700_000, marks=only_long), (100, 100_000, 7_000)],
    ids=["many partitions", "large records"],
)
def test_backlog_is_read_within_the_bound(
    spark: SparkSession,
    kafka: KafkaSettings,
    tmp_path: Path,
    eventually: Eventually,
    partitions: int,
    size: int,
    number: int,
) -> None:
    topic = create_topic(kafka, partitions)
    producer = producer_of(kafka)
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(30) == 0
    with looked_at(spark, kafka, topic, partitions, tmp_path / "c", before=1) as (holder, query, looks):
        written = 1 + backlog(kafka, topic, partitions, size, number // SHARE)
        eventually(lambda: records(query) >= written, 400, "all is read")
        eventually(lambda: len(looks.found) >= 2, 60)
        assert records(query) == written
        assert holder.agent.view().counters.read_ahead_bytes <= BOUND
    check(looks)


@only_long
def test_backlog_of_three_brokers_is_read_within_the_bound(
    spark: SparkSession, tmp_path: Path, eventually: Eventually
) -> None:
    brokers = Brokers(tmp_path / "kafka", [HERE] * 3)
    brokers.start()
    try:
        kafka = KafkaSettings(config={"bootstrap.servers": brokers.servers})
        topic = create_topic(kafka, 60)
        written = backlog(kafka, topic, 60, 1000, 400_000 // SHARE)
        with looked_at(spark, kafka, topic, 60, tmp_path / "c") as (_, query, looks):
            eventually(lambda: records(query) >= written, 400, "all is read")
            eventually(lambda: len(looks.found) >= 2, 60)
            assert records(query) == written
    finally:
        for broker in brokers:
            broker.kill()
    check(looks)


@only_long
def test_backlog_after_a_trickle_is_read_within_the_bound(
    spark: SparkSession, kafka: KafkaSettings, tmp_path: Path, eventually: Eventually
) -> None:
    partitions, seconds = 64, 30 if LONG else 8
    topic = create_topic(kafka, partitions)
    slow = threading.Event()

    def slowly(frame: DataFrame) -> list[Row]:
        rows = count(frame)
        slow.wait(3.0)
        return rows

    with looked_at(spark, kafka, topic, partitions, tmp_path / "c", slowly) as (_, query, looks):
        producer, written = producer_of(kafka, **{"linger.ms": "0"}), 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for partition in range(partitions):
                producer.produce(topic, b"x" * 100, partition=partition)
            written += partitions
            assert producer.flush(30) == 0
        slow.set()
        written += backlog(kafka, topic, partitions, 1000, 1_000_000 // SHARE)
        eventually(lambda: records(query) >= written, 400, "all is read")
        assert records(query) == written
    check(looks)


@pytest.mark.parametrize(
    ("bound", "said"),
    [(1 << 29, "max_read_ahead is 536870912 bytes, and the heap"), (100_000, "too few for 2 tasks")],
)
def test_bound_that_does_not_fit_fails_the_start(
    spark: SparkSession, kafka: KafkaSettings, tmp_path: Path, eventually: Eventually, bound: int, said: str
) -> None:
    with Holder(kafka, "g") as holder, reading(spark, holder, tmp_path / "c", max_read_ahead=bound) as query:
        assert query.query is not None
        eventually(lambda: query.query is not None and query.query.exception(), 60)
        assert said in str(query.query.exception())
