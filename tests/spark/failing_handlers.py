"""Handlers that the consumer job is started with in the tests."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from muster.handlers.parquet import ParquetHandler

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame


class HangsWhenAsked:
    """Writes Parquet, but does not come back when the file `trap` exists; then it makes the file `trap`.hangs."""

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        if self.trap.exists():
            Path(f"{self.trap}.hangs").touch()
            threading.Event().wait()
        self.write(batch_df, batch_id)


class FailsWhenAsked:
    """Writes Parquet, but raises, once, when the file `trap` exists."""

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        if self.trap.exists():
            self.trap.unlink()
            raise ValueError("the trap was set")
        self.write(batch_df, batch_id)


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

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        while Path(f"{self.trap}.hold").exists():
            Path(f"{self.trap}.held").touch()
            threading.Event().wait(0.05)
        frame = batch_df.mapInArrow(partial(_wait, Path(self.trap), self.tasks), batch_df.schema)
        self.write(frame, batch_id)


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
