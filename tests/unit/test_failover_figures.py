"""What the failover benchmark makes of deliveries: who had what, its pauses, what came twice or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.failover import Run, last_line, write
from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_figures import Event, Name, flows, measure
from benchmarks.failover_muster import NAME
from benchmarks.failover_peers import KINDS


def note(folder: Path, pid: int, at: float, *ranges: tuple[int, int, int]) -> None:
    with (folder / f"{pid}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"pid": pid, "at": at, "ranges": ranges}) + "\n")


def test_a_consumer_is_killed(tmp_path: Path) -> None:
    """One of two is killed at 10.5; the other takes its partition 1 up at 13, from what was committed."""
    deliveries = Deliveries(tmp_path, 2)
    for second in range(11):
        note(tmp_path, 7, second, (0, second, second + 1))
        note(tmp_path, 8, second, (1, second, second + 1))
    event = Event("x", Name.KILL, 10.5, deliveries.refresh().owners(), {0: 11, 1: 11})
    assert event.owners == {0: 7, 1: 8}
    note(tmp_path, 7, 11, (0, 11, 12))
    assert not flows(event, deliveries.refresh(), without=8, members=1)
    note(tmp_path, 7, 13, (0, 12, 14), (1, 9, 14))
    assert flows(event, deliveries.refresh(), without=8, members=1)
    event.ended = 13.5
    note(tmp_path, 7, 14, (0, 14, 15), (1, 15, 16))
    measure(event, deliveries.refresh())
    assert event.flows == 2.5
    assert event.moved == {1: 3.0}
    assert event.stayed == {0: 2.0}
    assert event.doubled == 2
    assert deliveries.lost({0: 15, 1: 16}) == 1, "record 14 of partition 1"
    assert deliveries.lost({0: 17, 1: 16}) == 3, "and two at the end of partition 0"


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    deliveries = Deliveries(tmp_path, 1)
    file = tmp_path / "1.jsonl"
    file.write_text('{"pid": 1, "at": 1.0, "ranges": [[0, 0, 5]]}\n{"pid": 1, "at"', encoding="utf-8")
    assert deliveries.refresh().reached() == {0: 5}
    with file.open("a", encoding="utf-8") as more:
        more.write(': 2.0, "ranges": [[0, 5, 9]]}\n')
    assert deliveries.refresh().reached() == {0: 9}


def round_of(contestant: str, seconds: float, loops: int) -> list[Event]:
    """All events, each partition that moved pausing for `seconds`."""
    return [
        Event(contestant, name, 0.0, {}, {}, flows=seconds, moved={0: seconds}, stayed={1: 0.5}, loops=loops)
        for name in (Name.KILL, Name.REPLACE, Name.FREEZE, Name.LEAVE, Name.JOIN, Name.QUIET)
    ]


def test_busy_round_has_figures_of_its_own(tmp_path: Path) -> None:
    quiet = [event for kind in KINDS for event in round_of(str(kind), 4.0, 0)] + round_of(NAME, 2.0, 0)
    run = Run(quiet, 10, 0, 45_000, 1, 100, 0.5)
    assert last_line(run).endswith(
        "leave_pause_ms=2000 join_pause_ms=2000 unmoved_pause_ratio=1.00 dup_planned=0 lost=0 "
        "busy_kill_ratio=nan busy_leave_pause_ms=nan"
    )
    busy = [event for kind in KINDS for event in round_of(str(kind), 8.0, 6)] + round_of(NAME, 6.0, 6)
    both = replace(run, events=[*quiet, *busy])
    assert last_line(both) == last_line(run).replace(
        "busy_kill_ratio=nan busy_leave_pause_ms=nan", "busy_kill_ratio=0.75 busy_leave_pause_ms=6000"
    )
    write(tmp_path, both)
    report = (tmp_path / "report-failover.md").read_text(encoding="utf-8")
    assert "## Beside busy loops, 6 a core" in report
    assert "## Beside busy loops, 1 a core" not in report
