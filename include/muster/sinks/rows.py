"""The rows of a batch, by the partitions and offsets that they were made of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.sink_error import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

Pieces = Mapping[TopicPartition, list[OffsetRange]]
"""Of each partition the offsets that are still to be written."""


def collected(frame: DataFrame, batch: Batch) -> pa.Table:
    """Compute `frame` and return its rows, all of them in the memory of the driver.

    Raises `SinkError` for rows that are none of the batch's, and what Spark raises if `frame` cannot be computed.
    """
    table = frame.toArrow()
    for rows in table.to_batches():
        for tp, held in by_partition(rows):
            check(tp, held, batch.ranges)
    return table


def log_left_out(tp: TopicPartition, held: OffsetRange, missing: list[OffsetRange]) -> None:
    """Say it if of the offsets `held` of a batch only those `missing` are still to be written."""
    if missing != [held]:
        log.info("topic %r, partition %d: of offsets %d to %d, only %s are written", *tp, *held, missing)


def missing_rows(table: pa.Table, pieces: Pieces) -> pa.Table:
    """Return the rows of `table` with offsets of `pieces`, in the order of their offsets within a partition."""
    found = [
        part
        for rows in table.to_batches()
        for tp, held in by_partition(rows)
        for piece in pieces.get(tp, [])
        if (part := within(held, piece)) is not None
    ]
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    return pa.Table.from_batches(found, table.schema).sort_by(order)


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield slices of rows that follow one another and belong to one partition."""
    if batch.num_rows == 0:
        return
    if lacking := {"topic", "partition", "offset"} - set(batch.schema.names):
        raise SinkError(f"the rows have no column {', '.join(sorted(lacking))}; keep it in what is written")
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = batch.column("partition").to_numpy(zero_copy_only=False).astype(np.int64)
    changes = np.flatnonzero((np.diff(codes) != 0) | (np.diff(numbers) != 0)) + 1
    bounds = [0, *changes.tolist(), batch.num_rows]
    for begin, end in pairwise(bounds):
        yield (names[codes[begin]], int(numbers[begin])), batch.slice(begin, end - begin)


def check(tp: TopicPartition, rows: pa.RecordBatch, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
    """Raise `SinkError` for rows that are none of the batch's."""
    begin, end = ranges.get(tp, (0, 0))
    offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    if offsets.min() < begin or offsets.max() >= end:
        raise SinkError(
            f"topic {tp[0]!r}, partition {tp[1]}: rows with offsets {offsets.min()} to {offsets.max()}, but the "
            f"batch holds {begin} to {end - 1}; write what was made of this batch, and nothing else"
        )


def within(rows: pa.RecordBatch, piece: OffsetRange) -> pa.RecordBatch | None:
    """Return the rows with offsets of `piece`, None if there are none."""
    offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    mask = (offsets >= piece[0]) & (offsets < piece[1])
    if mask.all():
        return rows
    return rows.filter(pa.array(mask)) if mask.any() else None
