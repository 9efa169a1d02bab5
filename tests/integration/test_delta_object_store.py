"""`DeltaSink` on an S3-compatible object store: two writers, of which one dies, is late or hears no answer."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

from muster.sinks import DeltaSink, SinkError, delta_upkeep
from tests.conftest import Eventually
from tests.support.database_writer import PARTITIONS, batch_of
from tests.support.delta_rows import delta_rows
from tests.support.object_store import BUCKET, ObjectStore, options, put_if_absent
from tests.support.only_long import only_long
from tests.support.s3_proxy import S3Proxy
from tests.support.servers import running

ROOT = Path(__file__).resolve().parents[2]
FIRST = 5
"""What the first batch changes: the table's making; a data file's beginning, part and end; a commit."""
LATER = FIRST - 1

pytestmark = pytest.mark.stack

Hook = Callable[[int], bool]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with running(ObjectStore(tmp_path_factory.mktemp("store"))) as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class Table:
    """A table of the store, without a proxy between."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._path = path
        self._options = options(store.address)
        self.sink = DeltaSink(path, self._options)

    def write(self, *cuts: tuple[int, int]) -> None:
        for begin, end in cuts:
            self.sink.store(*batch_of(begin, end))

    def found(self) -> Counter[tuple[Any, ...]]:
        return Counter(delta_rows(self._path, "partition", "offset", "value", options=self._options))


def once(begin: int, end: int) -> dict[tuple[Any, ...], int]:
    return {(p, n, b"%d/%d" % (p, n)): 1 for p in PARTITIONS for n in range(begin, end)}


