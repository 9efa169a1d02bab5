"""One Spark driver of the throughput benchmark, with one of the two sources, in a process of its own.

For each order, a line of JSON on its standard input, it reads a whole topic once or follows a trickle, and prints
what it measured as JSON. Both sources run through the same code: Spark in local mode, `foreachBatch`, the same
trigger.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from devstack.connector import connector_jar
from devstack.jars import jars
from muster.consumer.agent import Agent
from muster.consumer.connector import FORMAT
from muster.consumer.query import SCRATCH
from muster.settings.connections import KafkaSettings
from tests.spark.connected import Holder

PATIENCE = 600.0
"""Seconds for one reading of a topic."""
SETTLE = 3.0
"""Seconds of a trickle after the first batch that do not count, because the query is starting."""
HEAP = "2g"
"""A driver's, with either source: with 1 GB Spark's own runs out of it on 100 partitions of 1 kB."""
_POLL = 0.1

READY = "ready"
MUSTER, SPARK = "muster", "spark"
NOOP, PARQUET, COLLECT = "noop", "parquet", "collect"


@dataclass(frozen=True)
class Order:
    """One reading of a topic. `most` is the largest batch, in records; `trigger` is in ms.

    `options` are further options of Spark's source. With `until` (seconds after the first batch) it follows the topic
    for so long instead of reading `records` of it, and the records' values are the nanoseconds at which they were
    produced.
    """

    servers: str
    topic: str
    partitions: int
    records: int
    most: int
    sink: str
    trigger: int = 200
    until: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """As `parse` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Order:
        """Read what `text` wrote."""
        return cls(**json.loads(text))


@dataclass
class Reading:
    """One reading of a topic. Times in seconds from the query's start, `first` and `last` the ends of those batches.

    `cpu` in seconds and `memory` (the most, resident) in bytes are of the driver, its JVM and all Python workers;
    `steady_cpu` between `first` and `last`, and `jvm` is the JVM's part of it. `delays` are those of a trickle's
    records, in seconds from produced to handled.
    """

    batches: int = 0
    first: float = 0.0
    first_records: int = 0
    last: float = 0.0
    records: int = 0
    cpu: float = 0.0
    steady_cpu: float = 0.0
    jvm: float = 0.0
    memory: int = 0
    workers: int = 0
    delays: list[float] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)


class Usage:
    """CPU seconds and the most memory of this process and all below it."""

    def __init__(self) -> None:
        self._me = psutil.Process()
        self._stop = threading.Event()
        self.memory = 0
        self.workers = 0
        self._began = self.cpu()[0]
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """CPU seconds since the start."""
        self._look()
        self._stop.set()
        self._thread.join()
        return self.cpu()[0] - self._began

    def cpu(self) -> tuple[float, float]:
        """CPU seconds so far, with those of processes that have ended, and the JVM's part of them."""
        total, jvm = 0.0, 0.0
        for process in [self._me, *self._me.children(recursive=True)]:
            try:
                times = process.cpu_times()
                total += sum(times[:4])
                jvm += sum(times[:2]) if process.name() == "java" else 0.0
            except psutil.NoSuchProcess:
                continue
        return total, jvm

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    def _look(self) -> None:
        total, workers = 0, 0
        for process in [self._me, *self._me.children(recursive=True)]:
            try:
                total += process.memory_info().rss
                workers += "python" in process.name()
            except psutil.NoSuchProcess:
                continue
        self.memory = max(self.memory, total)
        self.workers = max(self.workers, workers)


def main(source: str, cores: int) -> None:
    """Carry out the orders on standard input, a line each, and answer each with a line of JSON."""
    with tempfile.TemporaryDirectory(prefix="bench-throughput-") as folder:
        spark = _session(source, cores, Path(folder))
        try:
            print(READY, flush=True)
            for number, line in enumerate(sys.stdin):
                order = Order.parse(line)
                with _source(spark, source, order) as (reader, agent):
                    reading = _read(order, reader, agent, Path(folder) / f"{number}")
                print(json.dumps(asdict(reading)), flush=True)
        finally:
            spark.stop()


def _session(source: str, cores: int, folder: Path) -> SparkSession:
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", HEAP)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        # On a busy machine a Python worker may take longer to come up than the 15 s it has by default.
        .config("spark.python.authenticate.socketTimeout", "120s")
    )
    path = f"{jars('spark-kafka')}/*" if source == SPARK else str(connector_jar())
    session = builder.config("spark.driver.extraClassPath", path).getOrCreate()
    for name, value in SCRATCH.items():
        session.conf.set(name, value)
    return session


