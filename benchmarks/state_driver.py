"""One Spark driver of the state benchmark in a process of its own: Muster's `batch.state`, or Spark's own operator.

Both count and add up by key with the same class, over the same topic, and discard the output, or write it to a topic.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, Row, SparkSession

from devstack.connector import connector_jar
from devstack.jars import jars
from muster.consumer.query import use_scratch
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.spark.state_processors import Totals, TotalsInPandas, totals_in_arrow
from tests.support.state_query import StateQuery, begin_at_the_first_record
from tests.support.state_worker import dies_at

HEAP = "4g"
JAVA_OPTIONS = "-XX:+UseParallelGC"
ROWS, PANDAS, BULK = "rows", "pandas", "vectorised"
OUTPUT = "key string, n long, total long"
COLUMNS = ("CAST(key AS STRING) AS key", "CAST(CAST(value AS STRING) AS LONG) AS amount")
PLACE = ("topic", "partition", "offset")
STILL = 120.0
"""Seconds without a commit after which a reading has failed."""
STATE = "org.apache.spark.sql.execution.streaming.state"
TUNED = {
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}
"""What experts would set for Spark's own operator, beside a task a core and a batch size that amortises a batch."""


@dataclass(frozen=True)
class Order:
    """One reading of a topic with `partitions` partitions, for at most `seconds` after the first batch, or to its end
    at `records`.

    `most` are the records of a batch, `to` the topic for the output ('': none), `broker` the broker's process. With
    `step` the driver is killed there, in its second batch.
    """

    servers: str
    topic: str
    group: str
    folder: str
    partitions: int
    records: int
    most: int
    broker: int
    form: str = ROWS
    to: str = ""
    seconds: float = 1e9
    step: str = ""


@dataclass(frozen=True)
class Ended:
    """A batch: when its output was done, in seconds, its records, and CPU seconds up to then, without and of the
    broker."""

    at: float
    records: int
    cpu: float
    broker: float


@dataclass(frozen=True)
class Reading:
    """`memory` is the most proportional memory (PSS) of driver, JVM and Python processes, in bytes."""

    batches: list[Ended]
    memory: int


class Usage:
    """What this process, all below it, and the broker take."""

    def __init__(self, broker: int) -> None:
        self._me, self._broker = psutil.Process(), psutil.Process(broker)
        self._stopped = threading.Event()
        self.memory = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu(self) -> tuple[float, float]:
        return sum(map(_seconds, self._all())), _seconds(self._broker)

    def close(self) -> None:
        self._stopped.set()

    def _all(self) -> list[psutil.Process]:
        return [self._me, *self._me.children(recursive=True)]

    def _watch(self) -> None:
        while not self._stopped.wait(3):
            self.memory = max(self.memory, sum(_pss(process.pid) for process in self._all()))


