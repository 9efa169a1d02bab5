"""The handler of the consumers under fault: an exactly-once sink that also notes each batch it was given.

The sink says what stands there in the end; the notes say what was delivered, and so what was delivered twice.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from muster.sinks import Batch, DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
