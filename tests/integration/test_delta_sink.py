"""`DeltaSink` on real tables: writers that die, stand still and come late at the steps of a commit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import TableNotFoundError
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.sinks import Batch, DeltaSink, SinkError
from tests.conftest import Eventually
from tests.support.database_writer import PARTITIONS, TOPIC, batch_of
from tests.support.debian_programs import needed
from tests.support.delta_batches import write
from tests.support.delta_rows import delta_rows
from tests.support.only_long import only_long

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.stack


def found(path: Path) -> Counter[tuple[Any, ...]]:
    return Counter(delta_rows(path, "partition", "offset", "value"))


def once(begin: int, end: int, partitions: tuple[int, ...] = PARTITIONS) -> dict[tuple[Any, ...], int]:
    return {(p, n, b"%d/%d" % (p, n)): 1 for p in partitions for n in range(begin, end)}


def writer(path: Path, begin: int, end: int, options: Sequence[str]) -> subprocess.Popen[str]:
    """A process that writes a batch, with what `strace` is to do to it."""
    strace = ["--follow-forks", "--quiet=all", "--output=/dev/null", *options]
    child = [sys.executable, "-B", "-m", "tests.support.delta_writer", str(path), str(begin), str(end)]
    return subprocess.Popen(
        [str(needed("strace")[0]), *strace, *child],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def commit(version: int) -> str:
    """The file of the log, in the table's folder, that is this commit."""
    return f"_delta_log/{version:020}.json"


def at(call: str, path: Path | None, number: signal.Signals) -> list[str]:
    """A signal at the first such system call, with this path: SIGKILL comes before it is carried out, SIGSTOP after
    it."""
    paths = [f"--trace-path={path}"] if path is not None else []
    return [f"--trace={call}", f"--inject={call}:signal={number.name}:when=1", *paths]


FIRST = [
    pytest.param(False, "mkdir", "", id="the folder"),
    pytest.param(False, "linkat", commit(0), id="the table"),
    pytest.param(False, "unlink", f"{commit(0)}#1", id="what is left of making the table"),
    pytest.param(False, "rename", None, id="the first data file"),
    pytest.param(False, "linkat", commit(1), id="the first commit"),
    pytest.param(False, "unlink", f"{commit(1)}#1", id="what is left of the first commit"),
]
LATER = [
    pytest.param(True, "rename", None, id="a data file"),
    pytest.param(True, "openat", f"{commit(2)}#1", id="the beginning of a commit"),
    pytest.param(True, "linkat", commit(2), id="a commit"),
    pytest.param(True, "unlink", f"{commit(2)}#1", id="what is left of a commit"),
]
"""Every call that changes what another process sees of the table; the name of a data file is not known beforehand."""
FROZEN = [*(pytest.param(*step.values, id=step.id, marks=only_long) for step in FIRST), *LATER]
"""A writer is frozen in its first batch with `LONG=1` only."""


@pytest.mark.parametrize(("begun", "call", "path"), [*FIRST, *LATER])
def test_writer_killed_at_a_step_leaves_each_record_once(
    tmp_path: Path, begun: bool, call: str, path: str | None
) -> None:
    table = tmp_path / "table"
    if begun:
        write(DeltaSink(str(table)), (0, 5))
    killed = writer(table, 0, 20, at(call, None if path is None else table / path, signal.SIGKILL))
    output = killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL, output
    committed = call == "unlink" and path != f"{commit(0)}#1"
    assert found(table) == once(0, 20 if committed else 5 if begun else 0), "all of a batch or nothing"
    write(DeltaSink(str(table)), (0, 9), (9, 14), (0, 30))
    assert found(table) == once(0, 30)


@pytest.mark.parametrize(("begun", "call", "path"), FROZEN)
def test_writer_frozen_at_a_step_and_replaced_writes_nothing_twice(
    tmp_path: Path, begun: bool, call: str, path: str | None, eventually: Eventually
) -> None:
    table = tmp_path / "table"
    newer = DeltaSink(str(table))
    if begun:
        write(newer, (0, 5))
    with frozen(table, call, path, eventually) as older:
        assert found(table) == once(0, 20 if is_committed(call, path) else 5 if begun else 0)
        write(newer, (0, 9), (9, 14), (14, 30))
    output = older.communicate(timeout=60)
    assert older.returncode == 0, output
    assert found(table) == once(0, 30)


