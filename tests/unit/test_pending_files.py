"""Pending files are joined and published: writers die or stand still at each step, and a reader looks between."""

from __future__ import annotations

import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.model import OffsetRange
from muster.sinks import partition_folder
from muster.sinks.pending_files import Due, PendingFile, runs
from tests.support.partition_files import (
    AT_ONCE,
    BY_SIZE,
    DiedError,
    JoiningWriter,
    files,
    has_row,
    once,
    pending,
    published,
    ranges,
    read,
)
from tests.support.partition_play import Batch, JoiningPlay, Reader, Steps, batches, stepping

STEPS: Steps = (
    (os, "link"),
    (os, "listdir"),
    (shutil, "copyfile"),
    (Path, "rename"),
    (Path, "unlink"),
    (Path, "read_bytes"),
    (Path, "write_text"),
    (Path, "touch"),
    (Path, "stat"),
)
"""Each change of the folders, and each look at them."""


def names(root: Path) -> list[str]:
    return sorted(file.name for file in files(published(root)))


def test_small_batches_become_one_file_when_they_are_large_enough(tmp_path: Path) -> None:
    writer = JoiningWriter(tmp_path)
    for held in ((0, 1), (1, 2), (2, 5)):
        writer.write(held)
    assert names(tmp_path) == []
    assert JoiningWriter(tmp_path).folder.missing((0, 9)) == [(5, 9)], "what is pending is stored"
    writer.write((5, 8))
    assert names(tmp_path) == ["00000000000000000000-00000000000000000007.txt"]
    writer.write((8, 10))
    assert pending(tmp_path) == {8, 9}
    writer.write((9, 14))
    assert names(tmp_path)[1:] == ["00000000000000000008-00000000000000000013.txt"]
    assert read(published(tmp_path), has_row) == {n: 1 for n in range(14) if has_row(n)}
    assert not files(tmp_path / "_pending" / "p", "")


def test_file_ends_where_other_columns_begin(tmp_path: Path) -> None:
    writer = JoiningWriter(tmp_path)
    for held in ((4, 6), (6, 8), (8, 10)):
        writer.write(held)
    assert names(tmp_path) == ["00000000000000000004-00000000000000000007.txt"]
    assert pending(tmp_path) == {8, 9}


def test_old_files_are_published_by_their_writer_or_by_any_that_publishes_for_all(tmp_path: Path) -> None:
    JoiningWriter(tmp_path).write((0, 3))
    JoiningWriter(tmp_path).folder.publish(Due(100, math.inf))
    assert names(tmp_path) == [], "another writer's"
    JoiningWriter(tmp_path).folder.publish(Due(100, 0, of_all=True))
    assert names(tmp_path) == [], "not old"
    JoiningWriter(tmp_path).folder.publish(Due(100, math.inf, of_all=True))
    assert names(tmp_path) == ["00000000000000000000-00000000000000000002.txt"]


def test_gap_ends_a_file_and_is_filled_later(tmp_path: Path) -> None:
    writer = JoiningWriter(tmp_path)
    writer.write((0, 4))
    writer.write((8, 10), AT_ONCE)
    first, last = "00000000000000000000-00000000000000000003", "00000000000000000008-00000000000000000009"
    assert names(tmp_path) == [f"{first}.txt", f"{last}.txt"]
    writer.write((0, 10), AT_ONCE)
    assert read(published(tmp_path), has_row) == {n: 1 for n in range(10) if has_row(n)}


def test_offsets_without_rows_alone_leave_no_file(tmp_path: Path) -> None:
    writer = JoiningWriter(tmp_path)
    writer.write((2, 4))
    assert JoiningWriter(tmp_path).folder.missing((0, 5)) == [(0, 2), (4, 5)]
    writer.folder.publish(AT_ONCE)
    assert not files(tmp_path / "_pending" / "p", "")
    assert names(tmp_path) == []


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "frozen"])
def test_writer_that_is_replaced_at_any_step_loses_and_doubles_nothing(tmp_path: Path, dies: bool) -> None:
    """Its batches come again with other borders at the next one, which publishes; a frozen one then goes on."""
    stops = 0
    while replaced_at(tmp_path / str(stops), stops, dies):
        stops += 1
    assert stops > 30, "there are so many steps"