def _seconds(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


def _pss(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return 0


class Announced(Totals):
    """Gives each total as a record."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in super().handleInputRows(key, rows, timerValues):
            yield Row(key=row.key, value=f"{row.n},{row.total}")


class Driver:
    """A session, and how batches of it are measured."""

    def __init__(self, folder: str, cores: int) -> None:
        self._folder = Path(folder)
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": HEAP,
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.driver.extraClassPath": self.classpath(),
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.local.dir": str(self._folder / "local"),
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            **self.tuning(),
        }
        self.spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
        atexit.register(self.spark.stop)

    def classpath(self) -> str:
        raise NotImplementedError

    def tuning(self) -> dict[str, str]:
        return {}

    @contextmanager
    def measured(self, order: Order) -> Iterator[tuple[list[Ended], Callable[[int], None]]]:
        """Yield the batches, and what is called at the end of one with its records."""
        usage, ended = Usage(order.broker), list[Ended]()
        began, (cpu, broker) = time.perf_counter(), usage.cpu()

        def done(records: int) -> None:
            now = usage.cpu()
            ended.append(Ended(time.perf_counter() - began, records, now[0] - cpu, now[1] - broker))

        try:
            yield ended, done
        finally:
            usage.close()
            self.memory = usage.memory

    @staticmethod
    def reached(ended: list[Ended], order: Order) -> bool:
        return bool(ended) and (
            ended[-1].at - ended[0].at > order.seconds or sum(one.records for one in ended) >= order.records
        )


class SparkItself(Driver):
    """Spark's own `transformWithState`, its source and its sinks."""

    def classpath(self) -> str:
        return f"{jars('spark-kafka')}/*"

    def tuning(self) -> dict[str, str]:
        return TUNED

    def read(self, order: Order) -> Reading:
        """Read a topic from its beginning."""
        with self.measured(order) as (ended, done):
            enough, working = threading.Event(), threading.Lock()

            def process(frame: DataFrame, _: int) -> None:
                with working:
                    if not enough.is_set():
                        self._write(frame, order)
                        done(0)

            query = (
                self._output(order).writeStream.foreachBatch(process).outputMode("update")
                .option("checkpointLocation", str(Path(order.folder) / "checkpoint"))
                .start()
            )  # fmt: skip
            try:
                while not ended or not enough.is_set():
                    if failure := query.exception():
                        raise failure
                    time.sleep(0.2)
                    counted = self._with_records(query, ended)
                    if self.reached(counted, order):
                        enough.set()
                with working:
                    pass
                found = self._with_records(query, ended)
            finally:
                query.stop()
        return Reading(found, self.memory)

    def _output(self, order: Order) -> DataFrame:
        rows = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", order.servers)
            .option("subscribe", order.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(order.most))
            .load()
            .selectExpr(*COLUMNS)
            .groupBy("key")
        )
        if order.to:
            return rows.transformWithState(Announced(), "key string, value string", "Update", "None")
        if order.form == PANDAS:
            return rows.transformWithStateInPandas(TotalsInPandas(), OUTPUT, "Update", "None")
        return rows.transformWithState(Totals(), OUTPUT, "Update", "None")

    def _write(self, frame: DataFrame, order: Order) -> None:
        if order.to:
            servers = {"kafka.bootstrap.servers": order.servers}
            frame.write.format("kafka").options(**servers).option("topic", order.to).save()
        else:
            frame.write.format("noop").mode("overwrite").save()

    @staticmethod
    def _with_records(query: Any, ended: list[Ended]) -> list[Ended]:
        """Return the batches that are done and whose number of records Spark has said."""
        counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        return [
            Ended(one.at, records, one.cpu, one.broker) for one, records in zip(ended, counts, strict=False)
        ]


class Muster(Driver):
    """Muster's consumer, with its agent, commits and stores."""

    def classpath(self) -> str:
        return str(connector_jar())

    def read(self, order: Order) -> Reading:
        """Read a topic from where its group is, until all is committed, or for `order.seconds`."""
        use_scratch(self.spark)
        kafka = KafkaSettings(config={"bootstrap.servers": order.servers})
        with self.measured(order) as (ended, done), closing(GroupOffsets(kafka, order.group)) as group:
            places = [(order.topic, partition) for partition in range(order.partitions)]
            if group.committed(places)[places[0]] is None:
                begin_at_the_first_record(group, order.topic, order.partitions)
            if order.step:
                dies_at(order.step, _Death(order.partitions))

            def handle(frame: DataFrame, batch: Batch) -> None:
                out = _call(frame, batch, order)
                if out is not None:
                    out.write.format("noop").mode("overwrite").save()
                done(sum(end - begin for begin, end in batch.ranges.values()))

            stores = Path(order.folder) / "stores"
            with StateQuery(self.spark, kafka, group, stores, handle, most=order.most) as query:
                query.hold(order.topic, range(order.partitions))
                came, at = 0, time.monotonic()
                while came < order.records and not (ended and ended[-1].at - ended[0].at > order.seconds):
                    time.sleep(0.2)
                    now = sum(offset or 0 for offset in group.committed(places).values())
                    if now > came:
                        came, at = now, time.monotonic()
                    elif time.monotonic() - at > STILL:
                        raise RuntimeError(f"no offset in {STILL:.0f} s beyond {came:,}: {query.errors()}")
        return Reading(ended, self.memory)


def _call(frame: DataFrame, batch: Batch, order: Order) -> DataFrame | None:
    rows, state = frame.selectExpr(*PLACE, *COLUMNS), batch.state
    found: DataFrame | None
    if order.form == BULK:
        variables = {"totals": "n long, total long"}
        found = state.transformWithStateInArrow(rows, totals_in_arrow, variables, OUTPUT)
    elif order.form == PANDAS:
        found = state.transformWithStateInPandas(rows, ["key"], TotalsInPandas(), OUTPUT)
    elif order.to:
        to = {"topic": order.to}
        found = state.transformWithState(rows, ["key"], Announced(), "key string, value string", **to)
    else:
        found = state.transformWithState(rows, ["key"], Totals(), OUTPUT)
    return found


class _Death:
    """Kills the driver with all that it has started, at the second commit of a shard or so."""

    def __init__(self, partitions: int) -> None:
        self._left = partitions + 3

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.killpg(os.getpgid(0), signal.SIGKILL)