def writer(address: str, path: str, begin: int, end: int) -> subprocess.Popen[str]:
    """A process that writes a batch to the store, or the proxy, at `address`."""
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "tests.support.delta_writer", path, str(begin), str(end)],
        cwd=ROOT,
        env=os.environ | options(address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def written_by_another(
    store: ObjectStore, path: str, before: Hook = lambda _: True, after: Hook = lambda _: True
) -> Iterator[tuple[subprocess.Popen[str], S3Proxy]]:
    """A process that writes offsets 0 to 20, whose changes pass a proxy."""
    with S3Proxy(store.address, before, after) as proxy:
        process = writer(proxy.address, path, 0, 20)
        try:
            yield process, proxy
        finally:
            process.kill()
            process.communicate()


STEPS = [
    pytest.param(
        begun,
        step,
        id=f"{'later' if begun else 'first'} batch, change {step}",
        marks=() if begun and step == steps else only_long,
    )
    for begun, steps in ((False, FIRST), (True, LATER))
    for step in range(1, steps + 1)
]


def test_one_of_two_writers_to_a_new_key_succeeds(store: ObjectStore) -> None:
    keys = [uuid.uuid4().hex for _ in range(1_000)]
    both = threading.Barrier(2)
    answers: list[list[int]] = [[], []]

    def put(number: int) -> None:
        connection = http.client.HTTPConnection(store.address)
        for key in keys:
            both.wait(60)
            answers[number].append(put_if_absent(connection, key, b"%d" % number))

    writers = [threading.Thread(target=put, args=(number,)) for number in range(2)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert Counter(tuple(sorted(pair)) for pair in zip(*answers, strict=True)) == {(200, 412): 1_000}
    assert len(set(zip(*answers, strict=True))) == 2, "now one of them wins, now the other"


def test_number_of_changes_is_what_the_tests_go_through(store: ObjectStore, table: str) -> None:
    for expected in (FIRST, 0):
        with written_by_another(store, table) as (process, proxy):
            assert process.wait(60) == 0, process.communicate()
            assert len(proxy.changes) == expected, proxy.changes
    with S3Proxy(store.address) as proxy:
        process = writer(proxy.address, table, 15, 30)
        assert process.wait(60) == 0, process.communicate()
        assert len(proxy.changes) == LATER, proxy.changes


@pytest.mark.parametrize(("begun", "step"), STEPS)
def test_writer_killed_before_a_change_leaves_each_record_once(
    store: ObjectStore, table: str, begun: bool, step: int
) -> None:
    here = Table(store, table)
    if begun:
        here.write((0, 5))
    killed = threading.Event()

    def kill(change: int) -> bool:
        if change == step:
            process.kill()
            killed.set()
        return change < step

    with written_by_another(store, table, before=kill) as (process, _):
        assert killed.wait(60), process.communicate()
        process.wait(60)
    assert here.found() == once(0, 5 if begun else 0), "nothing of the batch without its last change"
    here.write((0, 9), (9, 14), (0, 30))
    assert here.found() == once(0, 30)


@pytest.mark.parametrize(("begun", "step"), STEPS)
def test_change_that_comes_late_writes_nothing_twice(
    store: ObjectStore, table: str, begun: bool, step: int
) -> None:
    here = Table(store, table)
    if begun:
        here.write((0, 5))
    held, free = threading.Event(), threading.Event()

    def hold(change: int) -> bool:
        if change == step:
            held.set()
            free.wait(60)
        return True

    with written_by_another(store, table, before=hold) as (process, _):
        assert held.wait(60), process.communicate()
        here.write((0, 9), (9, 14), (14, 30))
        free.set()
        assert process.wait(60) == 0, process.communicate()
    assert here.found() == once(0, 30)


@pytest.mark.parametrize(("begun", "step"), STEPS)
def test_change_whose_answer_is_lost_is_made_once(
    store: ObjectStore, table: str, begun: bool, step: int
) -> None:
    here = Table(store, table)
    if begun:
        here.write((0, 5))
    with written_by_another(store, table, after=lambda change: change != step) as (process, proxy):
        output = process.communicate(timeout=120)
        assert len(proxy.changes) >= step, output
    here.write((0, 30))
    assert here.found() == once(0, 30), output


def test_writers_at_the_same_time_write_each_record_once(store: ObjectStore, table: str) -> None:
    writers = [writer(store.address, table, begin, begin + 40) for begin in (0, 10, 0, 25)]
    for each in writers:
        output = each.communicate(timeout=120)
        assert each.returncode == 0, output
    assert Table(store, table).found() == once(0, 65)


def test_store_that_forgets_conditions_is_refused(store: ObjectStore, table: str) -> None:
    with S3Proxy(store.address, unconditional=True) as proxy:
        refused = writer(proxy.address, table, 0, 10)
        _, errors = refused.communicate(timeout=60)
    assert f"Delta table {table}: of 4 commits at once" in errors
    assert "has no atomic write that fails if the name is there" in errors
    objects = store.data_dir / "objects" / BUCKET / table.rpartition("/")[2]
    assert [path for path in objects.rglob("*") if path.is_file()] == [], (
        "neither a table nor a trace of the race"
    )


def test_error_of_a_store_is_one_plain_line(table: str) -> None:
    with pytest.raises(SinkError, match=rf"Delta table {table}: .*Connection refused") as raised:
        DeltaSink(table, options("127.0.0.1:1")).store(*batch_of(0, 10))
    assert str(raised.value).isprintable()


def test_files_are_joined_and_removed_in_the_store(
    store: ObjectStore, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Table(store, table)
    here.write((0, 10), (10, 20), (20, 30))
    monkeypatch.setattr(delta_upkeep, "EVERY", 0.0)
    rows, batch = batch_of(30, 40)
    here.sink.store(rows, replace(batch, has_lowest=lambda _: True))
    for thread in threading.enumerate():
        if thread.name == "delta-upkeep":
            thread.join()
    log = deltalake.DeltaTable(table, storage_options=options(store.address))
    assert len(log.file_uris()) <= 2
    assert "OPTIMIZE" in {commit["operation"] for commit in log.history()}
    assert here.found() == once(0, 40)


def test_other_threads_go_on_while_the_store_hangs(
    store: ObjectStore, table: str, eventually: Eventually
) -> None:
    here = Table(store, table)
    here.write((0, 10))
    writing = threading.Thread(target=here.write, args=((10, 20),))

    def asks() -> bool:
        frame = sys._current_frames().get(writing.ident or 0)
        return frame is not None and frame.f_code.co_name == "entry"

    store.pause()
    try:
        writing.start()
        eventually(asks, what="the request")
    finally:
        store.resume()
    writing.join(60)
    assert here.found() == once(0, 20)
