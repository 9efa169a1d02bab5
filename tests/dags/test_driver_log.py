"""Following a driver's log: over its rotation, and never more of it than may stand in Airflow's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.airflow.driver_log import A_DAY, BURST, PER_LINE, DriverLog
from muster.airflow.submission import KEPT_LOGS, prune_logs
from muster.consumer.output import rotate


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "driver.log"
    path.touch()
    return path


def write(file: Path, text: str) -> None:
    with file.open("a") as output:
        output.write(text)


def test_following_goes_on_over_a_rotation_and_loses_nothing(file: Path) -> None:
    log = DriverLog(str(file))
    write(file, "one\ntwo\n")
    assert log.new_lines() == ["one", "two"]
    write(file, "three\n")
    assert not rotate(file, largest=1000)
    assert rotate(file, largest=5)
    write(file, "four\n")
    assert log.new_lines() == ["three", "four"]
    write(file, "five\n")
    assert log.new_lines() == ["five"]
    assert file.with_name("driver.log.1").read_text() == "one\ntwo\nthree\n"


def test_following_goes_on_without_the_copy(file: Path) -> None:
    log = DriverLog(str(file), position=1000)
    write(file, "one\n")
    assert log.new_lines() == ["one"]


def test_rotation_leaves_what_another_process_appends(file: Path) -> None:
    with file.open("a") as output:
        output.write("x" * 100)
        output.flush()
        assert rotate(file, largest=50)
        output.write("later\n")
    assert file.read_text() == "later\n"


def test_flood_is_shown_in_parts_and_within_bounds(file: Path) -> None:
    clock = Clock()
    log = DriverLog(str(file), clock=clock)
    shown = []
    for minute in range(24 * 60):
        clock.now = 60.0 * minute
        write(file, f"{minute:08}: it goes wrong again\n" * 100)
        shown += log.new_lines()
        rotate(file, largest=100_000)
    assert sum(len(line) + PER_LINE for line in shown) < (A_DAY + BURST) * 1.02
    assert sum("bytes passed over" in line for line in shown) > 10
    last = [line for line in shown if "it goes wrong" in line][-1]
    assert int(last[:8]) > 23 * 60, "the newest is shown until the end"


def test_end_of_a_flood_is_shown(file: Path) -> None:
    log = DriverLog(str(file))
    for _ in range(100):
        write(file, "it goes wrong\n" * 1000)
        log.new_lines()
    write(file, "the reason")
    assert log.new_lines() == []
    lines = log.new_lines(final=True)
    assert lines[-1] == "the reason"
    assert "bytes passed over" in lines[0]


def test_logs_of_old_incarnations_go(tmp_path: Path) -> None:
    for number in range(8):
        for name in (f"{number}.log", f"{number}.log.1"):
            (tmp_path / name).write_text("a line\n")
            os.utime(tmp_path / name, (number, number))
    prune_logs(tmp_path)
    assert {path.name for path in tmp_path.glob("*.log")} == {f"{number}.log" for number in range(4, 8)}
    assert len(list(tmp_path.iterdir())) == 2 * (KEPT_LOGS - 1)
