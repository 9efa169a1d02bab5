"""A streaming query on the Spark source that remembers what each batch held."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.local_agent import LocalAgent


@dataclass
class Stream:
    """`batches` holds (batch id, rows) in the order in which the batches were processed."""

    batches: list[tuple[int, list[Row]]] = field(default_factory=list)
    query: StreamingQuery | None = None

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.batches for row in rows]

    def values(self, topic: str | None = None, partition: int | None = None) -> list[str]:
        """Values in the order of arrival."""
        return [
            bytes(row.value).decode()
            for row in self.rows
            if (topic is None or row.topic == topic) and (partition is None or row.partition == partition)
        ]

    def has(self, count: int) -> Callable[[], bool]:
        """Whether `count` records have arrived; an error of the query is raised, not waited for."""

        def enough() -> bool:
            self.check()
            return len(self.rows) >= count

        return enough

    def check(self) -> None:
        assert self.query is not None
        if failure := self.query.exception():
            raise failure

    def last_offset(self) -> dict[str, dict[str, list[int]]]:
        """The end of the last batch as Spark reports it."""
        assert self.query is not None
        progress: Any = self.query.lastProgress
        return json.loads(progress["sources"][0]["endOffset"]) if progress else {}


@contextmanager
def streaming(
    spark: SparkSession,
    agent: LocalAgent,
    checkpoint: Path,
    fail: Callable[[int], bool] = lambda batch_id: False,
    **options: object,
) -> Iterator[Stream]:
    """Run a query; `fail` says in which batch the handler raises, after it has seen the records."""
    stream = Stream()

    def process(batch: DataFrame, batch_id: int) -> None:
        stream.batches.append((batch_id, batch.collect()))
        if fail(batch_id):
            raise RuntimeError(f"handler failed in batch {batch_id}")

    shares = checkpoint.parent / "shares"
    shares.mkdir(exist_ok=True)
    source = spark.readStream.format("muster").options(**agent.options, shares=str(shares), **options)
    stream.query = (
        source.load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        yield stream
    finally:
        stream.query.stop()
