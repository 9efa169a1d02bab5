"""The handler of Muster's consumers in the failover benchmark: takes the records to the driver, and notes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.failover_deliveries import Notes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks import Batch


class Noting:
    """Notes each batch below `folder` once its records are here."""

    def __init__(self, folder: str) -> None:
        self._notes = Notes(Path(folder))

    def __call__(self, batch_df: DataFrame, _batch: Batch) -> None:
        """Collect the batch, and note it."""
        table = batch_df.select("partition", "offset").toArrow()
        columns = (table.column(name).to_pylist() for name in ("partition", "offset"))
        self._notes.batch(zip(*columns, strict=True))
