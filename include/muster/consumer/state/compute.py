"""What runs in the scan's own tasks: the rows of a shard and its state become output and changes.

One process reads all records of a partition, so nothing is shuffled. The rows of a key come in the order of their
offsets, and the keys in that of their first row. A shard's result is one row beside those of the output: what it is
of, its changes, and the records for a topic.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from muster.consumer.state.bulk import BulkState
from muster.consumer.state.errors import FailedTimer, StateError, StateStoreError, TimerFailedError
from muster.consumer.state.handle import (
    EVENT_TIME,
    NO_TIME,
    PROCESSING_TIME,
    Below,
    Handle,
    Overlay,
    key_bytes,
    key_of,
)
from muster.consumer.state.position import Variable
from muster.consumer.state.store import Readers
from muster.core.model import TopicPartition

ROW, PANDAS, ARROW = "Row", "pandas", "Arrow"
SHARD, CHANGES, OUTPUT = "__muster_shard", "__muster_changes", "__muster_output"
RESULT = [pa.field(SHARD, pa.string()), pa.field(CHANGES, pa.binary()), pa.field(OUTPUT, pa.binary())]
PAIRS = pa.schema([("k", pa.binary()), ("v", pa.binary())])
_readers = Readers()
_SHOWN = 100
"""Characters of a key in an error."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard as a batch finds it: where its store is, and how far that is; and what is fixed for the batch."""

    folder: str
    upto: int
    generation: int
    now: int
    top: int | None
    known: Mapping[str, Variable]
    """The variables as they were written."""
    declared: Mapping[str, Variable]
    """Those that the processor has."""
    tp: TopicPartition
    done: int = 0
    """Records before that offset do not change the state."""
    dropped: frozenset[tuple[int, str]] = frozenset()
    """Timers that a person dropped: their moments, and the digests of their keys."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done with the rows of a batch. `user` is a processor, or a function for Arrow."""

    form: str
    user: Any
    keys: tuple[str, ...]
    columns: pa.Schema
    """The output's."""
    time_mode: str
    event_time: str
    delay: int
    """Milliseconds that the watermark is behind."""
    to_topic: bool
    shards: Mapping[TopicPartition, ShardTask]

    @property
    def returned(self) -> list[pa.Field]:
        """The columns of the rows that the tasks return."""
        return [*([] if self.to_topic else self.columns), *RESULT]


@dataclass(frozen=True, slots=True)
class Result:
    """What a batch made of one shard."""

    output: pa.Table
    keys: list[bytes]
    values: list[bytes | None]
    top: int | None
    late: int


