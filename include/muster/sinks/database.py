"""Rows in a table of a database, each record once: rows and ranges are committed in one transaction."""

from __future__ import annotations

import json
import math
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from itertools import chain
from string import Formatter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.coverage import Coverage
from muster.sinks.database_kind import OTHER, Kind, identity_of, kind_of
from muster.sinks.database_offsets import LOCK, Execute, OffsetsTable, Place
from muster.sinks.options import expand, mapping, text
from muster.sinks.rows import Pieces, chunks, missing_rows, note_left_out, topic_id
from muster.sinks.sink_error import SinkError, bookkeeping, of_rows, superseded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARAMETERS = 2_000
"""At most so many values go with one statement; SQL Server takes 2,100, others more."""
TRIES = 10
REREAD = 60.0
"""Seconds for which ranges that were read are reported, with what was written since."""

_MARKERS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}", "named": ":{}"}
_OF_SINK = ("OperationalError", "InterfaceError", "InternalError", "ProgrammingError")
"""Errors of DB-API that no record is at fault for; the others are those of the rows."""


class DatabaseSink:
    """Inserts the rows of each batch into `table`, in one transaction with the offsets that they were made of.

    As a handler it inserts every batch as it is. Within a handler it takes what was made of the batch, as long as
    `topic`, `partition` and `offset` are still there; a record may have become no row, or several. All columns of
    the frame go into the columns of their names.

    `statement` is executed for each row instead, in the order of the offsets, for an upsert say; `{name}` stands for
    the row's value of a column, `{{` for a brace:
    `INSERT INTO totals VALUES ({id}, {total}) ON CONFLICT (id) DO UPDATE SET total = excluded.total`.

    `driver` names a Python module of DB-API 2.0 (PEP 249), `connect` the arguments of its `connect`; `${VAR}` in them
    is taken from the environment of the driver process. A connection is made for each batch. Large batches are
    streamed into the transaction in the order of their offsets. Nested values, such as a record's headers, become
    JSON, as Spark's `to_json` writes it.

    **Invariant.** `offsets_table` has the ranges of offsets that stand in `table`, see
    `muster.sinks.database_offsets`. A transaction

    1. locks the partitions of the batch in that table, and reads which of the batch's offsets are not there;
    2. adds these offsets, inserts their rows, and commits.

    After 1 the database keeps other writers from the partitions until the commit. So each offset is in one
    transaction that is committed, whichever writer runs it, and however late. A driver that commits each statement by
    itself is refused at the first batch.

    Raises ValueError for options of no use.
    """

    def __init__(
        self,
        driver: str,
        connect: Mapping[str, Any],
        table: str,
        statement: str = "",
        offsets_table: str = "muster_offsets",
    ) -> None:
        self.table = text("table", table, "flights")
        self.name = f"table {table}"
        self.offsets_table = text("offsets_table", offsets_table, "muster_offsets")
        self._reported: dict[Place, tuple[Coverage, float]] = {}
        """What is stored, and when all of it was read last."""
        self._kind: Kind = OTHER
        self._target: str | None = None
        """The table's full name, once the database was looked at."""
        try:
            self._driver: Any = import_module(text("driver", driver, "psycopg"))
            self._marker = _MARKERS[self._driver.paramstyle]
        except (ImportError, AttributeError, KeyError) as error:
            raise ValueError(
                f"'driver' {driver!r} is no module of DB-API 2.0 that is installed here: {error!r}; name one, "
                "such as psycopg"
            ) from error
        self._connect = {
            name: expand(value, f"connect.{name}") if isinstance(value, str) else value
            for name, value in mapping("connect", connect, "{conninfo: host=db1}").items()
        }
        self._statement = None
        if statement != "":
            self._statement = self._template(text("statement", statement, "INSERT INTO t VALUES ({offset})"))

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Write `frame`, which is `batch`, or was made of it.

        Raises `SinkError` if the database cannot be written to, the driver's DataError or IntegrityError for rows
        that the table refuses, and what Spark raises if `frame` cannot be computed; nothing of the batch is written
        then.
        """
        self._write(lambda: chunks(frame, batch), batch)

    def store(self, rows: pa.Table, batch: Batch) -> None:
        """Write the rows of `batch`, which are in this process. Raises as `__call__` does."""
        self._write(lambda: iter([rows]), batch)

    def _write(self, rows: Callable[[], Iterator[pa.Table]], batch: Batch) -> None:
        try:
            with bookkeeping(self.name, self._driver.Error):
                if self._target is None:
                    self._target = self._examine()
                for _ in range(TRIES):
                    with of_rows():
                        computed = rows()
                        first = next(computed, None)  # Spark begins before the transaction does
                    if self._transaction(chain([first] if first is not None else [], computed), batch):
                        return
        except self._driver.Error as error:
            of_sink = tuple(getattr(self._driver, name) for name in _OF_SINK)
            of_row = not isinstance(error, of_sink) or {*error.args[:1]} & self._kind.of_rows
            if self._target is not None and of_row:
                raise
            raise SinkError(f"table {self.table}: {type(error).__name__}: {error}") from error
        raise SinkError(
            f"table {self.offsets_table}: others have made the lock of a partition {TRIES} times; see which other "
            "writers this table has"
        )

    def _examine(self) -> str:
        """Look at the database before the first batch; returns the full name of the table.

        Raises `SinkError` for a table that is not there, and where rows and offsets would not be one transaction.
        """
        with closing(self._driver.connect(**self._connect)) as connection:
            execute = self._executing(connection)

            def ask(sql: str, *values: Any) -> Any:
                row = execute(sql, values).fetchone()
                return None if row is None else row[0]

            def roll_back() -> None:
                with suppress(self._driver.Error):  # some drivers say so if no transaction is open
                    connection.rollback()

            self._kind = kind_of(ask, self._driver.Error, roll_back)
            if (target := identity_of(self._kind, self.table, ask)) is None:
                raise SinkError(f"table {self.table}: it is not there; create it, or name another one")
            if self._kind.engine and (engine := ask(self._kind.engine, target)):
                raise SinkError(
                    f"table {self.table}: its engine {engine} has no transactions; choose another engine"
                )
            offsets = self._offsets(execute)
            probe: Place = (target, "", 0, uuid.uuid4().hex[:22])
            offsets.insert(probe, (LOCK, 1))
            counted = offsets.lock(probe)
            roll_back()
            if offsets.has_lock(probe):
                offsets.delete(probe, LOCK)
                with suppress(self._driver.Error):
                    connection.commit()
                raise SinkError(
                    f"table {self.offsets_table}: the driver {self._driver.__name__} commits each statement by "
                    "itself, or the table's engine has no transactions, so rows and offsets would not be one "
                    "transaction; switch its autocommit off in 'connect', or choose another engine"
                )
            if not counted:
                raise SinkError(
                    f"table {self.offsets_table}: the driver {self._driver.__name__} does not tell how many rows a "
                    "statement has changed, so no partition can be locked; choose another driver"
                )
        return target

    def _transaction(self, rows: Iterator[pa.Table], batch: Batch) -> bool:
        """Write what is missing of the batch; False if another writer has just made the lock of a partition."""
        with closing(self._driver.connect(**self._connect)) as connection:  # closing rolls back
            execute = self._executing(connection)
            offsets = self._offsets(execute)
            places = {tp: self._place(tp, batch) for tp in sorted(batch.ranges)}
            if not all(offsets.lock(place) for place in places.values()):
                return False
            pieces: dict[TopicPartition, list[OffsetRange]] = {}
            stored: dict[TopicPartition, Coverage] = {}
            for tp, place in places.items():
                held, rebuild = batch.ranges[tp], batch.rebuilds[tp]
                if (newest := offsets.rebuild(place)) > rebuild:
                    raise superseded(self.name, tp, rebuild, newest)
                if newest < rebuild:
                    offsets.begin(place, rebuild)
                    self._reported.pop(place, None)
                near = offsets.near(place, held)
                stored[tp] = self._stored(offsets, place, near, held)  # which grows with the commit
                missing = Coverage(near).missing(*held)
                note_left_out(batch, tp, missing)
                if missing:
                    offsets.add(place, near, held)
                    pieces[tp] = missing
            with of_rows():
                for part in rows if pieces else ():
                    self._insert(connection.cursor(), part, pieces)
            connection.commit()
        for tp, found in stored.items():
            found.add(*batch.ranges[tp])
            _, read_at = self._reported.get(places[tp], (found, time.monotonic()))
            self._reported[places[tp]] = (found, read_at)
        batch.stored[self.name] = {tp: found.ranges for tp, found in stored.items()}
        return True

    def _stored(
        self, offsets: OffsetsTable, place: Place, near: list[OffsetRange], held: OffsetRange
    ) -> Coverage:
        """Return what is stored, to be reported. All ranges are read again after `REREAD`, and where those `near` to
        `held` are not the ones that were reported before."""
        known, read_at = self._reported.get(place, (Coverage(), -math.inf))
        if known.near(*held) != near or time.monotonic() - read_at > REREAD:
            self._reported.pop(place, None)
            known = Coverage(offsets.all(place))
        return known

    def _place(self, tp: TopicPartition, batch: Batch) -> Place:
        return (self._target or self.table, *tp, topic_id(batch, tp[0]))

    def _offsets(self, execute: Execute) -> OffsetsTable:
        def sure(sql: str, values: tuple[Any, ...]) -> Any:
            """Execute a statement with the offsets' table; no record is at fault for what fails there."""
            try:
                return execute(sql, values)
            except self._driver.Error as error:
                raise SinkError(f"table {self.offsets_table}: {type(error).__name__}: {error}") from error

        return OffsetsTable(self.offsets_table, sure, self._driver.IntegrityError)

    def _executing(self, connection: Any) -> Execute:
        cursor = connection.cursor()

        def execute(sql: str, values: tuple[Any, ...]) -> Any:
            cursor.execute(self._sql(self._escaped(sql)), values)
            return cursor

        return execute

    def _insert(self, cursor: Any, rows: pa.Table, pieces: Pieces) -> None:
        held = missing_rows(rows, pieces)
        if self._statement is not None:
            sql, names = self._statement
            if lacking := set(names) - set(held.schema.names):
                raise SinkError(
                    f"'statement' has {', '.join(sorted(lacking))}, which the rows have not; they have "
                    f"{', '.join(held.schema.names)}"
                )
            if held.num_rows:
                cursor.executemany(sql, list(_values(held, names)))
            return
        names = held.schema.names
        into = f"INSERT INTO {self.table} ({', '.join(map(self._kind.quoted, names))}) VALUES "  # noqa: S608
        row = f"({', '.join('?' * len(names))})"
        at_once = max(1, PARAMETERS // len(names))
        for begin in range(0, held.num_rows, at_once):
            part = held.slice(begin, at_once)
            values = [value for each in _values(part, names) for value in each]
            cursor.execute(self._escaped(into) + self._sql(", ".join([row] * part.num_rows)), values)

    def _sql(self, text: str) -> str:
        """Put the driver's own markers for `?` into `text`."""
        first, *parts = text.split("?")
        return first + "".join(
            self._marker.format(number) + part for number, part in enumerate(parts, start=1)
        )

    def _escaped(self, text: str) -> str:
        return text.replace("%", "%%") if "%" in self._marker else text

    def _template(self, statement: str) -> tuple[str, Sequence[str]]:
        """Return `statement` with the driver's markers, and the columns whose values they stand for, in order."""
        names: list[str] = []
        sql = ""
        try:
            parsed = list(Formatter().parse(statement))
        except ValueError as error:
            raise ValueError(
                f"'statement' is {statement!r}: {error}; write {{name}} for a column's value and {{{{ for a brace"
            ) from error
        for between, name, _, _ in parsed:
            sql += self._escaped(between)
            if name is not None:
                names.append(name)
                sql += self._marker.format(len(names))
        return sql, names


def _values(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(_column(rows.column(name)) for name in names), strict=True)


def _column(values: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = values.to_pylist()
    if not pa.types.is_nested(values.type):
        return found
    return [None if value is None else json.dumps(value, default=_in_json) for value in found]


def _in_json(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
