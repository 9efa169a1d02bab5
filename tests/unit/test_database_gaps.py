"""What a batch costs `DatabaseSink` where seeks, skips and letters have left many gaps in what is stored.

Counted are steps, not seconds, so whatever else the machine does changes nothing.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from muster.sinks import DatabaseSink
from tests.support.database_writer import OFFSETS_TABLE, batch_of

GAPS = 10_000
RECORDS = 1_000
PYTHON, DATABASE, STATEMENTS = "bytecodes of Python", "steps of SQLite", "statements"


class CountingConnection(sqlite3.Connection):
    """Counts what it is asked, and every instruction of SQLite's virtual machine."""

    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.set_progress_handler(lambda: self.counts.update({DATABASE: 1}), 1)
        self.set_trace_callback(lambda _: self.counts.update({STATEMENTS: 1}))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the steps within; the database's are those of `CountingConnection`."""
    counts = CountingConnection.counts = Counter()

    def trace(frame: Any, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counts[PYTHON] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield counts
    finally:
        sys.settrace(before)
        CountingConnection.counts = Counter()


def steps_of_a_batch(database: Path, gaps: int) -> Counter[str]:
    """The steps of a batch, of a sink that has read before that there are so many ranges."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(OFFSETS_TABLE)
        connection.execute('CREATE TABLE numbers (topic text, "partition" int, "offset" bigint, value blob)')
        connection.commit()
        rows, batch = batch_of(0, 5)
        DatabaseSink("sqlite3", {"database": str(database)}, "numbers").store(rows, batch)
        connection.execute(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
            "INSERT INTO muster_offsets SELECT target, topic, partition_number, topic_id, 10 * n, 10 * n + 5 "
            "FROM muster_offsets, n WHERE first_offset = 0 AND n <= ?",
            (max(gaps, 1), gaps),
        )
        connection.commit()
    connect = {"database": str(database), "factory": CountingConnection}
    sink = DatabaseSink("sqlite3", connect, "numbers")
    begin = 10 * GAPS + 100
    sink.store(*batch_of(begin, begin + RECORDS))
    rows, batch = batch_of(begin + RECORDS, begin + 2 * RECORDS)
    with counted() as counts:
        sink.store(rows, batch)
    assert {len(ranges) for ranges in batch.stored["table numbers"].values()} == {gaps + 2}
    return counts


def test_ten_thousand_gaps_add_little_to_a_batch(tmp_path: Path) -> None:
    without, with_gaps = (steps_of_a_batch(tmp_path / str(gaps), gaps) for gaps in (0, GAPS))
    assert without.keys() == {PYTHON, DATABASE, STATEMENTS}
    for kind, steps in without.items():
        assert with_gaps[kind] < 1.2 * steps, kind
    assert with_gaps[STATEMENTS] == without[STATEMENTS]