def in_task(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what `mapInArrow` takes."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _run(work, batches)

    return run


def _run(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    rows = pa.Table.from_batches(filled)
    schema = pa.schema(work.returned)
    for tp, of_shard in _by_shard(rows):
        if tp not in work.shards:
            raise StateError(f"topic {tp[0]!r}, partition {tp[1]} is not in the batch; pass on its own rows")
        task = work.shards[tp]
        below = _readers.at(Path(task.folder))
        try:
            if below.mark.upto != task.upto:
                raise StateStoreError(
                    f"the state store in {task.folder} is at {below.mark.upto} of its changelog, and the batch "
                    f"begins at {task.upto}"
                )
            result = compute(work, task, below, of_shard)
        finally:
            below.close()
        if not work.to_topic:
            for batch in result.output.to_batches():
                yield _widened(batch, schema)
        said = {
            "topic": tp[0],
            "partition": tp[1],
            "rows": of_shard.num_rows,
            "top": result.top,
            "late": result.late,
        }
        sent = _written(result.output) if work.to_topic and result.output.num_rows else None
        changes = packed(result.keys, result.values)
        yield pa.record_batch(
            [
                *[pa.nulls(1, field.type) for field in schema if field.name not in {SHARD, CHANGES, OUTPUT}],
                pa.array([json.dumps(said)]),
                pa.array([changes], pa.binary()),
                pa.array([sent], pa.binary()),
            ],
            schema=schema,
        )


def _by_shard(rows: pa.Table) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """Yield the rows of each partition, in the order of their offsets."""
    codes = _codes([rows.column("topic"), rows.column("partition")])
    for code in range(int(codes.max()) + 1):
        of_shard = rows if codes.max() == 0 else rows.filter(pa.array(codes == code))
        offsets = of_shard.column("offset").to_numpy()
        if np.any(offsets[1:] < offsets[:-1]):
            of_shard = of_shard.take(pa.array(np.argsort(offsets, kind="stable")))
        yield (of_shard.column("topic")[0].as_py(), of_shard.column("partition")[0].as_py()), of_shard


def compute(work: Work, task: ShardTask, below: Below, rows: pa.Table | None) -> Result:
    """Compute one shard, with its rows, or without for what is due. Raises what the user's code raises."""
    watermark = None if task.top is None else task.top - work.delay
    top, late = task.top, 0
    if rows is not None and task.done:
        rows = rows.filter(pc.greater_equal(rows.column("offset"), task.done))
    if rows is not None and work.time_mode == EVENT_TIME:
        moments = _milliseconds(rows.column(work.event_time))
        known = moments[~np.isnan(moments)]
        if len(known):
            top = int(known.max()) if top is None else max(top, int(known.max()))
        if watermark is not None:
            keep = ~(moments < watermark)
            late = int(len(keep) - keep.sum())
            rows = rows.filter(pa.array(keep)) if late else rows
    overlay = Overlay(below, task.generation)
    if work.form == ARROW:
        state = BulkState(overlay, task.declared)
        table = rows if rows is not None else None
        out = _checked(work.user(table, state), work) if table is not None and table.num_rows else _none(work)
    else:
        out = _process(work, task, overlay, rows, watermark)
    return Result(out, *overlay.written(), top, late)


def _process(
    work: Work, task: ShardTask, overlay: Overlay, rows: pa.Table | None, watermark: int | None
) -> pa.Table:
    handle = Handle(overlay, task.declared, task.now, work.time_mode != NO_TIME, parsed=True)
    for name, one in task.known.items():
        if name not in task.declared or task.declared[name].number != one.number:
            overlay.clear(one.number)
    processor: Any = work.user
    outputs: list[Any] = []
    processor.init(handle)
    now = task.now if work.time_mode == PROCESSING_TIME else -1
    at = max(0, watermark or 0) if work.time_mode == EVENT_TIME else -1
    values = TimerValues(now, at)
    handle.expire()
    if rows is not None and rows.num_rows:
        groups = _groups(work.keys, rows)
        overlay.prefetch([prefix + data for prefix in handle.single for data, _, _ in groups.keys])
        give = _pandas if work.form == PANDAS else _rows
        for (data, key, _), part in zip(groups.keys, give(groups), strict=True):
            handle.key = data
            outputs.extend(_called(processor.handleInputRows(key, part, values)))
    until = {PROCESSING_TIME: now, EVENT_TIME: at}.get(work.time_mode)
    for moment, data in handle.due_timers(until) if until is not None else ():
        handle.key, key = data, key_of(data)
        handle.drop_timer(moment, data)
        if task.dropped and (moment, digest_of(data)) in task.dropped:
            continue
        try:
            found = processor.handleExpiredTimer(key, values, ExpiredTimerInfo(moment))
            outputs.extend(_called(found))
        except StateStoreError:
            raise
        except Exception as error:
            when = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
            what = " ".join(f"{type(error).__name__}: {error}".split())
            why = f"the timer of key {str(key)[:_SHOWN]} at {when} failed: {what}"
            raise TimerFailedError(str(FailedTimer(task.tp, moment, digest_of(data), why))) from error
    processor.close()
    return _table_of(work, outputs)


def digest_of(key: bytes) -> str:
    """Return what a key is known by in an error, which may be long."""
    return hashlib.sha256(key).hexdigest()[:16]


def _called(found: Iterable[Any] | None) -> Iterable[Any]:
    return found if found is not None else ()


@dataclass(frozen=True, slots=True)
class _Groups:
    rows: pa.Table
    keys: list[tuple[bytes, tuple[Any, ...], tuple[int, int]]]
    """Of each key: as it is written, as it is, and which rows are its."""


def _groups(names: Sequence[str], rows: pa.Table) -> _Groups:
    codes = _codes([rows.column(name) for name in names])
    order = np.argsort(codes, kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
    ends = np.r_[starts[1:], len(sorted_codes)]
    of_first = ordered.take(pa.array(starts))
    keys = zip(*(of_first.column(name).to_pylist() for name in names), strict=True)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return _Groups(ordered, [(key_bytes(key), key, span) for key, span in zip(keys, spans, strict=True)])


def _codes(columns: Sequence[pa.ChunkedArray]) -> Any:
    """Give rows with the same in these columns one number, from 0 in the order in which they first appear."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        array = column.combine_chunks()
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        encoded = array.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        codes = rank[inverse]
    return codes


def _rows(groups: _Groups) -> Iterator[Iterator[Row]]:
    make = Row(*groups.rows.column_names)
    columns = [_python(column) for column in groups.rows.columns]
    rows = list(zip(*columns, strict=True))
    for _, _, (begin, end) in groups.keys:
        yield (make(*row) for row in rows[begin:end])


def _pandas(groups: _Groups) -> Iterator[Iterator[Any]]:
    frame = groups.rows.to_pandas()
    for _, _, (begin, end) in groups.keys:
        yield iter((frame.iloc[begin:end].reset_index(drop=True),))


def _python(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = column.to_pylist()
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return [None if one is None else _local(one) for one in found]
    return found


def _local(moment: datetime) -> datetime:
    """Return a moment as Spark gives it to Python: in the local time zone, without saying so."""
    return moment.astimezone().replace(tzinfo=None)


def _milliseconds(column: pa.ChunkedArray) -> Any:
    return pc.cast(pc.cast(column, pa.timestamp("ms"), safe=False), pa.int64()).to_numpy().astype(float)


def _table_of(work: Work, outputs: list[Any]) -> pa.Table:
    if not outputs:
        return _none(work)
    if work.form == PANDAS:
        frame = pd.concat(outputs, ignore_index=True)
        if missing := [name for name in work.columns.names if name not in frame.columns]:
            raise StateError(
                f"the output lacks the columns {missing} of its schema; it has {list(frame.columns)}"
            )
        return pa.Table.from_pandas(frame[work.columns.names], schema=work.columns, preserve_index=False)
    names = work.columns.names
    given = getattr(outputs[0], "__fields__", names)
    if sorted(given) != sorted(names):
        raise StateError(f"the output has the fields {list(given)}, and its schema {names}")
    columns = list(zip(*outputs, strict=True))
    at = {name: columns[index] for index, name in enumerate(given)}
    return pa.table({field.name: _array(at[field.name], field.type) for field in work.columns})


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:  # without a zone it is the local one, as in Spark
        values = [one.astimezone() if isinstance(one, datetime) else one for one in values]
    return pa.array(values, kind)


def _checked(found: Any, work: Work) -> pa.Table:
    if found is None:
        return _none(work)
    if not isinstance(found, pa.Table):
        raise StateError(f"the function gave a {type(found).__name__}; give a pyarrow Table, or None")
    if missing := [name for name in work.columns.names if name not in found.column_names]:
        raise StateError(f"the output lacks the columns {missing} of its schema; it has {found.column_names}")
    return found.select(work.columns.names).cast(work.columns)


def _none(work: Work) -> pa.Table:
    return work.columns.empty_table()


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    count = len(RESULT)
    arrays = [*batch.columns, *[pa.nulls(batch.num_rows, field.type) for field in RESULT]]
    assert len(arrays) == len(schema) and count  # noqa: S101
    return pa.record_batch(arrays, schema=schema)


def _written(output: pa.Table) -> bytes:
    keys = output.column("key") if "key" in output.column_names else pa.nulls(output.num_rows)
    pairs = pa.table({"k": pc.cast(keys, pa.binary()), "v": pc.cast(output.column("value"), pa.binary())})
    return _ipc(pairs)


def packed(keys: list[bytes], values: list[bytes | None]) -> bytes:
    """Write changes as one text, for `unpacked`."""
    return _ipc(pa.table({"k": pa.array(keys, pa.binary()), "v": pa.array(values, pa.binary())}))


def _ipc(pairs: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PAIRS, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(pairs.cast(PAIRS))
    return bytes(sink.getvalue().to_pybytes())


def unpacked(data: bytes | None) -> tuple[list[Any], list[Any]]:
    """Read pairs."""
    if data is None:
        return [], []
    table = pa.ipc.open_stream(data).read_all()
    return table.column("k").to_pylist(), table.column("v").to_pylist()
