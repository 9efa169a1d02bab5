"""Write each batch as Parquet files, with the record's place in Kafka beside its content.

A batch that is delivered again is written again, so what stands there tells how often that happened; the demo counts
it. Where every record is to stand once, use `muster.sinks.DeltaSink`.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from muster.sinks.options import expand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks.batch import Batch


class ParquetHandler:
    """Appends each batch to the Parquet data set at `path`, in a folder of its own, `writer=[UUID]`.

    The folder is new for each process that writes, because two Spark jobs cannot append to one: whichever ends
    first deletes `_temporary`, and with it what the other has not yet put in its place. Readers see `writer` as
    a partition column.

    All columns of the source are kept. `topic`, `partition` and `offset` name a record for good, so a reader of
    the files can count what is missing and what is there twice. `${VAR}` in `path` is taken from the environment
    of the driver; a variable that is not set raises ValueError. `files` is the number of files to write for each
    batch, None one for each partition that has records.
    """

    def __init__(self, path: str, files: int | None = None) -> None:
        self.path = f"{expand(path).rstrip('/')}/writer={uuid.uuid4()}"
        self.files = files

    def __call__(self, batch_df: DataFrame, _batch: Batch) -> None:
        """Write one batch."""
        frame = batch_df if self.files is None else batch_df.coalesce(self.files)
        frame.write.mode("append").parquet(self.path)
