"""One Spark driver of the throughput benchmark, with one of the sources, in a process of its own.

For each order, a line of JSON on its standard input, it reads a whole topic once or follows a trickle, and prints
what it measured as JSON. All sources run through the same code: Spark in local mode, `foreachBatch`, the same
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

PATIENCE = 600.0
"""Seconds for one reading of a topic."""
SETTLE = 3.0
"""Seconds of a trickle after the first batch that do not count, because the query is starting."""
HEAP = "4g"
"""A driver's, with either source: with 2 GB Spark's own runs out of it with 8 MB a fetch."""
JAVA_OPTIONS = "-XX:+UseParallelGC"
"""A driver's, but for the source as Spark ships it: either source reads more with it than with G1."""
_POLL = 0.1
_FORGET_PEAK = "5"
"""What to write to `clear_refs` of a process in `/proc` for a new peak of its memory (proc(5))."""

READY = "ready"
MUSTER, TUNED, SHIPPED = "muster", "tuned", "shipped"
"""The sources: Muster's, and Spark's own as its experts would set it and as Spark ships it."""
NOOP, PARQUET, TOUCH, COLLECT = "noop", "parquet", "touch", "collect"
"""The sinks: nothing, files, an aggregate over each byte of `value`, and (for a trickle) the driver."""
WARM_UP = "warm-up"
"""A new driver's first sink: `noop` for `COLD` batches, in which its start is measured, then each sink in turns."""
COLD = 2

FULL = 0.95
"""The part of the largest batch from which on a batch counts as full: bounds are by partition, and rounded."""


@dataclass(frozen=True)
class Order:
    """One reading of a topic of `records` records. `most` is the largest batch, in records; `trigger` is in ms.

    `options` are further options of the source, by Spark's names; `patience` are seconds for the reading. With
    `until` (seconds after the first batch) it follows the topic for so long instead, and the records' values are the
    nanoseconds at which they were produced.
    """

    servers: str
    topic: str
    partitions: int
    records: int
    most: int
    sink: str
    trigger: int
    until: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)
    patience: float = PATIENCE

    def text(self) -> str:
        """Write it as `parse` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Order:
        """Read what `text` wrote."""
        return cls(**json.loads(text))


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
        for process in self._processes:
            Path(f"/proc/{process.pid}/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")

    def cpu(self) -> float:
        """Return the CPU seconds so far, with those of processes that have ended."""
        return sum(sum(process.cpu_times()[:4]) for process in self._processes)

    def memory(self) -> int:
        """Return the most that was resident, in bytes."""
        return sum(_peak(process.pid) for process in self._processes)


def jvm_of(driver: psutil.Process) -> psutil.Process:
    """Return the JVM of a driver."""
    return next(process for process in driver.children() if process.name() == "java")


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def main(source: str, cores: int, java_options: str, heap: str) -> None:
    """Carry out the orders on standard input, a line each, and answer each with a line of JSON."""
    with tempfile.TemporaryDirectory(prefix="bench-throughput-") as folder:
        spark = _session(source, cores, java_options, heap, Path(folder))
        try:
            print(READY, flush=True)
            for number, line in enumerate(sys.stdin):
                order = Order.parse(line)
                with _source(spark, source, order) as (reader, agent):
                    reading = _read(order, reader, agent, Path(folder) / f"{number}")
                print(json.dumps(asdict(reading)), flush=True)
        finally:
            spark.stop()


def _session(source: str, cores: int, java_options: str, heap: str, folder: Path) -> SparkSession:
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", heap)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    if source != SHIPPED:
        builder = builder.config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} {java_options}")
    if source == TUNED:
        # With the 64 of Spark's default a hundred partitions take turns, and each makes its consumer again.
        builder = builder.config("spark.kafka.consumer.cache.capacity", "256")
    path = str(connector_jar()) if source == MUSTER else f"{jars('spark-kafka')}/*"
    session = builder.config("spark.driver.extraClassPath", path).getOrCreate()
    use_scratch(session)
    return session


@contextmanager
def _source(
    spark: SparkSession, source: str, order: Order
) -> Iterator[tuple[DataStreamReader, Agent | None]]:
    if source != MUSTER:
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
    group = f"bench-{uuid.uuid4().hex[:8]}"
    with Holder(
        kafka, group, order.most, source_options=order.options, fencing=True, interval=order.trigger / 1e3
    ) as holder:
        holder.hold(order.topic, range(order.partitions))
        token = holder.agent.query_started()
        yield (
            spark.readStream.format(FORMAT).options(agent=holder.url, token=token),
            holder.agent,
        )
        holder.agent.query_ended(False)


def _read(order: Order, source: DataStreamReader, agent: Agent | None, folder: Path) -> Reading:
    ends: list[tuple[float, float]] = []
    sink = _SINKS[order.sink](folder / "out")
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
        if order.until:
            _wait(query, order, lambda: bool(ends) and time.perf_counter() - began - ends[0][0] > order.until)
        else:
            _wait(query, order, lambda: _reached(query) >= order.records)
        progress = _progress(query)
    finally:
        enough.set()
        with working:  # Spark does not always survive being stopped within a batch
            pass
        query.stop()
    whole = not order.until
    if whole:
        sink.check(order.records)
    return Reading(
        [Batch(end, _span(p), at - cpu) for (end, at), p in zip(ends, progress, strict=whole)],
        usage.memory(),
        sink.delays() if isinstance(sink, _Collect) else [],
        _spent(progress),
    )


def _progress(query: StreamingQuery) -> list[Any]:
    """Return the progress of the batches that held records."""
    return [progress for progress in query.recentProgress if _span(progress)]


def _wait(query: StreamingQuery, order: Order, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + order.patience
    while not done():
        if failure := query.exception():
            raise failure
        if time.monotonic() > deadline:
            raise TimeoutError(f"not read in {order.patience:g} s")
        time.sleep(_POLL)


def _reached(query: StreamingQuery) -> int:
    """Count the records up to the end of the last batch. Only that is asked for: all would take the more, the more
    batches there were."""
    last = query.lastProgress
    return _sum(last["sources"][0]["endOffset"], 1) if last else 0


def _span(progress: Any) -> int:
    """Count the records that a batch held."""
    of_source = progress["sources"][0]
    return _sum(of_source["endOffset"], 1) - _sum(of_source["startOffset"], 1)


def _sum(text: str | None, bound: int) -> int:
    """Return the sum of all partitions' offsets; Muster's offsets are ranges."""
    topics = (json.loads(text) if text else None) or {}
    return sum(
        at if isinstance(at, int) else at[bound] for of_topic in topics.values() for at in of_topic.values()
    )


def _spent(progress: Any) -> dict[str, float]:
    """Return milliseconds a batch for each of its parts, by Spark's own account, without the first of several."""
    later = [p["durationMs"] for p in progress[1:]] or [p["durationMs"] for p in progress]
    return {part: sum(p.get(part, 0) for p in later) / len(later) for part in sorted(later[-1])}


