"""The handlers of the week's consumers: they note what they are given, and fail with poison records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.hosts.noting import Noting
from tests.week.looks import answer_looks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks import Batch

POISON = b'"poison"'


class Watched(Noting):
    """Its process also answers looks."""

    def __init__(self, folder: str, consumer: str, host: int, incarnation: str) -> None:
        super().__init__(folder, consumer, host, incarnation)
        answer_looks(consumer)


class Picky(Noting):
    """Fails with a batch that holds a poison record, before it has noted anything."""

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        """Note the batch, or raise ValueError."""
        if any(POISON in value for value in batch_df.toArrow()["value"].to_pylist()):
            raise ValueError("a poison record")
        super().__call__(batch_df, batch)