@contextmanager
def _source(
    spark: SparkSession, source: str, order: Order
) -> Iterator[tuple[DataStreamReader, Agent | None]]:
    if source == SPARK:
        yield (
            spark.readStream.format("kafka").options(
                **{
                    "kafka.bootstrap.servers": order.servers,
                    "subscribe": order.topic,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": str(order.most),
                    **order.options,
                }
            ),
            None,
        )
        return
    kafka = KafkaSettings(config={"bootstrap.servers": order.servers})
    with Holder(kafka, f"bench-{uuid.uuid4().hex[:8]}", order.most) as holder:
        holder.hold(order.topic, range(order.partitions))
        token = holder.agent.query_started()
        yield (
            spark.readStream.format(FORMAT).options(agent=holder.url, token=token, **order.options),
            holder.agent,
        )
        holder.agent.query_ended(False)


def _read(order: Order, source: DataStreamReader, agent: Agent | None, folder: Path) -> Reading:
    sink = order.sink
    reading = Reading()
    ends: list[float] = []
    spent: list[tuple[float, float]] = []
    arrived: list[tuple[int, int]] = []
    write = _SINKS[sink](folder / "out", arrived)

    def process(batch: DataFrame, _: int) -> None:
        if agent is None:
            write(batch)
        else:
            plan = agent.batch_started()
            if not plan.empty:
                write(batch)
            agent.batch_done(plan, processed=True)
            if plan.empty:
                return
        ends.append(time.perf_counter())
        if not order.until:
            spent.append(usage.cpu())

    usage = Usage()
    began = time.perf_counter()
    query = (
        source.load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{order.trigger} milliseconds")
        .start()
    )
    try:
        if order.until:
            _wait(query, lambda: bool(ends) and time.perf_counter() - ends[0] > order.until)
        else:
            _wait(query, lambda: _reached(query) >= order.records)
        reading.cpu, reading.memory, reading.workers = usage.end(), usage.memory, usage.workers
        progress: Any = [p for p in query.recentProgress if _span(p)]
    finally:
        query.stop()
    settled = arrived[0][1] + int(SETTLE * 1e9) if arrived else 0
    reading.delays = [(at - made) / 1e9 for made, at in arrived if made > settled]
    reading.batches = len(progress)
    reading.records = sum(_span(p) for p in progress)
    reading.first_records = _span(progress[0])
    reading.first, reading.last = ends[0] - began, ends[-1] - began
    if spent:
        reading.steady_cpu, reading.jvm = (spent[-1][n] - spent[0][n] for n in (0, 1))
    reading.spent = _spent(progress)
    if sink == PARQUET:
        written = sum(pq.read_metadata(file).num_rows for file in (folder / "out").rglob("*.parquet"))
        if written != order.records:
            raise RuntimeError(f"{order.topic}: {written} records written, {order.records} in the topic")
    return reading


def _wait(query: StreamingQuery, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if failure := query.exception():
            raise failure
        if time.monotonic() > deadline:
            raise TimeoutError(f"not read in {PATIENCE:g} s")
        time.sleep(_POLL)


def _reached(query: StreamingQuery) -> int:
    last: Any = query.lastProgress
    return _sum(last["sources"][0]["endOffset"], 1) if last else 0


def _span(progress: Any) -> int:
    """How many records a batch held."""
    of_source = progress["sources"][0]
    return _sum(of_source["endOffset"], 1) - _sum(of_source["startOffset"], 1)


def _sum(text: str | None, bound: int) -> int:
    """The sum of all partitions' offsets; Muster's offsets are ranges."""
    topics = (json.loads(text) if text else None) or {}
    return sum(
        at if isinstance(at, int) else at[bound] for of_topic in topics.values() for at in of_topic.values()
    )


def _spent(progress: Any) -> dict[str, float]:
    """Milliseconds a batch for each of its parts, by Spark's own account, without the first batch."""
    later = [p["durationMs"] for p in progress[1:]] or [p["durationMs"] for p in progress]
    return {part: sum(p.get(part, 0) for p in later) / len(later) for part in sorted(later[-1])}


Arrived = list[tuple[int, int]]
"""When each record was produced and when it was handled, in nanoseconds of the machine's clock."""


def _noop(_folder: Path, _arrived: Arrived) -> Callable[[DataFrame], None]:
    return lambda batch: batch.write.format("noop").mode("overwrite").save()


def _parquet(folder: Path, _arrived: Arrived) -> Callable[[DataFrame], None]:
    return lambda batch: batch.write.mode("append").parquet(str(folder))


def _collect(_folder: Path, arrived: Arrived) -> Callable[[DataFrame], None]:
    def write(batch: DataFrame) -> None:
        values = [bytes(row.value) for row in batch.select("value").collect()]
        now = time.time_ns()
        arrived.extend((int(value), now) for value in values)

    return write


_SINKS: Mapping[str, Callable[[Path, Arrived], Callable[[DataFrame], None]]] = {
    NOOP: _noop,
    PARQUET: _parquet,
    COLLECT: _collect,
}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
