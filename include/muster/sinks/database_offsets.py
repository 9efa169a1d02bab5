"""Which offsets stand in a table of a database: a table of their own, with a row for each range.

Rule
----

A transaction first changes the *lock* of each of its partitions, the row whose `first_offset` is -1, in one order of
the partitions. The database keeps other transactions from these rows until it ends. Only then the transaction reads
the ranges, which therefore stay as they are until its commit. Ranges neither overlap nor touch.

The row whose `first_offset` is -2 has the number of the partition's last rebuild. The first transaction under a
higher number deletes the ranges. One under a lower number finds it once it has the lock, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.core.model import OffsetRange
from muster.sinks.coverage import Coverage
from muster.sinks.sink_error import SinkError

LOCK = -1
REBUILD = -2

Place = tuple[str, str, int, str]
"""The sink's table, topic, partition and topic id."""
Execute = Callable[[str, tuple[Any, ...]], Any]
"""Executes a statement with `?` for its values; returns the cursor. Raises `SinkError` if it fails."""

_PLACE = "target = ? AND topic = ? AND partition_number = ? AND topic_id = ?"
_COLUMNS = "(target, topic, partition_number, topic_id, first_offset, next_offset)"


class OffsetsTable:
    """The table `name`, within one transaction, whose statements `execute` carries out."""

    def __init__(self, name: str, execute: Execute, integrity_error: type[Exception]) -> None:
        self._name = name
        self._execute = execute
        self._integrity_error = integrity_error

    def lock(self, place: Place) -> bool:
        """Keep other transactions from a partition; False if another one has just made its lock: begin again."""
        sql = f"UPDATE {self._name} SET next_offset = next_offset + 1 WHERE {_PLACE} AND first_offset = ?"  # noqa: S608
        if self._execute(sql, (*place, LOCK)).rowcount == 1:
            return True
        try:
            self.insert(place, (LOCK, 1))
        except SinkError as error:
            if isinstance(error.__cause__, self._integrity_error):
                return False
            raise
        return True

    def has_lock(self, place: Place) -> bool:
        """Tell whether a partition has a lock."""
        sql = f"SELECT next_offset FROM {self._name} WHERE {_PLACE} AND first_offset = ?"  # noqa: S608
        return self._execute(sql, (*place, LOCK)).fetchone() is not None

    def near(self, place: Place, held: OffsetRange) -> list[OffsetRange]:
        """Return the stored ranges that `held` overlaps or touches, in order. Few rows are read, however many ranges
        there are."""
        begin, end = held
        least = f"SELECT MAX(first_offset) FROM {self._name} WHERE {_PLACE} AND first_offset <= ?"  # noqa: S608
        sql = (
            f"SELECT first_offset, next_offset FROM {self._name} WHERE {_PLACE} AND first_offset >= ({least}) "  # noqa: S608
            "AND first_offset <= ? ORDER BY first_offset"
        )
        rows = self._execute(sql, (*place, *place, begin, end)).fetchall()
        return [(first, last) for first, last in rows if first >= 0 and last >= begin]

    def all(self, place: Place) -> list[OffsetRange]:
        """Return all stored ranges, in order."""
        sql = f"SELECT first_offset, next_offset FROM {self._name} WHERE {_PLACE} AND first_offset >= ? "  # noqa: S608
        return [
            (first, last)
            for first, last in self._execute(f"{sql}ORDER BY first_offset", (*place, 0)).fetchall()
        ]

    def rebuild(self, place: Place) -> int:
        """Return the number of the partition's last rebuild, 0 if there was none."""
        sql = f"SELECT next_offset FROM {self._name} WHERE {_PLACE} AND first_offset = ?"  # noqa: S608
        found = self._execute(sql, (*place, REBUILD)).fetchone()
        return 0 if found is None else int(found[0])

    def begin(self, place: Place, rebuild: int) -> None:
        """Forget the ranges, and have this number."""
        sql = f"DELETE FROM {self._name} WHERE {_PLACE} AND first_offset <> ?"  # noqa: S608
        self._execute(sql, (*place, LOCK))
        self.insert(place, (REBUILD, rebuild))

    def add(self, place: Place, near: list[OffsetRange], held: OffsetRange) -> None:
        """Store `held` as well; `near` is what `near` returned for it."""
        ((first, last),) = Coverage([*near, held]).ranges
        if len(near) == 1 and near[0][0] == first:
            sql = f"UPDATE {self._name} SET next_offset = ? WHERE {_PLACE} AND first_offset = ?"  # noqa: S608
            self._execute(sql, (last, *place, first))
            return
        for begin, _ in near:
            self.delete(place, begin)
        self.insert(place, (first, last))

    def insert(self, place: Place, held: OffsetRange) -> None:
        """Add a row."""
        self._execute(f"INSERT INTO {self._name} {_COLUMNS} VALUES (?, ?, ?, ?, ?, ?)", (*place, *held))  # noqa: S608

    def delete(self, place: Place, first: int) -> None:
        """Delete a row."""
        self._execute(f"DELETE FROM {self._name} WHERE {_PLACE} AND first_offset = ?", (*place, first))  # noqa: S608
