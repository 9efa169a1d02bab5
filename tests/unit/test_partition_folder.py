"""A partition's folder in a file sink: whichever writer dies or comes late, each offset stands there once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.model import OffsetRange
from muster.sinks import partition_folder as module
from muster.sinks.partition_folder import (
    Coverage,
    PartitionFolder,
    SinkError,
    incoming_file,
    partition_folder,
    topic_folder,
)
from tests.support.partition_files import DiedError, Writer, once, ranges, read


def test_a_file_is_named_by_its_offsets_and_a_batch_that_comes_again_is_left_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write((100, 200))
    assert [file.name for file in tmp_path.glob("*.txt")] == ["00000000000000000100-00000000000000000199.txt"]
    for again in (writer, Writer(tmp_path)):
        again.write((100, 200))
        again.write((150, 250))  # planned again after a crash, with other bounds
        again.write((90, 260))
    assert read(tmp_path) == once((90, 260))
    assert list((tmp_path / "_incoming").iterdir()) == []


def test_a_zombies_late_file_neither_doubles_nor_destroys(tmp_path: Path) -> None:
    zombie, newer = Writer(tmp_path), Writer(tmp_path)
    zombie.write((0, 10))
    # Frozen here, with a batch that it planned; the newer one takes over with other bounds.
    newer.write((10, 25))
    newer.write((25, 30))
    zombie.write((10, 20))
    zombie.write((20, 40))
    newer.write((30, 35))
    assert read(tmp_path) == once((0, 40))


def test_a_zombie_that_missed_more_claims_than_are_kept_is_not_fooled_by_a_free_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    zombie, newer = Writer(tmp_path), Writer(tmp_path)
    for n in range(10):
        newer.write((n, n + 1))
    assert len(list((tmp_path / "_claims").iterdir())) <= 3
    zombie.write((0, 5))
    newer.write((10, 11))
    assert read(tmp_path) == once((0, 11))


STEPS: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., object]], None]] = {
    "before the claim": lambda patch, die: patch.setattr(os, "link", die),
    "between claim and rename": lambda patch, die: patch.setattr(Path, "rename", die),
    "after the rename": lambda patch, die: patch.setattr(PartitionFolder, "missing", die),
}


@pytest.mark.parametrize("step", STEPS)
def test_death_at_any_step_leaves_something_to_go_on_from(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(tmp_path).write((0, 10))
    dying = Writer(tmp_path)

    def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        if step == "after the rename":
            dying.write((10, 20))
        STEPS[step](patch, die)
        with pytest.raises(DiedError):
            dying.write((10, 20))
    assert read(tmp_path).total() in {10, 20}, "whole or not at all"
    Writer(tmp_path).write((5, 30))
    dying.write((10, 20))  # it was a zombie only
    assert read(tmp_path) == once((0, 30))


def test_claimed_and_deleted_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)

    def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)
        with pytest.raises(DiedError):
            writer.write((0, 10))
    for file in (tmp_path / "_incoming").iterdir():
        file.unlink()
    with pytest.raises(SinkError, match=r"00000000000000000000-00000000000000000009\.txt: .*deleted"):
        Writer(tmp_path)


def test_later_pieces_leave_out_records_found_while_an_earlier_one_was_written(
    tmp_path: Path,
) -> None:
    """The zombie knows of (1, 2) only, so it plans two pieces; when it writes the second, it knows more."""
    newer, zombie = Writer(tmp_path), Writer(tmp_path)
    zombie.write((1, 2))
    newer.write((0, 4))
    zombie.write((0, 6))
    assert read(tmp_path) == once((0, 6))


def test_a_file_that_was_tidied_away_is_not_claimed(tmp_path: Path) -> None:
    """Its writer stood still for more than a day; no reader would find what it claimed."""
    writer = Writer(tmp_path)
    late = incoming_file(tmp_path)
    with pytest.raises(FileNotFoundError, match=late.name):
        writer.folder.publish((0, 10), late)
    Writer(tmp_path).write((0, 5))
    writer.write((0, 10))
    assert read(tmp_path) == once((0, 10))


def test_files_of_a_recreated_topic_have_a_folder_of_their_own(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "t", 0)
    before = PartitionFolder(topic_folder(folder, ""), ".txt")
    assert before.path == folder, "as it was before ids were known"
    assert topic_folder(folder, "A") == folder, "the first that is known is taken for the one that was there"
    assert topic_folder(folder, "B") == folder / "id-B"
    assert topic_folder(folder, "A") == topic_folder(folder, "") == folder
    assert (folder / "_topic_id").read_text() == "A"
    assert topic_folder(partition_folder(tmp_path, "t", 1), "B") == partition_folder(tmp_path, "t", 1)


def test_writers_that_meet_a_new_folder_agree_on_its_topic(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "t", 0)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: topic_folder(folder, f"id{number % 4}"), range(64)))
    owner = (folder / "_topic_id").read_text()
    assert {path for number, path in enumerate(found) if f"id{number % 4}" == owner} == {folder}
    assert {path for number, path in enumerate(found) if f"id{number % 4}" != owner} == {
        folder / f"id-id{number}" for number in range(4) if f"id{number}" != owner
    }
    assert sorted(path.name for path in folder.iterdir()) == ["_topic_id"]


def test_unclaimed_file_is_removed_after_a_day(tmp_path: Path) -> None:
    old, new = incoming_file(tmp_path), incoming_file(tmp_path)
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    Writer(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_many_writers_at_the_same_time(tmp_path: Path) -> None:
    """Each writes everything, in batches of its own size; they meet at every offset."""
    failures: list[BaseException] = []

    def work(size: int) -> None:
        try:
            writer = Writer(tmp_path)
            for begin in range(0, 120, size):
                writer.write((begin, min(120, begin + size)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(size,)) for size in (7, 10, 13, 29)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert read(tmp_path) == once((0, 120))


@given(st.lists(st.tuples(st.integers(0, 2), ranges, st.booleans()), max_size=15))
@settings(max_examples=100, deadline=None)
def test_any_order_of_writers_and_ranges(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, OffsetRange, bool]]
) -> None:
    path = tmp_path_factory.mktemp("p")
    writers = [Writer(path) for _ in range(3)]
    wanted: dict[int, int] = {}
    for number, held, born_anew in batches:
        if born_anew:
            writers[number] = Writer(path)
        writers[number].write(held)
        wanted |= once(held)
        assert read(path) == wanted


@given(st.lists(ranges, max_size=12), ranges)
def test_coverage_against_a_set(covered: list[OffsetRange], asked: OffsetRange) -> None:
    coverage = Coverage()
    offsets: set[int] = set()
    for held in covered:
        coverage.add(*held)
        offsets |= set(range(*held))
    missing = coverage.missing(*asked)
    assert [n for held in missing for n in range(*held)] == sorted(set(range(*asked)) - offsets)
    assert all(a[1] < b[0] for a, b in pairwise(missing))
    assert [n for held in coverage.ranges for n in range(*held)] == sorted(offsets)
    assert coverage.ranges == Coverage(covered).ranges
