"""The handler with state by key: counts the flights of each carrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from muster.sinks import Batch


class Count(StatefulProcessor):
    """Counts the records of a key."""

    def init(self, handle: Any) -> None:
        """Declare the count."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """Yield the new count."""
        n = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((n,))
        yield Row(key=key[0], value=str(n))

    def close(self) -> None:
        """Keep nothing."""


class Carriers:
    """Writes each new count to `topic`."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        """Count one batch."""
        rows = batch_df.selectExpr("topic", "partition", "offset", "CAST(key AS STRING) AS key")
        batch.state.transformWithState(rows, ["key"], Count(), "key string, value string", topic=self._topic)
