"""Pending files are published in time: by their writer, also of an idle partition, and by others if it is gone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.sinks.partition_folder import incoming_file
from muster.sinks.publisher import Publisher
from tests.support.partition_files import (
    SUFFIX,
    JoiningWriter,
    files,
    has_row,
    join_lines,
    pending,
    published,
    read,
)

HOUR = 3600.0


@contextmanager
def publishing(root: Path, max_delay: float, join: Callable[..., int] = join_lines) -> Iterator[Publisher]:
    one = Publisher(root, SUFFIX, join, 100, max_delay)
    try:
        yield one
    finally:
        one.close()


def store(publisher: Publisher, root: Path, begin: int, end: int) -> None:
    file = incoming_file(published(root))
    file.write_text("".join(f"{n}\n" for n in range(begin, end) if has_row(n)))
    publisher.folder(published(root)).store((begin, end), file)


def seen(root: Path) -> set[int]:
    return set(read(published(root), has_row))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def leave_behind(root: Path, age: float) -> None:
    """Have a writer die that stored files `age` seconds ago."""
    JoiningWriter(root).write((0, 2))
    JoiningWriter(root).write((2, 5))
    for file in files(root / "_pending" / "p", ""):
        os.utime(file, (time.time() - age,) * 2)


def test_idle_partition_is_published_within_the_delay(tmp_path: Path) -> None:
    with publishing(tmp_path, 0.5) as publisher:
        store(publisher, tmp_path, 0, 2)
        store(publisher, tmp_path, 2, 5)
        wait_until(lambda: seen(tmp_path) == {0, 1, 4})
        wait_until(lambda: not pending(tmp_path))


def test_close_publishes_what_this_process_has_stored_and_nothing_of_others(tmp_path: Path) -> None:
    with publishing(tmp_path, HOUR) as publisher:
        publisher.publish_due(published(tmp_path))
        JoiningWriter(tmp_path).write((8, 10))
        store(publisher, tmp_path, 0, 2)
        publisher.publish_due(published(tmp_path))
        assert seen(tmp_path) == set(), "neither large nor old"
    assert seen(tmp_path) == {0, 1}
    assert pending(tmp_path) == {8, 9}


def test_files_of_a_killed_writer_are_published_when_one_and_a_half_delays_are_over(tmp_path: Path) -> None:
    with publishing(tmp_path, HOUR) as publisher:
        leave_behind(tmp_path, 1.4 * HOUR)
        publisher.publish_left_behind()
        assert seen(tmp_path) == set(), "their writer may still do it"
        leave_behind(tmp_path, 1.6 * HOUR)
        publisher.publish_left_behind()
        assert seen(tmp_path) == {0, 1, 4}


def test_files_of_a_killed_writer_are_published_without_any_batch(tmp_path: Path) -> None:
    leave_behind(tmp_path, HOUR)
    with publishing(tmp_path, 0.5):
        wait_until(lambda: seen(tmp_path) == {0, 1, 4})


def test_file_that_cannot_be_published_is_kept_logged_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter((OSError("No space left on device"), OSError("No space left on device")))

    def join(*args: object) -> int:
        if (failure := next(failures, None)) is not None:
            raise failure
        return join_lines(*args)  # type: ignore[arg-type]

    with caplog.at_level(logging.ERROR), publishing(tmp_path, 0.5, join) as publisher:
        store(publisher, tmp_path, 0, 2)
        store(publisher, tmp_path, 2, 5)
        wait_until(lambda: seen(tmp_path) == {0, 1, 4})
    assert len([record for record in caplog.records if record.name.startswith("muster.sinks")]) == 2
    assert str(published(tmp_path)) in caplog.text
    assert "No space left" in caplog.text
    assert not files(published(tmp_path) / "_incoming", "")
