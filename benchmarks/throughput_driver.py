"""One Spark driver of the throughput benchmark, with one of the sources, in a process of its own.

For each order it reads a whole topic once or follows a trickle. All sources run through the same code: Spark in local
mode, `foreachBatch`, the same trigger.
"""

from __future__ import annotations

import atexit
import itertools
import json
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from devstack.connector import connector_jar
from devstack.jars import jars
from muster.consumer.agent import Agent
from muster.consumer.connector import FORMAT
from muster.consumer.query import AT_ONCE, scratch_uri, use_scratch
from muster.settings.connections import KafkaSettings
from tests.support.connected_query import Holder

LZ4, ZSTD = "lz4", "zstd"
_MOST_RECORDS, _MOST_BYTES = 300_000, 100_000_000
SETTLE = 3.0
"""Seconds of a trickle after the first batch that do not count, because the query is starting."""
HEAP = "4g"
"""A driver's, with either source: with 2 GB Spark's own runs out of it with 8 MB a fetch."""
JAVA_OPTIONS = "-XX:+UseParallelGC"
"""A driver's, but for the source as Spark ships it: either source reads more with it than with G1."""
MUSTER, TUNED, SHIPPED = "muster", "tuned", "shipped"
"""The sources: Muster's, and Spark's own as its experts would set it and as Spark ships it."""
BACK_TO_BACK, TRIGGER = 1, 200
"""Milliseconds between two batches: one right after the other, which is the quickest with either source; and, of a
trickle, as a consumer has it by default, too."""
NOOP, PARQUET, TOUCH, COLLECT = "noop", "parquet", "touch", "collect"
"""The sinks: nothing, files, an aggregate over each byte of `value`, and (for a trickle) the driver."""
WARM_UP = "warm-up"
"""A new driver's first sink: `noop` for `COLD` batches, in which its start is measured, then each sink in turns."""
COLD = 2

FULL = 0.95
"""The part of the largest batch from which on a batch counts as full: bounds are by partition, and rounded."""


@dataclass(frozen=True, order=True)
class Input:
    """A topic of records with values of `size` bytes each, spread evenly over `partitions`."""

    size: int
    partitions: int
    codec: str = LZ4

    @property
    def most(self) -> int:
        """The largest batch of either source, in records."""
        return min(_MOST_RECORDS, _MOST_BYTES // self.size)

    def __str__(self) -> str:
        return f"{self.size:,} B, {self.partitions} partition{'s'[: self.partitions - 1]}, {self.codec}"


@dataclass(frozen=True)
class Order:
    """One reading of a topic of `records` records that are as `given` says; `trigger` is in ms.

    `options` are further options of the source, by Spark's names; `patience` are seconds for the reading. With
    `until` (seconds after the first batch) it follows the topic for so long instead, and the records' values are the
    nanoseconds at which they were produced.
    """

    servers: str
    topic: str
    given: Input
    records: int
    sink: str = NOOP
    trigger: int = BACK_TO_BACK
    until: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)
    patience: float = 600.0


@dataclass(frozen=True)
class Batch:
    """A batch that held records: its end, in seconds from the query's start, and the CPU seconds up to then.

    CPU and memory are of the driver and its JVM; no other process has a part in it.
    """

    end: float
    records: int
    cpu: float


@dataclass(frozen=True)
class Reading:
    """One reading of a topic. `memory` is the most that was resident, in bytes.

    `delays` are those of a trickle's records, in seconds from produced to handled. `spent` are milliseconds a batch
    by Spark's own account.
    """

    batches: list[Batch]
    memory: int
    delays: list[float] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)


class Usage:
    """CPU seconds and the most memory of this process and of the JVM below it, as the kernel counts them.

    It costs next to nothing while something is measured. The most memory is that since `Usage` was made.
    """

    def __init__(self) -> None:
        me = psutil.Process()
        self._processes = [me, jvm_of(me)]
        for process in self._processes:  # a new peak of its memory (proc(5))
            Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")

    def cpu(self) -> float:
        return sum(sum(process.cpu_times()[:4]) for process in self._processes)

    def memory(self) -> int:
        return sum(_peak(process.pid) for process in self._processes)


def jvm_of(driver: psutil.Process) -> psutil.Process:
    return next(process for process in driver.children() if process.name() == "java")


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


class Spark:
    """A session with one of the sources."""

    def __init__(self, source: str, cores: int, java_options: str, heap: str) -> None:
        self._source = source
        self._scratch = tempfile.TemporaryDirectory(prefix="bench-throughput-")
        self._folders = (Path(self._scratch.name) / f"{number}" for number in itertools.count())
        self._spark = _session(source, cores, java_options, heap, Path(self._scratch.name))
        atexit.register(self._spark.stop)

    def read(self, order: Order) -> Reading:
        with _source(self._spark, self._source, order) as (reader, agent):
            return _read(order, reader, agent, next(self._folders))


def _session(source: str, cores: int, java_options: str, heap: str, folder: Path) -> SparkSession:
    options: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": heap,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.driver.extraClassPath": str(connector_jar())
        if source == MUSTER
        else f"{jars('spark-kafka')}/*",
    }
    if source != SHIPPED:
        options["spark.driver.extraJavaOptions"] = f"{JAVA_OPTIONS} {java_options}"
    if source == TUNED:
        # With the 64 of Spark's default a hundred partitions take turns, and each makes its consumer again.
        options["spark.kafka.consumer.cache.capacity"] = "256"
    session = SparkSession.builder.master(f"local[{cores}]").config(map=options).getOrCreate()
    use_scratch(session)
    return session


