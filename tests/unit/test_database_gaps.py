"""What a batch costs `DatabaseSink` where seeks, skips and letters have left many gaps in what is stored."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from muster.sinks import DatabaseSink
from tests.support.database_writer import OFFSETS_TABLE, batch_of

GAPS = 10_000
RECORDS, BATCHES = 1_000, 10


def cpu_of_a_batch(database: Path, gaps: int) -> float:
    """The least seconds of this process for a batch, of a sink that has read that there are so many ranges."""
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
    sink, took = DatabaseSink("sqlite3", {"database": str(database)}, "numbers"), []
    begin = 10 * GAPS + 100
    for number in range(BATCHES):
        rows, batch = batch_of(begin + number * RECORDS, begin + (number + 1) * RECORDS)
        began = time.process_time()
        sink.store(rows, batch)
        took.append(time.process_time() - began)
        assert {len(ranges) for ranges in batch.stored["table numbers"].values()} == {gaps + 2}
    return min(took)


def test_ten_thousand_gaps_add_little_to_a_batch(tmp_path: Path) -> None:
    without, with_gaps = (cpu_of_a_batch(tmp_path / str(gaps), gaps) for gaps in (0, GAPS))
    assert with_gaps < 1.2 * without
