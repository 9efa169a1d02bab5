"""`DeltaSink` on tables that others restore, or whose rows they change."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import deltalake
import pytest

from muster.sinks import DeltaSink, SinkError
from tests.support.database_writer import PARTITIONS, batch_of
from tests.support.delta_batches import write
from tests.support.delta_rows import delta_rows

pytestmark = pytest.mark.stack


def found(path: Path) -> Counter[tuple[Any, ...]]:
    return Counter(delta_rows(path, "partition", "offset"))


def once(begin: int, end: int) -> dict[tuple[Any, ...], int]:
    return {(p, n): 1 for p in PARTITIONS for n in range(begin, end)}


def dated(path: Path, seconds: float) -> dt.datetime:
    """Have the table's commits ten seconds apart; returns the time so long after the first one."""
    first = dt.datetime(2026, 1, 15, 10, tzinfo=dt.UTC)
    for version, made in enumerate(sorted((path / "_delta_log").glob("*.json"))):
        os.utime(made, (first.timestamp() + 10 * version,) * 2)
    return first + dt.timedelta(seconds=seconds)


@pytest.mark.parametrize("running", [True, False])
def test_table_restored_by_time_gets_missing_records_again(tmp_path: Path, running: bool) -> None:
    sink = DeltaSink(str(tmp_path))
    write(sink, (0, 10), (10, 20), (20, 30), (30, 40))
    deltalake.DeltaTable(str(tmp_path)).restore(dated(tmp_path, 25))
    assert found(tmp_path) == once(0, 20)
    write(sink if running else DeltaSink(str(tmp_path)), (15, 35), partitions=(0,))
    write(DeltaSink(str(tmp_path)), (0, 50))
    assert found(tmp_path) == once(0, 50)


def restored_by_hand(path: Path, parameters: dict[str, Any]) -> None:
    """Write four batches and restore the first two; the log's entry has these parameters of the RESTORE."""
    write(DeltaSink(str(path)), (0, 10), (10, 20), (20, 30), (30, 40))
    deltalake.DeltaTable(str(path)).restore(2)
    entry = path / "_delta_log" / f"{5:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"] = parameters
    entry.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("noted", ["{0:%Y-%m-%d %H:%M:%S}.0", '"{0:%Y-%m-%d %H:%M:%S}"', "{0:%FT%T%z}"])
def test_time_that_spark_notes_of_a_restore_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str, noted: str
) -> None:
    local = dated(tmp_path, 25).astimezone(ZoneInfo(zone))
    restored_by_hand(tmp_path, {"version": None, "timestamp": noted.format(local)})
    dated(tmp_path, 0)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        write(DeltaSink(str(tmp_path)), (5, 50))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found(tmp_path) == once(0, 50)


@pytest.mark.parametrize(
    "noted",
    [
        {"timestamp": "2026-01-15T10:00:35Z"},  # another version's time, whose files are others
        {"timestamp": "last week"},
        {"datetime": "9" * 30},
        {"version": "5"},
        {"version": "two"},
        {},
    ],
    ids=str,
)
def test_restore_to_no_known_version_asks_for_a_rebuild(tmp_path: Path, noted: dict[str, Any]) -> None:
    restored_by_hand(tmp_path, noted)
    dated(tmp_path, 0)
    sink = DeltaSink(str(tmp_path))
    for _ in range(2):
        with pytest.raises(SinkError, match=r"Delta table .*: its RESTORE at version 5 .* --rebuild'"):
            write(sink, (5, 25))
    assert found(tmp_path) == once(0, 20)
    deltalake.DeltaTable(str(tmp_path)).delete("partition = 0")
    write(sink, (0, 25), partitions=(0,), rebuild=7)
    with pytest.raises(SinkError, match=r"Delta table .*: its RESTORE at version 5 .* --rebuild'"):
        write(DeltaSink(str(tmp_path)), (5, 25), partitions=(1,))
    deltalake.DeltaTable(str(tmp_path)).delete("partition = 1")
    write(sink, (0, 25), partitions=(1,), rebuild=7)
    write(DeltaSink(str(tmp_path)), (0, 30), rebuild=7)
    assert found(tmp_path) == once(0, 30)


OTHERS: dict[str, Callable[[Any], Any] | None] = {
    "DELETE": lambda table: table.delete("offset < 5"),
    "UPDATE": lambda table: table.update(predicate="offset < 5", updates={"partition": "1"}),
    "MERGE": lambda table: (
        table.merge(batch_of(0, 5)[0], "s.offset = t.offset", "s", "t").when_matched_delete().execute()
    ),
    "WRITE": lambda table: deltalake.write_deltalake(table, batch_of(5, 10)[0], mode="overwrite"),
    "TRUNCATE": None,
    "CREATE OR REPLACE TABLE AS SELECT": None,
    "REPLACE TABLE AS SELECT": None,
}
"""What others do to rows, by the operation of the commit; without a function, as Spark's entry of the log has it."""


@pytest.mark.parametrize("operation", OTHERS)
def test_change_of_rows_by_others_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    sink = DeltaSink(str(tmp_path))
    write(sink, (0, 10))
    if (change := OTHERS[operation]) is not None:
        change(deltalake.DeltaTable(str(tmp_path)))
    else:
        by_spark = {"commitInfo": {"operation": operation, "operationParameters": {}}}
        (tmp_path / "_delta_log" / f"{2:020}.json").write_text(json.dumps(by_spark))
    notices = []
    for begin in (10, 20):
        rows, batch = batch_of(begin, begin + 10)
        sink.store(rows, batch)
        notices += batch.notices
    assert notices == [record.message for record in caplog.records if "removed rows" in record.message]
    (said,) = notices
    assert f"others have changed or removed rows ({operation} at version 2); records that stood there" in said
    assert said.endswith("delete what is left of them and seek back to them with --rebuild")
