"""A handler that joins two topics by key within an hour, for consumer jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, Row

from muster.handlers.joins import StreamJoin
from muster.sinks import Batch


def pair(key: Any, left: Any, right: Any) -> Row:
    return Row(key=key[0], value=f"{left.text} {right.text}")


class Joins:
    """`path` is that of jobs whose handlers write files."""

    def __init__(self, path: str, left: str, right: str, output: str) -> None:
        self.left, self.right, self.output = left, right, output

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        rows = batch_df.selectExpr(
            *("topic", "partition", "offset", "timestamp"),
            "CAST(key AS STRING) AS key",
            "CAST(value AS STRING) AS text",
        )
        hour = timedelta(hours=1)
        join = StreamJoin(self.left, self.right, "text string", "text string", pair, before=hour, after=hour)
        batch.state.transformWithState(
            rows,
            ["key"],
            join,
            "key string, value string",
            timeMode="EventTime",
            eventTimeColumnName="timestamp",
            delay="2 hours",
            topic=self.output,
        )
