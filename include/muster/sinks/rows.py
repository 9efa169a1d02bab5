"""The rows of a batch, by the partitions and offsets that they were made of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.coverage import Coverage
from muster.sinks.sink_error import SinkError

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

PLACE = ("topic", "partition", "offset")
"""The columns that say where a row comes from."""
CHUNK = 10_000
"""Records that are in memory at once, about."""
SENT = 1 << 20
"""Bytes of rows that Spark's driver handles as one value, of which it makes several copies."""

Pieces = Mapping[TopicPartition, list[OffsetRange]]
"""Of each partition the offsets that are still to be written."""


def chunks(frame: DataFrame, batch: Batch) -> Iterator[pa.Table]:
    """Compute `frame` and yield its rows, in the order of their offsets within a partition.

    A batch of more than `CHUNK` records is sorted by Spark and comes in parts of about that size, so that neither
    Spark's driver nor this process ever has all of it.

    Raises `SinkError` for rows that are none of the batch's, and what Spark raises if `frame` cannot be computed.
    """
    records = sum(end - begin for begin, end in batch.ranges.values())
    if lacking := {*PLACE} - set(frame.columns):
        raise SinkError(f"the rows have no column {', '.join(sorted(lacking))}; keep it in what is written")
    if records > CHUNK:
        frame = frame.repartitionByRange(-(-records // CHUNK), *PLACE).sortWithinPartitions(*PLACE)
    parts = (pa.ipc.open_stream(row.rows).read_all() for row in _as_ipc(frame, whole=records <= CHUNK))
    tables = (pa.concat_tables(found),) if records <= CHUNK and (found := list(parts)) else parts
    for table in tables:
        for rows in table.to_batches():
            for tp, held in by_partition(rows):
                check(tp, held, batch.ranges)
        yield table


def _as_ipc(frame: DataFrame, whole: bool) -> Iterable[Any]:
    sent = frame.mapInArrow(_serialized, "rows binary")
    return sent.collect() if whole else _by_part(sent.rdd)


def _by_part(rows: RDD[Any]) -> Iterator[Any]:
    """Yield the rows of one partition after the other; `toLocalIterator` keeps all of them in the driver's heap."""
    for number in range(rows.getNumPartitions()):
        yield from rows.context.runJob(rows, iter, [number])


def _serialized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as streams of Arrow's, each of about `SENT` bytes."""
    for batch in batches:
        at_once = max(1, batch.num_rows * SENT // max(1, batch.nbytes))
        for begin in range(0, batch.num_rows, at_once):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch.slice(begin, at_once))
            yield pa.RecordBatch.from_pydict({"rows": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def topic_id(batch: Batch, topic: str) -> str:
    """Return the id that what is stored of a topic goes by. Raises `SinkError` while it is not known."""
    if found := batch.topic_ids.get(topic, ""):
        return found
    raise SinkError(
        f"topic {topic!r}: its assignment has no topic id, and what is stored of it goes by that, so nothing is "
        "written; a coordinator of this version puts the id there in its next run"
    )


def note_left_out(batch: Batch, tp: TopicPartition, missing: list[OffsetRange]) -> None:
    """Note in the batch, and say, which of its offsets are left out if only those `missing` are to be written."""
    held = batch.ranges[tp]
    if missing != [held]:
        log.info("topic %r, partition %d: of offsets %d to %d, only %s are written", *tp, *held, missing)
        left = Coverage(missing).missing(*held)
        batch.left_out[tp] = Coverage([*batch.left_out.get(tp, ()), *left]).ranges


def missing_rows(table: pa.Table, pieces: Pieces) -> pa.Table:
    """Return the rows of `table` with offsets of `pieces`, in the order of their offsets within a partition."""
    found = [
        part
        for rows in table.to_batches()
        for tp, held in by_partition(rows)
        for piece in pieces.get(tp, [])
        if (part := within(held, piece)) is not None
    ]
    return pa.Table.from_batches(found, table.schema).sort_by([(name, "ascending") for name in PLACE])


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield slices of rows that follow one another and belong to one partition."""
    if batch.num_rows == 0:
        return
    if lacking := {*PLACE} - set(batch.schema.names):
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
