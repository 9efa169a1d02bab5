"""Rows in a table of a database, each record once: rows and ranges are committed in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from string import Formatter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.coverage import Coverage
from muster.sinks.expand import expand
from muster.sinks.rows import Pieces, collected, log_left_out, missing_rows
from muster.sinks.sink_error import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


PARAMETERS = 2_000
"""At most so many values go with one statement; SQL Server takes 2,100, others more."""
TRIES = 10
OffsetsKey = tuple[str, str, int, str]
"""The sink's table, topic, partition and topic id: the key of a row of the offsets' table."""

_IS_PLACE = "target = ? AND topic = ? AND partition_number = ? AND topic_id = ?"
_MARKERS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}", "named": ":{}"}


class DatabaseSink:
    """Inserts the rows of each batch into `table`, in one transaction with the offsets that they were made of.

    As a handler it inserts every batch as it is. Within a handler it takes what was made of the batch, as long as
    `topic`, `partition` and `offset` are still there; a record may have become no row, or several. All columns of
    the frame go into the columns of their names.

    `statement` is executed for each row instead, in the order of the offsets, for an upsert say; `{name}` stands for
    the row's value of a column, `{{` for a brace:
    `INSERT INTO totals VALUES ({id}, {total}) ON CONFLICT (id) DO UPDATE SET total = excluded.total`.

    `driver` names a Python module of DB-API 2.0 (PEP 249), `connect` the arguments of its `connect`; `${VAR}` in them
    is taken from the environment of the driver process. A connection is made for each batch. The rows of a batch
    are in the memory of Spark's driver before the transaction begins.

    **Invariant.** `offsets_table` has a row for each partition that was written to `table`, whose `stored` says which
    offsets stand there: `0-99,150-199`, both ends included. A transaction

    1. reads `stored`, and takes the offsets of the batch that are not in it;
    2. changes `stored` from what it read to what it will be, and ends if it is not what it read any more;
    3. inserts the rows with the offsets that it took, and commits.

    After 2 the database keeps other writers from the row until the commit. So each offset is taken by one transaction
    that is committed, whichever writer runs it, and however late. `stored` only grows, so an equal text is an equal
    state. Partitions are taken in one order, so writers do not wait for each other in a circle.

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
        self.table = table
        self.offsets_table = offsets_table
        try:
            self._driver: Any = import_module(driver)
            self._marker = _MARKERS[self._driver.paramstyle]
        except (ImportError, AttributeError, KeyError) as error:
            raise ValueError(
                f"'driver' {driver!r} is no module of DB-API 2.0 that is installed here: {error!r}; name one, "
                "such as psycopg"
            ) from error
        self._connect = {
            name: expand(value, f"connect.{name}") if isinstance(value, str) else value
            for name, value in connect.items()
        }
        self._statement = self._template(statement) if statement else None

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Write `frame`, which is `batch`, or was made of it.

        Raises `SinkError` if it cannot be written, what the driver raises, and what Spark raises if `frame` cannot be
        computed; nothing of the batch is written then.
        """
        self.store(collected(frame, batch), batch)

    def store(self, rows: pa.Table, batch: Batch) -> None:
        """Write the rows of `batch`. Raises as `__call__` does."""
        for _ in range(TRIES):
            connection = self._driver.connect(**self._connect)
            try:
                if self._transaction(connection, rows, batch):
                    return
            finally:
                connection.close()  # what is not committed is rolled back
        raise SinkError(
            f"table {self.offsets_table}: the row of a partition of the batch was changed by others {TRIES} times "
            "while it was written; see which other writers have this table"
        )

    def _transaction(self, connection: Any, rows: pa.Table, batch: Batch) -> bool:
        """Write what is missing of the batch; False if another writer changed one of its partitions meanwhile."""
        cursor = connection.cursor()
        pieces: dict[TopicPartition, list[OffsetRange]] = {}
        for tp, held in sorted(batch.ranges.items()):
            place = (self.table, *tp, batch.topic_ids.get(tp[0], ""))
            before = self._stored(cursor, place)
            coverage = Coverage(_ranges(before or ""))
            missing = coverage.missing(*held)
            log_left_out(tp, held, missing)
            if not missing:
                continue
            coverage.add(*held)
            if not self._change(cursor, place, before, _text(coverage)):
                return False
            pieces[tp] = missing
        if pieces:
            self._insert(cursor, rows, pieces)
            connection.commit()
        return True

    def _stored(self, cursor: Any, place: OffsetsKey) -> str | None:
        """Return which offsets of a partition stand in the table, None if nothing was ever written."""
        cursor.execute(
            self._sql(f"SELECT stored FROM {self.offsets_table} WHERE {_IS_PLACE}"),  # noqa: S608
            place,
        )
        found = cursor.fetchone()
        return None if found is None else str(found[0])

    def _change(self, cursor: Any, place: OffsetsKey, before: str | None, after: str) -> bool:
        """Change `stored` from `before` to `after`, and tell whether that was done."""
        if before is None:
            into = f"{self.offsets_table} (target, topic, partition_number, topic_id, stored)"
            try:
                cursor.execute(self._sql(f"INSERT INTO {into} VALUES (?, ?, ?, ?, ?)"), (*place, after))  # noqa: S608
            except self._driver.IntegrityError:  # another writer was here first
                return False
            return True
        cursor.execute(
            self._sql(f"UPDATE {self.offsets_table} SET stored = ? WHERE {_IS_PLACE} AND stored = ?"),  # noqa: S608
            (after, *place, before),
        )
        return bool(cursor.rowcount == 1)

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
        into = f"INSERT INTO {self.table} ({', '.join(map(_quoted, names))}) VALUES "  # noqa: S608
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
        for text, name, _, _ in Formatter().parse(statement):
            sql += self._escaped(text)
            if name is not None:
                names.append(name)
                sql += self._marker.format(len(names))
        return sql, names


def _values(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _ranges(text: str) -> Iterator[OffsetRange]:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield int(first), int(last) + 1


def _text(coverage: Coverage) -> str:
    return ",".join(f"{begin}-{end - 1}" for begin, end in coverage.ranges)
