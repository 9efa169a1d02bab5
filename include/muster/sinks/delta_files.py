"""The data files of a Delta Lake table, as the tasks of a batch write them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.rows import Pieces, by_partition, check, within
from muster.sinks.sink_error import SinkError, plain

ROWS, BYTES = 64_000, 32 << 20
"""A row group ends at so many rows, or so many bytes in memory."""
FILE_BYTES = 128 << 20
"""A task begins another file once this one has so many bytes."""
WRITTEN = "path string, bytes long, partition_values string, stats string"
"""A row for each file, in Spark's words; `added` reads them."""

Values = tuple[str | None, ...]
"""The values of the table's partition columns, as the log has them."""


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of one task with offsets of `pieces` to the table at `uri`; one call a task.

    `columns` are the table's, in order, and name its partition columns in `partition_by`. Until a commit names them,
    no reader sees the files; a vacuum removes those that were never committed.
    """

    uri: str
    options: Mapping[str, str]
    columns: pa.Schema
    partition_by: tuple[str, ...]
    ranges: Mapping[TopicPartition, OffsetRange]
    pieces: Pieces

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row of `WRITTEN` for each file.

        Raises `SinkError` for rows that are not the batch's, and if a file cannot be written.
        """
        try:
            yield from self._write(batches)
        except (DeltaError, OSError) as error:
            raise SinkError(f"Delta table {self.uri}: a file cannot be written: {plain(error)}") from error

    def _write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files: dict[Values, _File] = {}
        for batch in batches:
            for rows in self._wanted(batch):
                for values, part in _by_values(conform(rows, self.columns), self.partition_by):
                    file = files.get(values) or _File(self, values)
                    files[values] = file
                    if file.add(part):
                        yield files.pop(values).close()
        for file in files.values():
            yield file.close()

    def _wanted(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for tp, rows in by_partition(batch):
            check(tp, rows, self.ranges)
            for piece in self.pieces.get(tp, []):
                if (held := within(rows, piece)) is not None:
                    yield held


def conform(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return `rows` with the columns of a table: by name, widened, null where the rows have none.

    Raises pyarrow's errors for a value that does not fit; `muster.sinks.delta_columns` has compared the types before.
    """
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def added(written: Iterable[Any]) -> list[AddAction]:
    """Return the entries of a commit for the files that tasks have written."""
    now = int(time.time() * 1000)
    return [
        AddAction(row["path"], row["bytes"], json.loads(row["partition_values"]), now, True, row["stats"])
        for row in written
    ]


class _Stream:
    """A new file of the table's store, for pyarrow."""

    def __init__(self, uri: str, options: Mapping[str, str], path: str) -> None:
        # The public stream of deltalake 1.6 hands pyarrow's buffers to a writer that takes bytes only, so this takes
        # the one below it, `_handler`; tests/integration/test_delta_sink.py writes by it.
        self._stream = DeltaStorageHandler(uri, dict(options))._handler.open_output_stream(path)
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        taken = bytes(memoryview(data))
        self._stream.write(taken)
        self.bytes += len(taken)
        return len(taken)

    def flush(self) -> None:
        """Nothing: the store has the file when it is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


class _File:
    """One data file that is being written."""

    def __init__(self, writer: FileWriter, values: Values) -> None:
        self._by = writer.partition_by
        self._values = values
        self._path = f"part-{uuid.uuid4()}.snappy.parquet"
        self._stream = _Stream(writer.uri, writer.options, self._path)
        kept = [field for field in writer.columns if field.name not in self._by]
        self._schema = pa.schema(kept)
        self._parquet = pq.ParquetWriter(self._stream, self._schema, compression="snappy")
        self._group: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> bool:
        """Take more rows; True if the file has enough."""
        self._group.append(rows.select(self._schema.names))
        if sum(r.num_rows for r in self._group) >= ROWS or sum(r.nbytes for r in self._group) >= BYTES:
            self._flush()
        return self._stream.bytes >= FILE_BYTES

    def close(self) -> pa.RecordBatch:
        """Have the file complete in its store; returns its row of `WRITTEN`."""
        self._flush()
        self._parquet.close()
        self._stream.close()
        row = {
            "path": self._path,
            "bytes": self._stream.bytes,
            "partition_values": json.dumps(dict(zip(self._by, self._values, strict=True))),
            "stats": json.dumps(_stats(self._parquet.writer.metadata)),
        }
        return pa.RecordBatch.from_pylist([row])

    def _flush(self) -> None:
        if self._group:
            self._parquet.write_table(pa.Table.from_batches(self._group, self._schema))
            self._group = []


def _stats(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics that the log has of a file: its rows, and the bounds of its columns of whole numbers."""
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if found is not None and found.has_min_max and isinstance(found.min, int):
                least[name] = min(least.get(name, found.min), found.min)
                most[name] = max(most.get(name, found.max), found.max)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most}


def _by_values(rows: pa.RecordBatch, by: tuple[str, ...]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each combination of partition values."""
    if not by:
        yield (), rows
        return
    first, *rest = by
    column = rows.column(first)
    for value in pc.unique(column):
        chosen = rows.filter(pc.is_null(column) if not value.is_valid else pc.equal(column, value))
        for values, part in _by_values(chosen, tuple(rest)):
            yield (_text(value), *values), part


def _text(value: pa.Scalar) -> str | None:
    """Return a partition value as the protocol of Delta Lake writes it, null for an empty text too."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type):
        return str(value.cast(pa.timestamp("us")).as_py().isoformat(" "))
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    return str(value.as_py()) or None
