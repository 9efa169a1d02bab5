"""Handlers that the consumer job is started with in the tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from muster.handlers.parquet import ParquetHandler

if TYPE_CHECKING:
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
    file `trap`.poison names, `[PARTITION] [OFFSET]`.

    All that it is called with is noted in the file `trap`.notes, a line of JSON each: the name, the partitions, and
    of a batch the attempt.
    """

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def _note(self, name: str, partitions: Iterable[TopicPartition] = (), attempt: int = 0) -> None:
        with Path(f"{self.trap}.notes").open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, sorted(partitions), attempt]) + "\n")

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
        poison = Path(f"{self.trap}.poison")
        if poison.exists():
            partition, offset = map(int, poison.read_text(encoding="utf-8").split())
            if any(p == partition and begin <= offset < end for (_, p), (begin, end) in batch.ranges.items()):
                raise ValueError("poison")
        if self.trap.exists():
            self.trap.unlink()
            raise ValueError("the trap was set")
        self.write(batch_df, batch)
