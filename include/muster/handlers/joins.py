"""Joins by key, as processors for `batch.state.transformWithState`: a lookup, and two streams within a time.

Spark's own stream-stream joins keep their state in one query, and cannot be used in a handler. These keep it where
the partition is, so it moves with that. The rows of both sides are in one frame: of two topics that share their
state, or of one topic with two kinds of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, _parse_datatype_string

Output = Callable[[tuple[Any, ...], Any, Any], Any]
"""Makes a row of the output: of the key, the row of the left side and that of the right side. One of the two rows may
be None in an outer join. A row has the columns that are kept of its side."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLACE = StructType([StructField("time", LongType()), StructField("offset", LongType())])


class How(StrEnum):
    """Which rows come out that find no partner, with Spark's names."""

    INNER = "inner"
    LEFT = "leftOuter"
    RIGHT = "rightOuter"
    FULL = "fullOuter"


class Lookup(StatefulProcessor):
    """Gives each row the latest value that a table has of its key.

    Rows whose column `by` is `table` are the table's: the newest one of a key is kept, by `columns`, a schema such as
    `"name string, city string"`; one whose columns are all null removes it. Each other row comes out as
    `output(key, row, value)`, once: a value that changes later changes nothing that came out. Without a value it
    comes out with None if `how` is `leftOuter`, and not at all if it is `inner`.

    Raises ValueError if `how` is another one, or for a schema as text before there is a Spark session.
    """

    def __init__(
        self, table: str, columns: StructType | str, output: Output, how: str = How.INNER, by: str = "topic"
    ) -> None:
        if how not in {How.INNER, How.LEFT}:
            raise ValueError(f"how: {str(how)!r}; a lookup is {How.INNER} or {How.LEFT}")
        self._table, self._columns, self._output, self._how, self._by = (
            table,
            _schema(columns),
            output,
            how,
            by,
        )

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._row = Row(*self._columns.names)
        self._latest = handle.getValueState("latest", self._columns)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Keep the table's rows, and yield the others with their values."""
        key = tuple(key)
        found = None if key == (None,) else self._latest.get()
        for row in rows:
            if row[self._by] != self._table:
                value = None if found is None else self._row(*found)
                if value is not None or self._how == How.LEFT:
                    yield self._output(key, row, value)
                continue
            if key == (None,):
                continue
            kept = tuple(_kept(row, self._columns.names))
            if any(value is not None for value in kept):
                self._latest.update(kept)
            else:
                self._latest.clear()
            found = self._latest.get()

    def close(self) -> None:
        """Do nothing."""


