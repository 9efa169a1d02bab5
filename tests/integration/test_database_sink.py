"""`DatabaseSink` on a real PostgreSQL, and on SQLite: writers that die, stand still and come late at any step.

tests/integration/test_database_kinds.py has what is the same for all databases.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devstack.postgresql import PostgreSQL
from muster.sinks import Batch, DatabaseSink, OffsetRange, SinkError
from tests.support.database_writer import OFFSETS_TABLE, PARTITIONS, TABLE, TOPIC, batch_of, write
from tests.support.only_long import only_long

ROOT = Path(__file__).resolve().parents[2]
EXAMINING = 12
"""Connect, cursor; two queries of two calls; INSERT, UPDATE, rollback; a query; close."""
WRITING = {False: 23, True: 21}
"""By whether there was a batch before: connect, cursor; an UPDATE of two locks, before the first batch an INSERT of
each; SELECT and fetch of the rebuild, of the ranges near and of all, and a change, of two partitions; cursor, INSERT;
commit. Closing comes after them."""
IDLE = "-c idle_in_transaction_session_timeout=500ms"
"""As docs/sinks.md says, but shorter."""


@pytest.fixture
def database(postgresql_server: PostgreSQL) -> Iterator[str]:
    """How psycopg finds an empty database that has the two tables."""
    name = f"d{uuid.uuid4().hex[:8]}"
    server = postgresql_server.url("postgresql")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = f"{server.rpartition('/')[0]}/{name}"
    with psycopg.connect(url) as connection:
        connection.execute(TABLE)
        connection.execute(OFFSETS_TABLE)
    yield f"{url}?options={IDLE.replace(' ', '%20').replace('=', '%3D')}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def found(database: str) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        return Counter(connection.execute('SELECT partition, "offset", value FROM numbers').fetchall())


def once(begin: int, end: int) -> dict[tuple[Any, ...], int]:
    return {(p, n, b"%d/%d" % (p, n)): 1 for p in PARTITIONS for n in range(begin, end)}


def writer(database: str, begin: int, end: int, step: int, number: int) -> subprocess.Popen[str]:
    arguments = [database, *(str(each) for each in (begin, end, step, number))]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.database_writer", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def frozen_at(step: int, database: str) -> Iterator[list[str]]:
    """A writer that stands still at a step inside; afterwards it goes on, and its errors are in the list."""
    errors: list[str] = []
    frozen = writer(database, 0, 20, step, signal.SIGSTOP)
    _, status = os.waitpid(frozen.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), frozen.communicate()
    try:
        yield errors
    finally:
        frozen.send_signal(signal.SIGCONT)
        errors.append(frozen.communicate(timeout=60)[1])


AT = [
    pytest.param(
        begun,
        step,
        id=f"{'later' if begun else 'first'} batch, step {step}",
        marks=() if begun and step in {EXAMINING + steps, EXAMINING + steps + 1} else only_long,
    )
    for begun, steps in WRITING.items()
    for step in (8, 10, *range(EXAMINING + 1, EXAMINING + steps + 2))
]
"""The probe before and after its end, and each step of the transaction; by default those around the commit."""


def test_the_number_of_steps_is_what_the_tests_go_through(database: str) -> None:
    ended = writer(database, 0, 20, 0, signal.SIGKILL)
    assert int(ended.communicate()[0]) == EXAMINING + WRITING[False] + 1
    ended = writer(database, 20, 30, 0, signal.SIGKILL)
    assert int(ended.communicate()[0]) == EXAMINING + WRITING[True] + 1
    assert found(database) == once(0, 30)


@pytest.mark.parametrize(("begun", "step"), AT)
def test_writer_killed_at_a_step_leaves_each_record_once(database: str, step: int, begun: bool) -> None:
    if begun:
        write({"conninfo": database}, 0, 5)
    killed = writer(database, 0, 20, step, signal.SIGKILL)
    assert killed.wait(60) == -signal.SIGKILL, killed.communicate()
    stands = found(database)
    assert stands in ({}, once(0, 5), once(0, 20)), "all of a batch or nothing"
    assert (stands == once(0, 20)) == (step > EXAMINING + WRITING[begun]), "from the commit on"
    for begin, end in ((0, 9), (9, 14), (0, 30)):
        write({"conninfo": database}, begin, end)
    assert found(database) == once(0, 30)


@pytest.mark.parametrize(("begun", "step"), AT)
def test_writer_frozen_at_a_step_and_replaced_writes_nothing_twice(
    database: str, step: int, begun: bool
) -> None:
    if begun:
        write({"conninfo": database}, 0, 5)
    with frozen_at(step, database) as errors:
        for begin, end in ((0, 9), (9, 14), (14, 30)):
            write({"conninfo": database}, begin, end)
        assert found(database) == once(0, 30), "before the frozen one goes on"
    assert found(database) == once(0, 30), errors


@pytest.mark.parametrize(("begun", "step"), AT)
def test_writer_frozen_at_a_step_before_a_rebuild_writes_nothing(
    database: str, step: int, begun: bool
) -> None:
    if begun:
        write({"conninfo": database}, 0, 5)
    with frozen_at(step, database) as errors:
        with psycopg.connect(database) as connection:
            connection.execute("DELETE FROM numbers")
        for begin, end in ((0, 9), (9, 14), (14, 30)):
            write({"conninfo": database}, begin, end, rebuild=7)
    committed = step > EXAMINING + WRITING[begun]
    assert ("SinkError: table " in errors[0]) == (not committed), errors
    assert found(database) == once(0, 30)


def test_rebuild_forgets_what_was_stored_and_is_handed_over_in_order(database: str) -> None:
    connect = {"conninfo": database}
    assert write(connect, 0, 10) == {(TOPIC, p): ((0, 10),) for p in PARTITIONS}
    assert write(connect, 20, 30) == {(TOPIC, p): ((0, 10), (20, 30)) for p in PARTITIONS}
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM numbers")
    for begin, end in ((0, 10), (5, 25), (40, 50)):
        stored = write(connect, begin, end, rebuild=7)
    assert stored == {(TOPIC, p): ((0, 25), (40, 50)) for p in PARTITIONS}
    for older in (6, 0):
        with pytest.raises(
            SinkError, match=rf"partition 0 was rebuilt as number 7, and this .* number {older},"
        ):
            write(connect, 25, 40, rebuild=older)
    assert found(database) == once(0, 25) | once(40, 50)
    write(connect, 40, 50, rebuild=8)
    assert found(database) == Counter(once(0, 25)) + Counter(once(40, 50)) + Counter(once(40, 50))


def test_running_sink_reports_what_others_have_stored(database: str) -> None:
    sink = DatabaseSink("psycopg", {"conninfo": database}, "numbers")

    def stored(begin: int, end: int, rebuild: int = 0) -> set[Sequence[OffsetRange]]:
        rows, batch = batch_of(begin, end, rebuild=rebuild)
        sink.store(rows, batch)
        return set(batch.stored["table numbers"].values())

    assert stored(0, 10) == {((0, 10),)}
    write({"conninfo": database}, 20, 30)
    write({"conninfo": database}, 10, 12)
    assert stored(12, 14) == {((0, 14), (20, 30))}
    assert stored(50, 60, rebuild=7) == {((50, 60),)}


def test_writers_at_the_same_time_write_each_record_once(database: str) -> None:
    writers = [writer(database, begin, begin + 40, 0, 0) for begin in (0, 10, 0, 25)]
    for each in writers:
        _, errors = each.communicate(timeout=60)
        assert each.returncode == 0, errors
    assert found(database) == once(0, 65)


def test_records_passed_over_by_a_seek_are_written_when_they_come_later(database: str) -> None:
    for begin, end in ((0, 10), (50, 60), (5, 55), (58, 70)):
        write({"conninfo": database}, begin, end)
    assert found(database) == once(0, 70)
    query = "SELECT DISTINCT target, first_offset, next_offset FROM muster_offsets ORDER BY 2"
    with psycopg.connect(database) as connection:
        stored = connection.execute(query).fetchall()
    assert stored == [("public.numbers", -1, 4), ("public.numbers", 0, 70)]


def test_statement_is_executed_in_the_order_of_offsets_and_values_stand_once(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE latest (number integer PRIMARY KEY, value text, times integer)")
    statement = (
        "INSERT INTO latest VALUES ({partition}, convert_from({value}, 'UTF8'), 1) ON CONFLICT (number) "
        "DO UPDATE SET value = excluded.value, times = latest.times + 1 WHERE '100%' <> '{{}}'"
    )
    sink = DatabaseSink("psycopg", {"conninfo": database}, "latest", statement)
    for begin, end in ((0, 10), (4, 20), (0, 20)):
        rows, batch = batch_of(begin, end)
        sink.store(rows.take(list(reversed(range(rows.num_rows)))), batch)
    with psycopg.connect(database) as connection:
        latest = connection.execute("SELECT * FROM latest ORDER BY number").fetchall()
    assert latest == [(p, f"{p}/19", 20) for p in PARTITIONS]


def test_recreated_topic_is_written_beside_the_old_one(database: str) -> None:
    sink = DatabaseSink("psycopg", {"conninfo": database}, "numbers")
    for topic_id in ("first", "second", "first", "second"):
        rows, batch = batch_of(0, 10)
        sink.store(rows, Batch(batch.ranges, {TOPIC: topic_id}))
    assert found(database) == dict.fromkeys(once(0, 10), 2), (
        "the first one has what was written without an id"
    )


def test_many_gaps_are_read_by_few_rows(database: str) -> None:
    write({"conninfo": database}, 0, 1)
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO muster_offsets SELECT target, topic, partition_number, topic_id, 10 * n, 10 * n + 5 "
            "FROM muster_offsets, generate_series(1, 10000) AS n WHERE first_offset = 0"
        )
        connection.execute("ANALYZE muster_offsets")
        near = (
            "SELECT first_offset FROM muster_offsets WHERE target = 'public.numbers' AND topic = 't' AND "
            "partition_number = 0 AND topic_id = 'an-id' AND first_offset >= (SELECT MAX(first_offset) FROM "
            "muster_offsets WHERE target = 'public.numbers' AND topic = 't' AND partition_number = 0 AND "
            "topic_id = 'an-id' AND first_offset <= 90000) AND first_offset <= 90010"
        )
        plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {near}").fetchone()
    assert plan is not None
    assert plan[0][0]["Plan"]["Actual Rows"] == 2
    assert "Seq Scan" not in str(plan)
    write({"conninfo": database}, 90_000, 90_020)
    with psycopg.connect(database) as connection:
        stored = connection.execute(
            "SELECT first_offset, next_offset FROM muster_offsets WHERE first_offset BETWEEN 89990 AND 90030"
        ).fetchall()
    assert sorted(set(stored)) == [(89_990, 89_995), (90_000, 90_025), (90_030, 90_035)]


def test_topic_without_a_known_id_is_refused(database: str) -> None:
    rows, batch = batch_of(0, 10)
    with pytest.raises(SinkError, match="topic 't': its assignment has no topic id"):
        DatabaseSink("psycopg", {"conninfo": database}, "numbers").store(rows, Batch(batch.ranges))
    assert found(database) == {}


def test_statement_that_fails_leaves_nothing_of_the_batch(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute('CREATE UNIQUE INDEX ON numbers ("offset") WHERE "offset" > 14')
    with pytest.raises(psycopg.errors.UniqueViolation):  # the row's, not the sink's
        write({"conninfo": database}, 0, 20)
    assert found(database) == {}
    write({"conninfo": database}, 0, 10)
    assert found(database) == once(0, 10)


def test_options_of_no_use_are_named() -> None:
    with pytest.raises(ValueError, match="'driver' 'no_such_driver'"):
        DatabaseSink("no_such_driver", {}, "t")
    with pytest.raises(ValueError, match=r"'connect\.password' needs the environment variable NOT_SET_HERE"):
        DatabaseSink("sqlite3", {"password": "${NOT_SET_HERE}"}, "t")


cuts = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda t: (t[0], t[0] + t[1])), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(cuts)
def test_batches_in_any_cuts_stand_once_in_another_database(written: list[tuple[int, int]]) -> None:
    """SQLite, whose markers are others."""
    name = f"file:{uuid.uuid4().hex}?mode=memory&cache=shared"
    with sqlite3.connect(name, uri=True) as kept:
        kept.executescript(TABLE + ";" + OFFSETS_TABLE)
        sink = DatabaseSink("sqlite3", {"database": name, "uri": True}, "numbers")
        for begin, end in written:
            sink.store(*batch_of(begin, end))
        held = Counter(kept.execute('SELECT partition, "offset" FROM numbers'))
        _, batch = again = batch_of(0, 50)
        sink.store(*again)
        left = {
            (p, n)
            for (_, p), found in batch.left_out.items()
            for held_range in found
            for n in range(*held_range)
        }
        assert left == {(p, n) for p, n in held if n < 50}
    kept.close()
    assert held == {(p, n): 1 for p in PARTITIONS for begin, end in written for n in range(begin, end)}