@pytest.mark.parametrize(("begun", "call", "path"), FROZEN)
def test_writer_frozen_at_a_step_before_a_rebuild_writes_nothing(
    tmp_path: Path, begun: bool, call: str, path: str | None, eventually: Eventually
) -> None:
    table = tmp_path / "table"
    if begun:
        write(DeltaSink(str(table)), (0, 5))
    with frozen(table, call, path, eventually) as older:
        with suppress(TableNotFoundError):
            deltalake.DeltaTable(str(table)).delete()
        write(DeltaSink(str(table)), (0, 9), (9, 14), (14, 30), rebuild=7)
    _, errors = older.communicate(timeout=60)
    refused = "SinkError: Delta table" in errors and "partition 0 was rebuilt as number 7" in errors
    assert refused == (not is_committed(call, path)), errors
    assert found(table) == once(0, 30)


@contextmanager
def frozen(
    table: Path, call: str, path: str | None, eventually: Eventually
) -> Iterator[subprocess.Popen[str]]:
    """A writer of the offsets 0 to 19 that stands still after a system call, and goes on at the end."""
    process = writer(table, 0, 20, at(call, None if path is None else table / path, signal.SIGSTOP))
    assert process.stdout is not None
    pid = int(process.stdout.readline())

    def stopped() -> bool:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt" for task in tasks)

    try:
        eventually(stopped, what="SIGSTOP")
        yield process
    finally:
        os.kill(pid, signal.SIGCONT)


def is_committed(call: str, path: str | None) -> bool:
    """Whether a writer that stands still after this step has committed its rows."""
    return call in {"linkat", "unlink"} and path is not None and commit(0) not in path


def test_rebuild_forgets_what_was_stored_and_is_handed_over_in_order(tmp_path: Path) -> None:
    one, other = (DeltaSink(str(tmp_path)) for _ in range(2))
    write(one, (0, 10), (20, 30))
    deltalake.DeltaTable(str(tmp_path)).delete("partition = 0")
    write(one, (0, 10), partitions=(0,), rebuild=7)
    write(other, (5, 25), partitions=(0,), rebuild=7)
    with pytest.raises(SinkError, match=r"partition 0 was rebuilt as number 7, and this .* of number 6, so"):
        write(one, (25, 40), rebuild=6)
    write(other, (0, 30), partitions=(1,))
    write(one, (20, 40), partitions=(0,), rebuild=7)
    assert found(tmp_path) == once(0, 40, (0,)) | once(0, 30, (1,))


def test_stored_ranges_are_reported_with_each_batch(tmp_path: Path) -> None:
    for cut, rebuild, ranges in (
        ((0, 10), 0, ((0, 10),)),
        ((20, 30), 0, ((0, 10), (20, 30))),
        ((22, 25), 0, ((0, 10), (20, 30))),
        ((40, 50), 7, ((40, 50),)),
        ((0, 5), 7, ((0, 5), (40, 50))),
    ):
        rows, batch = batch_of(*cut, rebuild=rebuild)
        DeltaSink(str(tmp_path)).store(rows, batch)
        assert batch.stored == {f"Delta table {tmp_path}": {(TOPIC, p): ranges for p in PARTITIONS}}


def test_writers_at_the_same_time_write_each_record_once(tmp_path: Path) -> None:
    table = tmp_path / "table"
    writers = [writer(table, begin, begin + 40, ["--trace=none"]) for begin in (0, 10, 0, 25)]
    for each in writers:
        output = each.communicate(timeout=120)
        assert each.returncode == 0, output
    assert found(table) == once(0, 65)


def test_consumers_of_other_partitions_are_not_in_each_others_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (DeltaSink(str(tmp_path)) for _ in range(2))
    for begin in range(0, 50, 10):
        write(one, (begin, begin + 10), partitions=(0,))
        write(other, (begin, begin + 10), partitions=(1,))
    assert not [record for record in caplog.records if "read again" in record.message]
    assert found(tmp_path) == once(0, 50)