class _Noop:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, batch: DataFrame) -> None:
        """Take each record, and do nothing with it."""
        batch.write.format("noop").mode("overwrite").save()

    def check(self, records: int) -> None:
        """Raise RuntimeError if there were not so many; nothing tells it here."""


class _Parquet(_Noop):
    def write(self, batch: DataFrame) -> None:
        batch.write.mode("append").parquet(str(self._folder))

    def check(self, records: int) -> None:
        written = sum(pq.read_metadata(file).num_rows for file in self._folder.rglob("*.parquet"))
        _expect(written, records)


class _Touch(_Noop):
    _seen = 0

    def write(self, batch: DataFrame) -> None:
        rows = batch.agg(F.count("value").alias("n"), F.sum(F.crc32("value"))).collect()
        self._seen += rows[0].n

    def check(self, records: int) -> None:
        _expect(self._seen, records)


class _WarmUp(_Noop):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sinks = [sink(folder) for sink in (_Noop, _Parquet, _Touch)]
        self._written = 0

    def write(self, batch: DataFrame) -> None:
        turn = max(0, self._written - COLD)
        self._sinks[turn % len(self._sinks)].write(batch)
        self._written += 1


class _Collect(_Noop):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._arrived: list[tuple[int, int]] = []

    def write(self, batch: DataFrame) -> None:
        values = [bytes(row.value) for row in batch.select("value").collect()]
        now = time.time_ns()
        self._arrived.extend((int(value), now) for value in values)

    def delays(self) -> list[float]:
        """Return the seconds, without those of the time in which the query starts."""
        settled = self._arrived[0][1] + int(SETTLE * 1e9) if self._arrived else 0
        return [(at - made) / 1e9 for made, at in self._arrived if made > settled]


def _expect(found: int, records: int) -> None:
    if found != records:
        raise RuntimeError(f"{found} records arrived, {records} are in the topic")


_SINKS: Mapping[str, type[_Noop]] = {
    NOOP: _Noop,
    PARQUET: _Parquet,
    TOUCH: _Touch,
    COLLECT: _Collect,
    WARM_UP: _WarmUp,
}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
