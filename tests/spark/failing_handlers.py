"""Handlers that the consumer job is started with in the tests."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from muster.handlers.parquet import ParquetHandler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HangsWhenAsked:
    """Writes Parquet, but does not come back when the file `trap` exists; then it makes the file `trap`.hangs."""

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        if self.trap.exists():
            Path(f"{self.trap}.hangs").touch()
            threading.Event().wait()
        self.write(batch_df, batch_id)


class FailsWhenAsked:
    """Writes Parquet, but raises, once, when the file `trap` exists."""

    def __init__(self, path: str, trap: str) -> None:
        self.write = ParquetHandler(path)
        self.trap = Path(trap)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        if self.trap.exists():
            self.trap.unlink()
            raise ValueError("the trap was set")
        self.write(batch_df, batch_id)
