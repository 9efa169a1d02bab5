"""What the failover benchmark makes of deliveries: who had what, its pauses, what came twice or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_figures import KILL, Event, flows, measure


def note(folder: Path, pid: int, at: float, *ranges: tuple[int, int, int]) -> None:
    with (folder / f"{pid}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"pid": pid, "at": at, "ranges": ranges}) + "\n")


def test_a_consumer_is_killed(tmp_path: Path) -> None:
    """One of two is killed at 10.5; the other takes its partition 1 up at 13, from what was committed."""
    deliveries = Deliveries(tmp_path, 2)
    for second in range(11):
        note(tmp_path, 7, second, (0, second, second + 1))
        note(tmp_path, 8, second, (1, second, second + 1))
    event = Event("x", KILL, 10.5, deliveries.refresh().owners(), {0: 11, 1: 11})
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
