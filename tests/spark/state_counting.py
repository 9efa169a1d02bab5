"""A handler of consumer jobs that counts the records of each key and writes the counts to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor

from muster.sinks import Batch


class Count(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((n,))
        yield Row(key=key[0], value=str(n))

    def close(self) -> None:
        pass


class Counting:
    def __init__(self, topic: str, path: str) -> None:
        self.topic = topic

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        rows = frame.selectExpr("topic", "partition", "offset", "CAST(key AS STRING) AS key")
        batch.state.transformWithState(rows, ["key"], Count(), "key string, value string", topic=self.topic)
