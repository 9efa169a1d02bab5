"""The handlers of the week's consumers: they note what they are given, and fail with poison records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.hosts.noting import Noting
from tests.week.looks import Answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks import Batch

POISON = b'"poison"'


class Watched(Noting):
    """Its process also answers looks."""

    def __init__(self, folder: str, consumer: str, host: int, incarnation: str) -> None:
        super().__init__(folder, consumer, host, incarnation)
        Answers(consumer, by_itself=True)


class Picky(Noting):
    """Cannot take a poison record: rejects it by its name, or else fails before it has noted anything."""

    def __init__(self, folder: str, consumer: str, host: int, incarnation: str, rejects: bool) -> None:
        super().__init__(folder, consumer, host, incarnation)
        self._rejects = rejects

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        """Note the batch, or raise ValueError."""
        table = batch_df.toArrow()
        rows = zip(
            *(table[name].to_pylist() for name in ("topic", "partition", "offset", "value")), strict=True
        )
        bad = [(topic, partition, offset) for topic, partition, offset, value in rows if POISON in value]
        if bad and not self._rejects:
            raise ValueError("a poison record")
        if bad:
            batch.reject(bad, "a poison record")
        super().__call__(batch_df, batch)
