"""Handlers that the consumer job is started with in the tests."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

from muster.handlers.parquet import ParquetHandler
from muster.sinks import RejectedRecordsError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from muster.sinks import Batch, TopicPartition


class HangsWhenAsked:
    """Writes Parquet, but does not come back when the file `trap` exists; then it makes the file `trap`.hangs."""

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        if self.trap.exists():
            Path(f"{self.trap}.hangs").touch()
            threading.Event().wait()
        self.write(batch_df, batch)


class FailsWhenAsked:
    """Writes Parquet, but raises, once, when the file `trap` exists, and whenever the batch has the record that the
    file `trap`.poison names, `[PARTITION] [OFFSET]`. It rejects the record that `trap`.reject names, and raises with
    the one that `trap`.names names.

    All that it is called with is noted in the file `trap`.notes, a line of JSON each: the name, the partitions, and
    of a batch the attempt. How long Spark took for each batch is noted in `trap`.took, in seconds, when the next one
    comes.
    """

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def _note(self, name: str, partitions: Iterable[TopicPartition] = (), attempt: int = 0) -> None:
        with Path(f"{self.trap}.notes").open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, sorted(partitions), attempt]) + "\n")

    def _note_time(self) -> None:
        (query,) = SparkSession.builder.getOrCreate().streams.active
        with Path(f"{self.trap}.took").open("a", encoding="utf-8") as file:
            if query.lastProgress is not None:
                file.write(f"{query.lastProgress['durationMs']['triggerExecution'] / 1000}\n")

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def standby(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("standby", partitions)

    def close(self) -> None:
        self._note("close")

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        self._note("batch", batch.ranges, batch.attempt)
        self._note_time()
        poison = Path(f"{self.trap}.poison")
        if poison.exists():
            partition, offset = map(int, poison.read_text(encoding="utf-8").split())
            if any(p == partition and begin <= offset < end for (_, p), (begin, end) in batch.ranges.items()):
                raise ValueError("poison")
        if bad := self._named(batch_df, "names"):
            raise RejectedRecordsError(bad, "not mine")
        if bad := self._named(batch_df, "reject"):
            batch.reject(bad, ValueError("no date"))
            ((_, partition, offset),) = bad
            batch_df = batch_df.where(f"NOT (partition = {partition} AND offset = {offset})")
        if self.trap.exists():
            self.trap.unlink()
            raise ValueError("the trap was set")
        self.write(batch_df, batch)

    def _named(self, batch_df: DataFrame, how: str) -> list[tuple[str, int, int]]:
        file = Path(f"{self.trap}.{how}")
        if not file.exists():
            return []
        partition, offset = map(int, file.read_text(encoding="utf-8").split())
        bad = batch_df.where(f"partition = {partition} AND offset = {offset}")
        return [tuple(row) for row in bad.select("topic", "partition", "offset").collect()]


class TasksWaitWhenAsked:
    """Writes Parquet, with tasks that stop in the middle while there are files beside `trap`.

    While `trap`.hold is there, the handler waits before it reads, and makes `trap`.held. While `trap` is there, the
    first attempt of each of `tasks` (their numbers in the stage) waits when it has read something. Each attempt of a
    task makes `trap`.[TASK].[ATTEMPT] when it has read something.
    """

    def __init__(self, path: str, trap: str, tasks: Collection[int]) -> None:
        self.write = ParquetHandler(path)
        self.trap = trap
        self.tasks = frozenset(tasks)

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        while Path(f"{self.trap}.hold").exists():
            Path(f"{self.trap}.held").touch()
            threading.Event().wait(0.05)
        frame = batch_df.mapInArrow(partial(_wait, Path(self.trap), self.tasks), batch_df.schema)
        self.write(frame, batch)


class KillsItsProcess:
    """Takes all records, but ends all processes of its job at once where a batch has the value `kills`. The ranges of
    each batch, which have records, are noted in the file `notes` before, a line of JSON each."""

    def __init__(self, path: str, notes: str) -> None:
        self.notes = Path(notes)

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        with self.notes.open("a", encoding="utf-8") as file:
            for (_, partition), (begin, end) in batch.ranges.items():
                file.write(json.dumps([partition, begin, end]) + "\n")
        if not batch_df.where("CAST(value AS STRING) = 'kills'").isEmpty():
            os.killpg(0, signal.SIGKILL)


class KillsItsWorker:
    """Takes all records in Python workers, which end at once with one whose value is `kills`."""

    def __init__(self, path: str) -> None:
        pass

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        batch_df.mapInArrow(_kill, batch_df.schema).write.format("noop").mode("append").save()


def _kill(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        if b"kills" in batch.column("value").to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def _wait(
    trap: Path, tasks: frozenset[int], batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    task, attempt = context.partitionId(), context.attemptNumber()
    for batch in batches:
        yield batch
        Path(f"{trap}.{task}.{attempt}").touch()
        while task in tasks and attempt == 0 and trap.exists():
            threading.Event().wait(0.05)


class TakesItsTime:
    """Takes so many seconds a record as the file `trap` says, and stays in its batch while `trap`.hold is there.

    Each batch is noted in `trap`.notes, a line of JSON: its records, the bytes of their values, and the seconds that
    each record took.
    """

    def __init__(self, path: str, trap: str) -> None:
        self.trap = trap

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        sizes = [len(row.value) for row in batch_df.select("value").collect()]
        pace = float(Path(self.trap).read_text(encoding="utf-8"))
        time.sleep(len(sizes) * pace)
        while Path(f"{self.trap}.hold").exists():
            time.sleep(0.05)
        with Path(f"{self.trap}.notes").open("a", encoding="utf-8") as file:
            file.write(json.dumps([len(sizes), sum(sizes), pace]) + "\n")