def test_partition_that_moves_there_and_back_is_written_once(tmp_path: Path) -> None:
    one, other = (DeltaSink(str(tmp_path)) for _ in range(2))
    write(one, (0, 10))
    write(other, (10, 20), partitions=(0,))
    write(one, (10, 15), partitions=(1,))
    write(one, (5, 25), partitions=(0,))
    write(other, (15, 25), (0, 25), partitions=(1,))
    assert found(tmp_path) == once(0, 25)


def test_records_passed_over_by_a_seek_are_written_when_they_come_later(tmp_path: Path) -> None:
    for cut in ((0, 10), (50, 60), (70, 80), (5, 55), (58, 90)):
        write(DeltaSink(str(tmp_path)), cut)
    assert found(tmp_path) == once(0, 90)


def test_records_left_out_are_noted_in_the_batch(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path))
    write(sink, (0, 10), (15, 20))
    deltalake.DeltaTable(str(tmp_path)).delete()
    rows, batch = batch_of(5, 25)
    sink.store(rows, batch)
    assert batch.left_out == {(TOPIC, p): ((5, 10), (15, 20)) for p in PARTITIONS}
    assert found(tmp_path) == once(10, 15) | once(20, 25)


def test_batch_without_rows_is_known_as_stored(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path))
    rows, batch = batch_of(0, 10)
    sink.store(rows.slice(0, 0), batch)
    write(DeltaSink(str(tmp_path)), (0, 20))
    assert found(tmp_path) == once(10, 20)
    assert deltalake.DeltaTable(str(tmp_path)).transaction_version(f"muster:{TOPIC}:an-id:0:earlier") == 0


def test_recreated_topic_is_written_beside_the_old_one(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path))
    for topic_id in ("first", "second", "first", "second"):
        rows, batch = batch_of(0, 10)
        sink.store(rows, Batch(batch.ranges, {TOPIC: topic_id}))
    assert found(tmp_path) == dict.fromkeys(once(0, 10), 2)


def test_topic_without_a_known_id_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    rows, batch = batch_of(0, 10)
    with pytest.raises(SinkError, match="topic 't': its assignment has no topic id"):
        DeltaSink(str(tmp_path / "table")).store(rows, Batch(batch.ranges))
    assert not (tmp_path / "table").exists()


def test_identifiers_outlast_the_cleaning_of_the_log(tmp_path: Path) -> None:
    write(DeltaSink(str(tmp_path)), (0, 10), (20, 30), (30, 40))
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    *older, _ = sorted((tmp_path / "_delta_log").glob("*.json"))
    for commit in older:
        commit.unlink()
    write(DeltaSink(str(tmp_path)), (0, 45))
    assert found(tmp_path) == once(0, 45)


def test_rows_that_the_table_refuses_leave_nothing_of_the_batch(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path), partition_by=["partition"])
    write(sink, (0, 10))
    rows, batch = batch_of(10, 20)
    with pytest.raises(SinkError, match=r"no column 'more' \(string\)"):
        sink.store(rows.append_column("more", pa.array(["x"] * rows.num_rows)), batch)
    assert found(tmp_path) == once(0, 10)
    write(sink, (10, 20))
    assert found(tmp_path) == once(0, 20)
    added = pa.table(deltalake.DeltaTable(str(tmp_path)).get_add_actions(flatten=True))
    assert set(added.column("partition.partition").to_pylist()) == {0, 1}


def with_column(begin: int, end: int, name: str, values: pa.Array) -> tuple[pa.Table, Batch]:
    rows, batch = batch_of(begin, end)
    return rows.append_column(name, values.take(pa.array([0] * rows.num_rows))), batch


def test_cleared_table_is_written_again_by_a_running_sink(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "table"))
    write(sink, (0, 10), (10, 20))
    shutil.rmtree(tmp_path / "table")
    write(sink, (0, 20))
    assert found(tmp_path / "table") == once(0, 20)


@pytest.mark.parametrize("versions", [0, 1, 2, 3, 9])
def test_table_made_again_by_others_is_read_as_it_is(tmp_path: Path, versions: int) -> None:
    sink, other = DeltaSink(str(tmp_path / "table")), DeltaSink(str(tmp_path / "table"))
    write(sink, (0, 10), (10, 20))
    shutil.rmtree(tmp_path / "table")
    for n in range(versions):
        write(other, (n, n + 1))
    write(sink, (0, 30))
    assert found(tmp_path / "table") == once(0, 30)


