"""What the tests of real faults share: a fault's window, what becomes of the next fault, and the score."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pytest

from tests.support.fault_score import Row, Score
from tests.support.fault_world import Fault, FaultWorld, Window


@dataclass
class World(FaultWorld):
    """A stack that is well or not, without servers."""

    is_well: bool = True
    restored: int = 0

    def well(self) -> bool:
        return self.is_well

    def flows(self, since: float) -> float:
        return time.time()

    def describe(self) -> str:
        return "as it stands"

    def restore_all(self) -> None:
        self.restored += 1

    def doubled(self, since: float, until: float) -> int:
        return 2

    def went_back(self, since: float, until: float) -> int:
        return 1


def test_fault_keeps_its_window_and_restores() -> None:
    world = World()
    with world.fault("kill", planned=False) as window:
        pass
    assert world.windows == [window]
    assert window.began <= window.flowed <= window.ended
    assert (window.doubled, world.restored) == (2, 1)


def test_fault_is_not_tried_after_one_that_was_not_recovered_from() -> None:
    world = World(longest=0.0)
    world.is_well = False
    with (
        pytest.raises(AssertionError, match="all is well before the fault; as it stands"),
        world.fault("a", False),
    ):
        pass
    with (
        pytest.raises(AssertionError, match="not tried, because the stack has not recovered"),
        world.fault("b", False),
    ):
        pass
    assert world.windows == []


def test_fault_without_mending_is_followed_at_once() -> None:
    world = World(longest=0.0)
    with world.fault("a", planned=False, mended=False):
        world.is_well = False
    with world.fault("b", planned=False, mended=False):
        pass
    assert [window.fault for window in world.windows] == ["a", "b"]


def test_rows_count_what_falls_into_a_fault() -> None:
    world = World()
    world.windows = [
        Window("a", True, 10.0, times=3, ended=20.0, flowed=12.0, doubled=1),
        Window("b", False, 20.0, ended=30.0),
        Window("a", True, 30.0, ended=40.0, flowed=35.0),
    ]
    assert world.rows(lost=[15.0, 20.0, 41.0], double_owners=[39.0]) == [
        Row("a", 4, 1, 1, 2, 1, 5.0, planned=True),
        Row("b", 1, 1, 0, 1, 0, 10.0),
    ]


def test_score_survives_a_round_trip_and_is_good_without_losses() -> None:
    rows = [Row("a", 4, 0, 0, 0, 0, 5.0, planned=True), Row("b", 1, 0, 7, 0, 0, 10.0)]
    score = Score("faults", rows)
    assert score.good
    assert score.last_line() == "faults: injected=5 lost=0 doubled_planned=0 zombie_commits=0"
    assert score.table().splitlines()[1] == (
        "a (planned)         4     0        0               0           -              5.0 s"
    )
    found = {
        "name": "hosts",
        "rows": [{**vars(row), "double_owner": 1} for row in rows],
        "hosts": 3,
        "assignors": ["range", "sticky"],
    }
    hosts = Score.from_dict(found)
    assert not hosts.good
    assert hosts.last_line() == (
        "hosts: hosts=3 injected=5 lost=0 doubled_planned=0 zombie_commits=0 double_owner=2 assignors=2"
    )
    assert not Score("faults", []).good
    assert replace(score, unnamed=0).last_line().endswith("zombie_commits=0 unnamed=0")
    assert not replace(score, unnamed=1).good


def test_planned_fault_fails_when_records_come_twice_and_another_one_does_not() -> None:
    assert World().play(Fault("kill", lambda _: 3)).times == 3
    with pytest.raises(AssertionError, match="move: 2 records were given to a handler twice"):
        World().play(Fault("move", lambda _: None, planned=True))
