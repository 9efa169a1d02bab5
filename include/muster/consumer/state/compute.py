"""What runs in the scan's own tasks: the rows of a shard and its state become output and changes.

One process reads all records of a shard, so nothing is shuffled. The rows of a key come topic by topic, as the shard
names them, and of each in the order of their offsets; the keys in that of their first row. A shard's result is one
row beside those of the output: what it is of, its changes, and the records for a topic.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.cloudpickle import dumps, loads
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from muster.consumer.state.bulk import BulkState
from muster.consumer.state.errors import FailedTimer, StateError, StateStoreError, TimerFailedError
from muster.consumer.state.executor import Brought, Planned, planned_reader
from muster.consumer.state.handle import (
    EVENT_TIME,
    NO_TIME,
    PROCESSING_TIME,
    Below,
    Handle,
    Overlay,
    TooManyChangesError,
    key_bytes,
    key_of,
)
from muster.consumer.state.initial import LARGEST as LARGEST_INITIAL
from muster.consumer.state.initial import Initial
from muster.consumer.state.position import Place, Position, Variable
from muster.consumer.state.store import Reader, Readers
from muster.core.model import TopicPartition

ROW, PANDAS, ARROW = "Row", "pandas", "Arrow"
SHARD, CHANGES, OUTPUT = "__muster_shard", "__muster_changes", "__muster_output"
RESULT = [pa.field(SHARD, pa.string()), pa.field(CHANGES, pa.binary()), pa.field(OUTPUT, pa.binary())]
PAIRS = pa.schema([("k", pa.binary()), ("v", pa.binary())])
_pack: Callable[[Any], bytes] = dumps
_readers = Readers()
_SHOWN = 100
"""Characters of a key in an error."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard as a batch finds it: where its store is, which one, and how far; and what is fixed for the batch."""

    folder: str
    identity: str
    upto: int
    generation: int
    now: int
    places: Mapping[str, Place]
    """Where it is in each of its topics, in the order in which their rows come."""
    known: Mapping[str, Variable]
    """The variables as they were written."""
    declared: Mapping[str, Variable]
    """Those that the processor has."""
    tp: TopicPartition
    dropped: frozenset[tuple[int, str]] = frozenset()
    """Timers that a person dropped: their moments, and the digests of their keys."""
    planned: Planned | None = None
    """What the executor brings its own store to, if it is on another host; then there is no `folder`."""

    @property
    def top(self) -> int | None:
        """The largest event time that all of its topics have reached."""
        return Position(self.places).top


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
    zone: str = "UTC"
    """Spark's session time zone, in which pandas has its timestamps."""
    most: int = 1 << 26
    """Bytes that a shard may change, unless a single record changes more."""
    initial: Mapping[TopicPartition, Initial] = field(default_factory=dict)
    """The initial state of shards that begin."""

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
    tops: Mapping[str, int | None]
    """The largest event times, by topic."""
    late: int
    size: int = 0
    """Bytes of the changes, without those of the initial state."""


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
    user = _pack(work.user)
    for task, of_shard in _by_shard(rows, work.shards.values()):
        tp = task.tp
        with _store_of(task) as (below, brought):
            # As in Spark, what a processor keeps in itself is of one batch of one shard.
            initial = work.initial.get(tp)
            if initial is not None:
                initial.check(tp, of_shard)
            try:
                result = compute(replace(work, user=loads(user)), task, below, of_shard, initial)
            except TooManyChangesError:
                result = None
        said: dict[str, Any] = {"topic": tp[0], "partition": tp[1], "rows": of_shard.num_rows}
        if brought is not None:
            said["brought"] = asdict(brought)
        sent = changes = None
        if result is not None:
            if not work.to_topic:
                for batch in result.output.to_batches():
                    yield _widened(batch, schema)
            said |= {"tops": result.tops, "late": result.late, "size": result.size}
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


@contextmanager
def _store_of(task: ShardTask) -> Iterator[tuple[Reader, Brought | None]]:
    """Look at a shard's store where its batch begins: the driver's, or this executor's own."""
    if task.planned is not None:
        with planned_reader(task.tp, task.planned) as found:
            yield found
        return
    below = _readers.at(Path(task.folder))
    try:
        mark = below.mark
        if (mark.identity, mark.upto) != (task.identity, task.upto):
            raise StateStoreError(
                f"the state store in {task.folder} is at {mark.upto} of the changelog of {mark.identity}, and "
                f"the batch begins at {task.upto} of {task.identity}"
            )
        yield below, None
    finally:
        below.close()