class StreamJoin(StatefulProcessor):
    """Joins the rows of two streams with one key whose event times are near each other.

    A row is of the side `left` or `right` by its column `by`. A pair comes out as `output(key, left, right)`, once,
    if the right row is from `before` earlier to `after` later than the left one, both included, by the column
    `event_time`. `left_columns` and `right_columns` are what is kept of the rows, schemas such as `"amount long"`.
    Without a partner a row comes out if `how` (`How`) asks for that, once the watermark says that none will come.

    To be called with the time mode EventTime and `event_time` as `eventTimeColumnName`. A row without key or event
    time has no partner. Raises ValueError as `Lookup` does, or for a time in which no two rows can be.
    """

    def __init__(
        self,
        left: str,
        right: str,
        left_columns: StructType | str,
        right_columns: StructType | str,
        output: Output,
        *,
        before: timedelta = timedelta(0),
        after: timedelta = timedelta(0),
        how: str = How.INNER,
        event_time: str = "timestamp",
        by: str = "topic",
    ) -> None:
        if how not in {*How}:
            raise ValueError(f"how: {str(how)!r}; it is {', '.join(How)}")
        if left == right:
            raise ValueError(
                f"left and right are both {left!r}; name two sides, by values of the column {by!r}"
            )
        if before + after < timedelta(0):
            raise ValueError(
                f"before {before} and after {after}: no right row is both; 'before' is how much earlier than its "
                "left row it may be, and 'after' how much later"
            )
        self._sides = (left, right)
        self._columns = [_schema(columns) for columns in (left_columns, right_columns)]
        self._output, self._event_time, self._by = output, event_time, by
        self._outer = (how in {How.LEFT, How.FULL}, how in {How.RIGHT, How.FULL})
        low, high = -(before // _MICROSECOND), after // _MICROSECOND
        self._within = ((low, high), (-high, -low))
        """How much later a partner may be, at least and at most, of the rows of each side, in microseconds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the rows of each side that may find partners, and whether they have."""
        self._rows = [Row(*schema.names) for schema in self._columns]
        self._handle = handle
        self._states = [
            handle.getMapState(
                name,
                _PLACE,
                StructType([StructField("row", schema), StructField("matched", BooleanType())]),
            )
            for name, schema in zip(("left", "right"), self._columns, strict=True)
        ]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Yield the pairs that the rows make with each other and with those before."""
        key = tuple(key)
        known = [dict(state.iterator()) for state in self._states]
        for row in rows:
            side = self._side(row)
            kept = self._rows[side](*_kept(row, self._columns[side].names))
            moment = _microseconds(row[self._event_time])
            if moment is None or None in key:
                if self._outer[side]:
                    yield self._alone(key, side, kept)
                continue
            low, high = self._within[side]
            other, matched = 1 - side, False
            for place, (partner, was_matched) in list(known[other].items()):
                if low <= place[0] - moment <= high:
                    matched = True
                    yield self._pair(key, side, kept, partner)
                    if not was_matched:
                        self._keep(known, other, place, partner, matched=True)
            self._keep(known, side, (moment, row["offset"]), kept, matched)
            self._handle.registerTimer(_milliseconds(moment + high))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        """Forget the rows that no partner can come for any more, and yield those that had none."""
        until = expiredTimerInfo.getExpiryTimeInMs()
        for side, state in enumerate(self._states):
            for place, (row, matched) in list(state.iterator()):
                if _milliseconds(place[0] + self._within[side][1]) <= until:
                    state.removeKey(place)
                    if self._outer[side] and not matched:
                        yield self._alone(tuple(key), side, row)

    def close(self) -> None:
        """Do nothing."""

    def _side(self, row: Any) -> int:
        name = row[self._by]
        if name not in self._sides:
            raise ValueError(
                f"column {self._by!r} is {name!r}, and the sides are {self._sides}; leave other rows out of the frame"
            )
        return self._sides.index(name)

    def _keep(self, known: list[dict[Any, Any]], side: int, place: Any, row: Any, matched: bool) -> None:
        known[side][place] = (row, matched)
        self._states[side].updateValue(place, (row, matched))

    def _pair(self, key: tuple[Any, ...], side: int, row: Any, partner: Any) -> Any:
        return self._output(key, row, partner) if side == 0 else self._output(key, partner, row)

    def _alone(self, key: tuple[Any, ...], side: int, row: Any) -> Any:
        return self._output(key, row, None) if side == 0 else self._output(key, None, row)


def _schema(columns: StructType | str) -> StructType:
    try:
        schema = _parse_datatype_string(columns) if isinstance(columns, str) else columns
    except PySparkRuntimeError as error:
        raise ValueError(
            f"{columns!r} cannot be read without a Spark session: make the processor in the handler's call, or give "
            "a StructType"
        ) from error
    if not isinstance(schema, StructType):
        raise ValueError(f"{columns!r} is no schema; write columns with their types, such as 'amount long'")  # noqa: TRY004
    return schema


def _kept(row: Any, names: Sequence[str]) -> list[Any]:
    """Return the columns that are kept of a row, with moments as Spark's Python has them: in local time."""
    values = [row[name] for name in names]
    return [
        value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
        for value in values
    ]


def _microseconds(moment: datetime | None) -> int | None:
    """Return a moment in microseconds since the epoch; one without a time zone is local."""
    return None if moment is None else (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def _milliseconds(moment: int) -> int:
    """Return the first millisecond that is not before a moment in microseconds; none before the epoch."""
    return max(1, -(-moment // 1000))