@pytest.mark.parametrize("running", [True, False])
def test_restored_table_gets_missing_records_again(tmp_path: Path, running: bool) -> None:
    sink = DeltaSink(str(tmp_path))
    write(sink, (0, 10), (10, 20), (20, 30), (30, 40))
    deltalake.DeltaTable(str(tmp_path)).restore(2)
    write(sink if running else DeltaSink(str(tmp_path)), (15, 35), partitions=(0,))
    write(DeltaSink(str(tmp_path)), (0, 50))
    assert found(tmp_path) == once(0, 50)


@pytest.mark.parametrize("rebuild", [0, 7])
def test_writer_that_missed_a_restore_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuild: int
) -> None:
    late = DeltaSink(str(tmp_path))
    write(late, (0, 10), (10, 20))
    commit_of = deltalake.DeltaTable.create_write_transaction

    def restored_before(table: deltalake.DeltaTable, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        deltalake.DeltaTable(str(tmp_path)).restore(1)
        commit_of(table, *args, **options)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", restored_before)
    write(late, (20, 30), partitions=(0,), rebuild=rebuild)
    write(DeltaSink(str(tmp_path)), (0, 40), partitions=(0,), rebuild=rebuild)
    write(DeltaSink(str(tmp_path)), (0, 40), partitions=(1,))
    forgotten = once(0, 10, (0,)) if rebuild else {}
    assert found(tmp_path) == Counter(once(0, 40)) + Counter(forgotten)


restores = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), st.integers(0, 1), st.sampled_from([(0,), (1,), (0, 1)]), st.integers(0, 20)
        ),
        st.tuples(st.just("restore"), st.integers(0, 9), st.just(()), st.just(0)),
        st.tuples(st.just("rebuild"), st.just(0), st.sampled_from([(0,), (1,)]), st.just(0)),
    ),
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(restores)
def test_restores_at_any_time_leave_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, tuple[int, ...], int]]
) -> None:
    """A rebuild forgets what is stored of its partition, and leaves the rows."""
    path = tmp_path_factory.mktemp("delta")
    sinks = [DeltaSink(str(path)) for _ in range(2)]
    write(sinks[0], (0, 1))
    rebuilds, begun = dict.fromkeys(PARTITIONS, 0), dict.fromkeys(PARTITIONS, 0)
    nothing = dict.fromkeys(PARTITIONS, frozenset[int]())
    first = dict.fromkeys(PARTITIONS, frozenset({0}))
    stood = [(Counter[tuple[Any, ...]](), nothing), (Counter(once(0, 1)), first)]
    for step, number, partitions, begin in steps:
        table = deltalake.DeltaTable(str(path))
        after, stored = stood[-1]
        if step == "restore":
            target = number % max(1, table.version())
            table.restore(target)
            after, stored = stood[target]
        elif step == "rebuild":
            rebuilds |= {p: rebuilds[p] + 1 for p in partitions}
        for p in partitions if step == "write" else ():
            write(sinks[number], (begin, begin + 7), partitions=(p,), rebuild=rebuilds[p])
            known = stored[p] if begun[p] == rebuilds[p] else frozenset()
            begun[p] = rebuilds[p]
            new = frozenset(range(begin, begin + 7)) - known
            after = after + Counter(key for key in once(begin, begin + 7, (p,)) if key[1] in new)
            stored = stored | {p: known | new}
            stood += [(after, stored)] * (deltalake.DeltaTable(str(path)).version() + 1 - len(stood))
        stood += [(after, stored)] * (deltalake.DeltaTable(str(path)).version() + 1 - len(stood))
        assert found(path) == after