@contextmanager
def _source(
    spark: SparkSession, source: str, order: Order
) -> Iterator[tuple[DataStreamReader, Agent | None]]:
    if source != MUSTER:
        options = {
            "kafka.bootstrap.servers": order.servers,
            "subscribe": order.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(order.given.most),
            **order.options,
        }
        yield spark.readStream.format("kafka").options(**options), None
        return
    kafka = KafkaSettings(config={"bootstrap.servers": order.servers})
    group = f"bench-{uuid.uuid4().hex[:8]}"
    with Holder(
        kafka,
        group,
        order.given.most,
        source_options=order.options,
        fencing=True,
        interval=order.trigger / 1e3,
    ) as holder:
        holder.hold(order.topic, range(order.given.partitions))
        token = holder.agent.query_started()
        yield spark.readStream.format(FORMAT).options(agent=holder.url, token=token), holder.agent
        holder.agent.query_ended(False)


def _read(order: Order, source: DataStreamReader, agent: Agent | None, folder: Path) -> Reading:
    ends: list[tuple[float, float]] = []
    sink = _Sink(order.sink, folder / "out")
    usage = Usage()
    enough, working = threading.Event(), threading.Lock()

    def process(batch: DataFrame, _: int) -> None:
        with working:
            plan = agent.batch_started() if agent else None
            if not enough.is_set() and (plan is None or not plan.empty):
                sink.write(batch)
                ends.append((time.perf_counter() - began, usage.cpu()))
            if agent and plan:
                agent.batch_done(plan, None)

    cpu, began = usage.cpu(), time.perf_counter()
    query = (
        source.load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", (scratch_uri if agent else str)(folder / "checkpoint"))
        .trigger(processingTime=AT_ONCE if agent else f"{order.trigger} milliseconds")
        .start()
    )
    try:
        deadline = time.monotonic() + order.patience
        while not (
            bool(ends) and time.perf_counter() - began - ends[0][0] > order.until
            if order.until
            else _reached(query) >= order.records
        ):
            if failure := query.exception():
                raise failure
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read in {order.patience:g} s")
            time.sleep(0.1)
        progress = [batch for batch in query.recentProgress if _span(batch)]  # those that held records
    finally:
        enough.set()
        with working:  # Spark does not always survive being stopped within a batch
            pass
        query.stop()
    if not order.until:
        sink.check(order.records)
    return Reading(
        [Batch(end, _span(p), at - cpu) for (end, at), p in zip(ends, progress, strict=not order.until)],
        usage.memory(),
        sink.delays(),
        _spent(progress),
    )


def _reached(query: StreamingQuery) -> int:
    """Count the records up to the end of the last batch. Only that is asked for: all would take the more, the more
    batches there were."""
    last = query.lastProgress
    return _sum(last["sources"][0]["endOffset"]) if last else 0


def _span(progress: Any) -> int:
    of_source = progress["sources"][0]
    return _sum(of_source["endOffset"]) - _sum(of_source["startOffset"])


def _sum(text: str | None) -> int:
    """Return the sum of all partitions' offsets; Muster's offsets are ranges, whose ends count."""
    topics = (json.loads(text) if text else None) or {}
    offsets = [at for of_topic in topics.values() for at in of_topic.values()]
    return sum(at if isinstance(at, int) else at[1] for at in offsets)


def _spent(progress: Any) -> dict[str, float]:
    """Return milliseconds a batch for each of its parts, by Spark's own account, without the first of several."""
    later = [p["durationMs"] for p in progress[1:]] or [p["durationMs"] for p in progress]
    return {part: sum(p.get(part, 0) for p in later) / len(later) for part in sorted(later[-1])}


class _Sink:
    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder = name, folder
        self._batches = self._touched = 0
        self._arrived: list[tuple[int, int]] = []

    def write(self, batch: DataFrame) -> None:
        name = self._name
        if name == WARM_UP:
            name = (NOOP, PARQUET, TOUCH)[max(0, self._batches - COLD) % 3]
        self._batches += 1
        if name == NOOP:
            batch.write.format("noop").mode("overwrite").save()
        elif name == PARQUET:
            batch.write.mode("append").parquet(str(self._folder))
        elif name == TOUCH:
            rows = batch.agg(F.count("value").alias("n"), F.sum(F.crc32("value"))).collect()
            self._touched += rows[0].n
        else:
            values = [bytes(row.value) for row in batch.select("value").collect()]
            now = time.time_ns()
            self._arrived.extend((int(value), now) for value in values)

    def check(self, records: int) -> None:
        """Raise RuntimeError if there were not so many; with `noop` nothing tells it."""
        found = self._touched if self._name == TOUCH else records
        if self._name == PARQUET:
            found = sum(pq.read_metadata(file).num_rows for file in self._folder.rglob("*.parquet"))
        if found != records:
            raise RuntimeError(f"{found} records arrived, {records} are in the topic")

    def delays(self) -> list[float]:
        """Return the seconds, without those of the time in which the query starts."""
        settled = self._arrived[0][1] + int(SETTLE * 1e9) if self._arrived else 0
        return [(at - made) / 1e9 for made, at in self._arrived if made > settled]
