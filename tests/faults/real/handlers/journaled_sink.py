"""The handler of the consumers under fault: an exactly-once sink that also notes each batch it was given, and counts.

The sink says what stands there in the end; the notes say what was delivered, and so what was delivered twice. The
count of a partition is state by key, and each new one a record of the topic `counts`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from muster.sinks import Batch, DeltaSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


class Counted(StatefulProcessor):
    """Counts the records of a partition, none of which has a key."""

    def init(self, handle: Any) -> None:
        """Declare the count."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add to it, and announce it."""
        n = (self._count.get() or (0,))[0]
        for row in rows:
            n, partition = n + 1, row.partition
        self._count.update((n,))
        yield Row(value=f"{partition} {n}")

    def close(self) -> None:
        """Keep nothing."""


class JournaledSink(DeltaSink):
    """Appends a line a batch to a file of its own below `journal`, before anything is written."""

    def __init__(self, path: str, journal: str) -> None:
        super().__init__(path)
        self._journal = Path(journal) / f"{os.getpid()}-{uuid.uuid4().hex}.jsonl"

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        """Note the batch, and write it."""
        ranges = [[partition, *held] for (_, partition), held in batch.ranges.items()]
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"pid": os.getpid(), "at": time.time(), "ranges": ranges}) + "\n")
        super().__call__(batch_df, batch)
        rows = batch_df.select("topic", "partition", "offset", "key")
        batch.state.transformWithState(rows, ["key"], Counted(), "value string", topic="counts")