def test_missing_columns_are_null_and_new_ones_added_if_allowed(tmp_path: Path) -> None:
    write(DeltaSink(str(tmp_path)), (0, 5))
    rows, batch = batch_of(5, 10)
    DeltaSink(str(tmp_path)).store(rows.drop_columns(["value"]), batch)
    DeltaSink(str(tmp_path), new_columns=True).store(*with_column(10, 15, "more", pa.array(["x"])))
    write(DeltaSink(str(tmp_path)), (15, 20))
    values = delta_rows(tmp_path, "partition", "offset", "more")
    assert Counter(more for _, _, more in values) == {None: 30, "x": 10}
    assert len([value for _, _, value in found(tmp_path) if value is None]) == 10


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (pa.array([1], pa.int64()), pa.array([1.75]), False),
        (pa.array([1], pa.int32()), pa.array([2**40], pa.int64()), False),
        (pa.array([1], pa.int64()), pa.array(["a"]), False),
        (pa.array([1], pa.int64()), pa.array([2], pa.int16()), True),
        (pa.array([1.5], pa.float64()), pa.array([2], pa.int32()), True),
        (pa.array([[1]], pa.list_(pa.int64())), pa.array([[2]], pa.list_(pa.int32())), True),
    ],
)
def test_types_are_widened_and_never_narrowed(
    tmp_path: Path, first: pa.Array, second: pa.Array, kept: bool
) -> None:
    sink = DeltaSink(str(tmp_path))
    sink.store(*with_column(0, 5, "n", first))
    if not kept:
        with pytest.raises(
            SinkError, match=r"Delta table .*: column 'n' is \w+ in the batch and \w+ in the table"
        ):
            sink.store(*with_column(5, 10, "n", second))
        return
    sink.store(*with_column(5, 10, "n", second))
    values = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().column("n").to_pylist()
    assert Counter(map(str, values)) == {
        str(first[0].as_py()): 10,
        str(second.cast(first.type)[0].as_py()): 10,
    }


def test_column_in_other_capitals_is_refused(tmp_path: Path) -> None:
    write(DeltaSink(str(tmp_path)), (0, 5))
    rows, batch = batch_of(5, 10)
    renamed = rows.rename_columns(["topic", "partition", "offset", "Value"])
    with pytest.raises(SinkError, match="column 'Value' differs from 'value' of the table in capitals only"):
        DeltaSink(str(tmp_path), new_columns=True).store(renamed, batch)
    assert found(tmp_path) == once(0, 5)


def test_table_that_is_not_as_said_is_refused(tmp_path: Path) -> None:
    write(DeltaSink(str(tmp_path / "parted"), partition_by=["topic"]), (0, 5))
    with pytest.raises(SinkError, match="is partitioned by topic, and 'partition_by' says partition"):
        write(DeltaSink(str(tmp_path / "parted"), partition_by=["partition"]), (5, 10))
    write(DeltaSink(str(tmp_path)), (0, 5))
    with pytest.raises(SinkError, match="is partitioned by nothing, and 'partition_by' says topic"):
        write(DeltaSink(str(tmp_path), partition_by=["topic"]), (5, 10))
    write(DeltaSink(str(tmp_path / "parted")), (5, 10))  # without the option, the table's own
    assert deltalake.DeltaTable(str(tmp_path / "parted")).metadata().partition_columns == ["topic"]
    assert found(tmp_path / "parted") == once(0, 10)
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    deltalake.DeltaTable(str(tmp_path)).alter.set_table_properties(forgets)
    with pytest.raises(SinkError, match="by which its log forgets"):
        write(DeltaSink(str(tmp_path)), (5, 10))


@pytest.mark.parametrize(
    "options",
    [
        {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"},
        {"allow_unsafe_rename": "1"},
        {"conditional_put": "disabled"},
        {"AWS_S3_LOCKING_PROVIDER": "dynamodb"},
    ],
)
def test_options_by_which_commits_could_take_one_name_are_refused(options: dict[str, str]) -> None:
    [name] = options
    with pytest.raises(ValueError, match=rf"'storage_options' \w*{name.lower()}: .*could take one name"):
        DeltaSink("s3://lake/flights", storage_options=options)


writes = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([(0,), (1,), (0, 1)]), st.integers(0, 40), st.integers(1, 15)
    ),
    max_size=10,
)


@settings(max_examples=25, deadline=None)
@given(writes)
def test_batches_in_any_cuts_and_from_any_writer_stand_once(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[int, tuple[int, ...], int, int]]
) -> None:
    table = tmp_path_factory.mktemp("delta")
    sinks = [DeltaSink(str(table)) for _ in range(3)]
    expected: dict[tuple[Any, ...], int] = {}
    for number, partitions, begin, length in written:
        write(sinks[number], (begin, begin + length), partitions=partitions)
        expected |= once(begin, begin + length, partitions)
    assert found(table) == expected