def replaced_at(root: Path, stops: int, dies: bool) -> bool:
    """Have a writer replaced before step number `stops`. False if it has fewer steps."""
    reader = Reader(root)
    first, second = JoiningWriter(root), JoiningWriter(root)
    stored: dict[int, int] = {}
    steps = 0

    def write(writer: JoiningWriter, held: OffsetRange, due: Due = BY_SIZE) -> None:
        writer.write(held, due)
        stored.update(once(held))

    def step() -> None:
        nonlocal steps
        reader.look(stored)
        steps += 1
        if steps == stops + 1:
            write(second, (1, 6))
            write(JoiningWriter(root), (6, 9), AT_ONCE)
            write(second, (9, 10))
            if dies:
                raise DiedError

    with stepping(step, STEPS):
        try:
            for held, due in (((0, 2), BY_SIZE), ((2, 4), BY_SIZE), ((4, 7), AT_ONCE), ((7, 14), BY_SIZE)):
                write(first, held, due)
        except DiedError:
            first = JoiningWriter(root)
        reached, stops = steps > stops, -1
        for writer in (first, second):
            write(writer, (0, 16), AT_ONCE)
    reader.all_is_published((0, 16))
    return reached


@given(st.lists(batches(most_steps=60), min_size=2, max_size=8), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_any_order_of_steps(tmp_path_factory: pytest.TempPathFactory, script: list[Batch], kept: int) -> None:
    play = JoiningPlay(tmp_path_factory.mktemp("p"), script)
    with pytest.MonkeyPatch.context() as patch, stepping(play.step, STEPS):
        patch.setattr(partition_folder, "KEPT", kept)
        play.run()


def test_writers_that_work_at_the_same_time_and_a_reader(tmp_path: Path) -> None:
    """Each writes everything, in batches of its own size, and publishes for all; the reader looks all the time."""

    def work(size: int) -> None:
        writer = JoiningWriter(tmp_path)
        for begin in range(0, 120, size):
            writer.write((begin, min(120, begin + size)), AT_ONCE if begin % 3 == 0 else BY_SIZE)

    reader = Reader(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        at_work = [threads.submit(work, size) for size in (2, 5, 7, 10)]
        while not all(each.done() for each in at_work):
            reader.look_at_published()
    for each in at_work:
        each.result()
    JoiningWriter(tmp_path).folder.publish(AT_ONCE)
    reader.all_is_published((0, 120))


def test_file_that_a_late_writer_stores_again_is_published_once_and_tidied(tmp_path: Path) -> None:
    late, newer = JoiningWriter(tmp_path), JoiningWriter(tmp_path)
    newer.write((0, 6), AT_ONCE)
    late.write((4, 6))
    late.write((0, 1))
    assert pending(tmp_path) == {0, 4, 5}
    newer.folder.publish(AT_ONCE)
    late.folder.publish(AT_ONCE)
    assert not pending(tmp_path)
    assert read(published(tmp_path), has_row) == {0: 1, 1: 1, 4: 1, 5: 1}


@given(
    st.lists(st.tuples(ranges, st.booleans()), max_size=10), st.lists(ranges, max_size=3), st.integers(1, 99)
)
def test_runs_have_each_unpublished_offset_once_and_no_gap(
    stored: list[tuple[OffsetRange, bool]], done: list[OffsetRange], size: int
) -> None:
    pending_files = [
        PendingFile(Path("0.empty" if empty else "0"), held, 0 if empty else held[1] - held[0], 0.0)
        for held, empty in stored
    ]
    planned = runs(pending_files, done, size)
    pieces = [piece for run in planned for piece in run]
    offsets = [n for piece in pieces for n in range(*piece.held)]
    assert offsets == sorted({n for held, _ in stored for n in range(*held)} - once(*done).keys())
    for run in planned:
        assert all(a.held[1] == b.held[0] for a, b in pairwise(run))
        assert sum(piece.file.size for piece in run[:-1]) < size
    for piece in pieces:
        assert piece.file.held[0] <= piece.held[0] < piece.held[1] <= piece.file.held[1]


def test_file_of_which_a_part_is_published_stays_until_the_rest_is(tmp_path: Path) -> None:
    late, newer = JoiningWriter(tmp_path), JoiningWriter(tmp_path)
    newer.write((0, 5), AT_ONCE)
    late.write((4, 9))
    late.write((20, 26))
    assert len(names(tmp_path)) == 2
    assert pending(tmp_path) == {4, 5, 8}
    late.folder.publish(AT_ONCE)
    assert not pending(tmp_path)
    assert read(published(tmp_path), has_row) == dict.fromkeys((0, 1, 4, 5, 8, 20, 21, 24, 25), 1)
