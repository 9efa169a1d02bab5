"""Whose fault an error within a sink is: what fails in a sink's own bookkeeping is never a record's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from muster.consumer.query import failure_of
from muster.sinks import DatabaseSink, DeltaSink, SinkError
from muster.sinks.database_offsets import OffsetsTable
from muster.sinks.delta_files import FileWriter
from muster.sinks.delta_log import TableLog
from muster.sinks.delta_upkeep import Upkeep
from tests.support.database_writer import OFFSETS_TABLE, TABLE, batch_of

Make = Callable[[Path], DatabaseSink | DeltaSink]


def delta(path: Path) -> DeltaSink:
    return DeltaSink(str(path / "table"))


def database(path: Path) -> DatabaseSink:
    with sqlite3.connect(path / "database") as connection:
        connection.executescript(f"{TABLE}; {OFFSETS_TABLE}")
    return DatabaseSink("sqlite3", {"database": str(path / "database")}, "numbers")


def fails(*_: Any, **__: Any) -> Any:
    raise KeyError("timestamp")


@pytest.mark.parametrize(
    ("make", "place", "name", "says"),
    [
        (delta, Upkeep, "beside", "Delta table .*table: unexpected KeyError: 'timestamp'; .* driver's log"),
        (delta, deltalake.Schema, "from_arrow", "Delta table .*table: unexpected KeyError"),
        (delta, TableLog, "_last_restore", "Delta table .*table: unexpected KeyError"),
        (delta, TableLog, "added", "Delta table .*table: unexpected KeyError"),
        (delta, TableLog, "committed", "Delta table .*table: unexpected KeyError"),
        (delta, deltalake.DeltaTable, "create_write_transaction", "Delta table .*table: unexpected KeyError"),
        (
            database,
            DatabaseSink,
            "_examine",
            "table numbers: unexpected KeyError: 'timestamp'; .* driver's log",
        ),
        (database, OffsetsTable, "lock", "table numbers: unexpected KeyError"),
        (database, OffsetsTable, "add", "table numbers: unexpected KeyError"),
    ],
)
def test_unexpected_error_in_the_bookkeeping_is_the_sinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, place: Any, name: str, says: str
) -> None:
    sink = make(tmp_path)
    with monkeypatch.context() as failing, pytest.raises(SinkError, match=says) as raised:
        failing.setattr(place, name, fails)
        sink.store(*batch_of(0, 10))
    assert not failure_of(raised.value).of_record
    rows, batch = batch_of(0, 20)
    sink.store(rows, batch)
    assert {ranges for of_sink in batch.stored.values() for ranges in of_sink.values()} == {((0, 20),)}


@pytest.mark.parametrize("driver_option", ["no_such_option"])
def test_argument_that_the_driver_does_not_know_is_the_sinks(driver_option: str) -> None:
    sink = DatabaseSink("sqlite3", {"database": ":memory:", driver_option: 1}, "numbers")
    with pytest.raises(SinkError, match=rf"table numbers: unexpected TypeError: .*{driver_option}"):
        sink.store(*batch_of(0, 10))


def test_error_of_the_rows_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing, pytest.raises(KeyError) as raised:
        failing.setattr(FileWriter, "_write", fails)
        delta(tmp_path).store(*batch_of(0, 10))
    assert failure_of(raised.value).of_record
    rows, batch = batch_of(0, 10)
    too_large = pa.array([2**64 - 1] * rows.num_rows, pa.uint64())
    with pytest.raises(OverflowError) as raised_by_value:
        database(tmp_path).store(rows.set_column(3, "value", too_large), batch)
    assert failure_of(raised_by_value.value).of_record