def _by_shard(rows: pa.Table, shards: Iterable[ShardTask]) -> Iterator[tuple[ShardTask, pa.Table]]:
    """Yield the rows of each shard, topic by topic, and of each in the order of their offsets."""
    of = {(topic, task.tp[1]): task for task in shards for topic in task.places}
    codes = _codes([rows.column("topic"), rows.column("partition")])
    found: dict[TopicPartition, dict[str, pa.Table]] = {}
    for code in range(int(codes.max()) + 1):
        part = rows if codes.max() == 0 else rows.filter(pa.array(codes == code))
        offsets = part.column("offset").to_numpy()
        if np.any(offsets[1:] < offsets[:-1]):
            part = part.take(pa.array(np.argsort(offsets, kind="stable")))
        tp = (part.column("topic")[0].as_py(), part.column("partition")[0].as_py())
        if tp not in of:
            raise StateError(f"topic {tp[0]!r}, partition {tp[1]} is not in the batch; pass on its own rows")
        found.setdefault(of[tp].tp, {})[tp[0]] = part
    for tp, parts in found.items():
        task = of[tp]
        in_order = [parts[topic] for topic in task.places if topic in parts]
        yield task, in_order[0] if len(in_order) == 1 else pa.concat_tables(in_order)


def compute(
    work: Work, task: ShardTask, below: Below, rows: pa.Table | None, initial: Initial | None = None
) -> Result:
    """Compute one shard, with its rows, or without for what is due. Raises what the user's code raises, and
    `TooManyChangesError` unless there is but one row."""
    watermark = None if task.top is None else task.top - work.delay
    tops, late = {topic: place.top for topic, place in task.places.items()}, 0
    if rows is not None:
        rows = _not_done(rows, task)
    smaller = rows is not None and rows.num_rows > 1
    if rows is not None and work.time_mode == EVENT_TIME:
        moments = _microseconds(rows.column(work.event_time))
        for topic, top in tops.items():
            mine = moments if len(tops) == 1 else moments[_of_topic(rows, topic)]
            known = mine[~np.isnan(mine)]
            if len(known):
                latest = int(known.max() // 1000)
                tops[topic] = latest if top is None else max(top, latest)
        if watermark is not None:
            keep = ~(moments <= 1000 * watermark)
            late = int(len(keep) - keep.sum())
            rows = rows.filter(pa.array(keep)) if late else rows
    overlay = Overlay(below, task.generation, work.most if smaller else None)
    if work.form == ARROW:
        state = BulkState(overlay, task.declared)
        table = rows if rows is not None else None
        out = _checked(work.user(table, state), work) if table is not None and table.num_rows else _none(work)
    else:
        out = _process(work, task, overlay, rows, watermark, initial)
    return Result(out, *overlay.written(), tops, late, overlay.size - overlay.begun)


def _not_done(rows: pa.Table, task: ShardTask) -> pa.Table:
    """Return the rows that may change the state."""
    for topic, place in task.places.items():
        if place.done:
            counts = pc.greater_equal(rows.column("offset"), place.done)
            if len(task.places) > 1:
                counts = pc.or_(counts, pa.array(~_of_topic(rows, topic)))
            rows = rows.filter(counts)
    return rows


def _of_topic(rows: pa.Table, topic: str) -> Any:
    return pc.equal(rows.column("topic"), topic).to_numpy()


def _process(
    work: Work,
    task: ShardTask,
    overlay: Overlay,
    rows: pa.Table | None,
    watermark: int | None,
    initial: Initial | None,
) -> pa.Table:
    handle = Handle(overlay, task.declared, task.now, work.time_mode != NO_TIME, parsed=True)
    for name, one in task.known.items():
        if name not in task.declared or task.declared[name].number != one.number:
            overlay.clear(one.number)
    processor: Any = work.user
    outputs: list[Any] = []
    processor.init(handle)
    at = max(0, watermark or 0)
    values = TimerValues() if work.time_mode == NO_TIME else TimerValues(task.now, at)
    handle.expire(work.most // 2)
    if initial is not None and initial.rows.num_rows:
        _begin(work, handle, initial.rows, values)
    if rows is not None and rows.num_rows:
        groups = _groups(work.keys, rows)
        overlay.prefetch([prefix + data for prefix in handle.single for data, _, _ in groups.keys])
        for (data, key, _), part in zip(groups.keys, _given(work, groups), strict=True):
            handle.key = data
            outputs.extend(_called(processor.handleInputRows(key, part, values)))
    until = {PROCESSING_TIME: task.now, EVENT_TIME: at}.get(work.time_mode)
    make = Row(*work.keys)
    for moment, data in handle.due_timers(until) if until is not None else ():
        if work.time_mode == PROCESSING_TIME and overlay.size > work.most // 2:
            break  # the others are due in the next batch
        handle.key, key = data, make(*key_of(data))
        if (moment, digest_of(data)) not in task.dropped:
            try:
                found = processor.handleExpiredTimer(key, values, ExpiredTimerInfo(moment))
                outputs.extend(_called(found))
            except (StateStoreError, TooManyChangesError):
                raise
            except Exception as error:
                when = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
                what = " ".join(f"{type(error).__name__}: {error}".split())
                why = f"the timer of key {str(tuple(key))[:_SHOWN]} at {when} failed: {what}"
                raise TimerFailedError(str(FailedTimer(task.tp, moment, digest_of(data), why))) from error
        handle.drop_timer(moment, data)
    handle.key = b""
    processor.close()
    return _table_of(work, outputs)


def digest_of(key: bytes) -> str:
    """Return what a key is known by in an error, which may be long."""
    return hashlib.sha256(key).hexdigest()[:16]


def _begin(work: Work, handle: Handle, rows: pa.Table, values: TimerValues) -> None:
    """Have the processor take the initial state of a shard. Raises `StateError` if that changes too much."""
    overlay, groups = handle.overlay, _groups(work.keys, rows)
    most, overlay.most = overlay.most, LARGEST_INITIAL
    try:
        for (data, key, _), part in zip(groups.keys, _given(work, groups), strict=True):
            handle.key = data
            for each in part:
                work.user.handleInitialState(key, each, values)
    except TooManyChangesError as error:
        raise StateError(
            f"the initial state of one partition changes more than {LARGEST_INITIAL} bytes, and is one transaction; "
            "write the initial values to the topic as records, or use a topic with more partitions"
        ) from error
    overlay.begun = overlay.size
    overlay.most = None if most is None else overlay.size + most


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


def _given(work: Work, groups: _Groups) -> Iterator[Iterator[Any]]:
    """Yield the rows of each key as Spark gives them: as rows, or as one frame."""
    if work.form == PANDAS:
        frame = groups.rows.to_pandas()
        for column in groups.rows.schema:
            if pa.types.is_timestamp(column.type) and column.type.tz is not None:
                frame[column.name] = frame[column.name].dt.tz_convert(work.zone).dt.tz_localize(None)
        # Spark makes its frames of rows, so that numbers are of 64 bits.
        wide = {"i": "int64", "f": "float64"}
        frame = frame.astype({name: wide[k.kind] for name, k in frame.dtypes.items() if k.kind in wide})
        for _, _, (begin, end) in groups.keys:
            yield iter((frame.iloc[begin:end].reset_index(drop=True),))
        return
    make = Row(*groups.rows.column_names)
    rows = list(zip(*(column.to_pylist() for column in groups.rows.columns), strict=True))
    for _, _, (begin, end) in groups.keys:
        yield (make(*row) for row in rows[begin:end])


def _microseconds(column: pa.ChunkedArray) -> Any:
    return pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64()).to_numpy().astype(float)


def _table_of(work: Work, outputs: list[Any]) -> pa.Table:
    if not outputs:
        return _none(work)
    if work.form == PANDAS:
        frame = pd.concat(outputs, ignore_index=True)
        if missing := [name for name in work.columns.names if name not in frame.columns]:
            raise StateError(
                f"the output lacks the columns {missing} of its schema; it has {list(frame.columns)}"
            )
        frame = frame[work.columns.names]
        for column in work.columns:
            if pa.types.is_timestamp(column.type) and column.type.tz is not None:
                moments = pd.to_datetime(frame[column.name])
                if moments.dt.tz is None:
                    frame = frame.assign(**{column.name: moments.dt.tz_localize(work.zone)})
        return pa.Table.from_pandas(frame, schema=work.columns, preserve_index=False)
    names = work.columns.names
    rows = [_in_order(row, names) for row in outputs]
    columns = zip(*rows, strict=True)
    return pa.table(
        {
            one.name: pa.array([*map(_nested, values)] if pa.types.is_nested(one.type) else values, one.type)
            for one, values in zip(work.columns, columns, strict=True)
        }
    )


def _in_order(row: Any, names: list[str]) -> Any:
    """Return the values of a row of the output in the order of its schema."""
    given = [*getattr(row, "__fields__", names)]
    if given == names:
        return row
    if sorted(given) != sorted(names):
        raise StateError(f"the output has the fields {given}, and its schema {names}")
    return [row[given.index(name)] for name in names]


def _nested(value: Any) -> Any:
    """Return a value with dictionaries for rows, as Arrow takes it."""
    return Row(it=value).asDict(recursive=True)["it"]


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
