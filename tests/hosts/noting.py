"""The handler of the consumers on several hosts: it notes what it is given, when it begins and when it is done.

While the file `hang/[CONSUMER]` is there, it hangs.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks import Batch

Place = tuple[str, int, int]
"""Topic, generation (which of the topics of that name), partition."""


class Noting:
    """Writes two lines a batch to a file of its own in `folder`: one before it does anything, one when it is done."""

    def __init__(self, folder: str, consumer: str, host: int, incarnation: str) -> None:
        self._who = {"consumer": consumer, "host": host, "incarnation": incarnation}
        self._file = Path(folder) / "batches" / f"{consumer}@{host}-{incarnation}.jsonl"
        self._hang = Path(folder) / "hang" / consumer

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        """Note the batch."""
        began = time.time()
        table = batch_df.toArrow()
        ranges = sorted(_ranges(zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True)))
        note = uuid.uuid4().hex
        self._write({"batch": note, "began": began, "ranges": ranges, **self._who})
        while self._hang.exists():
            time.sleep(0.05)
        self._write({"batch": note, "ended": time.time()})

    def _write(self, line: dict[str, object]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


_COLUMNS = ("topic", "partition", "offset", "value")


def _ranges(records: Iterable[tuple[str, int, int, bytes]]) -> Iterator[tuple[str, int, int, int, int]]:
    """The records as ranges without gaps: topic, generation, partition, first offset, end (exclusive)."""
    found: dict[Place, list[list[int]]] = {}
    for topic, partition, offset, value in records:
        ranges = found.setdefault((topic, json.loads(value)["generation"], partition), [])
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] += 1
        else:
            ranges.append([offset, offset + 1])
    for place, ranges in found.items():
        for first, end in ranges:
            yield (*place, first, end)
