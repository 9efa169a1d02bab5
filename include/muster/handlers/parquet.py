"""Write each batch as Parquet files, with the record's place in Kafka beside its content."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class ParquetHandler:
    """Appends each batch to the Parquet data set at `path`.

    All columns of the source are kept. `topic`, `partition` and `offset` name a record for good, so whoever reads
    the files can count what is missing and what is there twice. `${VAR}` in `path` is taken from the environment
    of the driver; a variable that is not set raises ValueError. `files` is the number of files to write for each
    batch, None one for each partition that has records.
    """

    def __init__(self, path: str, files: int | None = None) -> None:
        self.path = _VARIABLE.sub(_value, path)
        self.files = files

    def __call__(self, batch_df: DataFrame, _batch_id: int) -> None:
        """Write one batch."""
        frame = batch_df if self.files is None else batch_df.coalesce(self.files)
        frame.write.mode("append").parquet(self.path)


def _value(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if not value:
        raise ValueError(f"'path' needs the environment variable {match[1]}, which is not set")
    return value
