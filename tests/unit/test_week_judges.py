"""What decides in the test week whether a partition stood still unnamed, and whether something has grown."""

from __future__ import annotations

import json

import pytest

from muster.core.progress import Look, Mark
from tests.support.fault_score import Row, Score
from tests.week.clock import STUCK_AFTER
from tests.week.growth import ALLOWED, Growth
from tests.week.oracle import OUT_OF_REACH, SLACK, UNSEEN, Key, Oracle

HERE = "c", "t", 1
LATE = STUCK_AFTER + SLACK + 3
"""Seconds after which what stands has to be named, where a look comes after one second."""


def status(*waiting: dict[str, object]) -> str:
    return json.dumps({"waiting": waiting, "doubt": "", "blind": "", "left_alone": {}})


class Judge:
    """An oracle whose looks at Kafka the test makes up; Muster looked last at `looked`, and found HERE if `knows`."""

    def __init__(self, said: str, excused: bool = False, looked: float = 1.0) -> None:
        self.looked, self.asked, self.knows = looked, 0, True
        self.meanwhile: dict[Key, int] = {}
        """What is committed while Muster is asked."""

        def ask(_: str) -> str:
            self.asked += 1
            self.oracle.committed |= self.meanwhile
            return said

        self.oracle = Oracle("127.0.0.1:1", {"c": "g"}, lambda _: {"t": 2}, lambda _: excused, ask, self.last)
        self.oracle._read = lambda: (self.oracle.ends, self.oracle.committed)  # type: ignore[method-assign]

    def last(self, _: str) -> Look:
        return Look(self.looked, {HERE[1:]: Mark(0, 0)} if self.knows else {})

    def look(self, at: float, committed: int, end: int, key: Key = HERE) -> Oracle:
        self.oracle.ends, self.oracle.committed = {key: end}, {key: committed}
        self.oracle._judge(at)
        return self.oracle


def test_partition_that_stands_still_unnamed_counts_once() -> None:
    judge = Judge(status({"topic": "t", "partitions": [0]}, {"topic": "other", "partitions": [1]}))
    for seconds in (0.0, 2.0, LATE - 2, LATE, LATE + 1):
        found = judge.look(seconds, 3, 5)
    assert [standing.key for standing, _ in found.unnamed] == [HERE]
    assert judge.asked == 1


@pytest.mark.parametrize(
    "said",
    [
        status({"topic": "t", "partitions": [0, 1]}),
        status({"topic": "t", "partitions": []}),
        f"{OUT_OF_REACH}ZooKeeper cannot be reached",
    ],
)
def test_partition_or_server_that_is_named_does_not_count(said: str) -> None:
    judge = Judge(said)
    for seconds in (0.0, 2.0, LATE, LATE + 1):
        found = judge.look(seconds, 3, 5)
    assert judge.asked == 1
    assert not found.unnamed


def test_partition_that_moves_while_asked_does_not_count() -> None:
    judge = Judge(status())
    judge.meanwhile = {HERE: 4}
    for seconds in (0.0, 2.0, LATE):
        found = judge.look(seconds, 3, 5)
    assert judge.asked == 1
    assert not found.unnamed


def test_status_that_fails_otherwise_names_nothing() -> None:
    judge = Judge("exit code 1: Traceback")
    judge.look(0.0, 3, 5)
    assert judge.look(LATE, 3, 5).unnamed


def test_partition_that_stands_twice_is_judged_twice() -> None:
    judge = Judge(status())
    for seconds, committed in ((0.0, 3), (2.0, 3), (LATE, 3), (100.0, 5), (150.0, 5)):
        judge.looked = seconds - 1
        judge.look(seconds, committed, 9)
    judge.look(150 + LATE, 5, 9)
    assert [standing.committed for standing, _ in judge.oracle.unnamed] == [3, 5]


def test_partition_is_judged_after_the_look_that_could_find_it() -> None:
    judge = Judge(status(), looked=-50.0)
    judge.look(0.0, 3, 5)
    judge.looked = 15.0
    judge.look(16.0, 3, 5)
    judge.look(15 + STUCK_AFTER + SLACK, 3, 5)
    assert not judge.asked
    assert judge.look(15.5 + STUCK_AFTER + SLACK, 3, 5).unnamed


def test_look_that_a_backup_forgot_does_not_count() -> None:
    judge = Judge(status(), looked=1.0)
    judge.look(0.0, 3, 5)
    judge.look(2.0, 3, 5)
    judge.looked = -50.0
    judge.look(4.0, 3, 5)
    assert not judge.look(LATE, 3, 5).unnamed
    judge.looked = LATE
    judge.look(LATE + 1, 3, 5)
    assert judge.look(LATE + STUCK_AFTER + SLACK + 1, 3, 5).unnamed


def test_topic_is_judged_after_the_look_that_knew_it() -> None:
    judge = Judge(status())
    judge.knows = False
    judge.look(0.0, 3, 5)
    judge.looked = 10.0
    assert not judge.look(STUCK_AFTER + SLACK + 11, 3, 5).unnamed
    judge.looked, judge.knows = STUCK_AFTER + SLACK + 12, True
    judge.look(STUCK_AFTER + SLACK + 13, 3, 5)
    assert not judge.look(2 * STUCK_AFTER + SLACK + 12, 3, 5).unnamed
    assert judge.look(2 * (STUCK_AFTER + SLACK) + 13, 3, 5).unnamed


def test_topic_that_no_look_knows_has_to_be_named() -> None:
    judge = Judge(status())
    judge.knows = False
    judge.look(0.0, 3, 5)
    judge.looked = UNSEEN + 1
    assert judge.look(UNSEEN + LATE, 3, 5).unnamed


def test_cluster_without_looks_has_to_say_so() -> None:
    judge = Judge(status(), looked=0.0)
    judge.look(0.0, 3, 5)
    assert not judge.look(UNSEEN + STUCK_AFTER, 3, 5).unnamed
    assert judge.look(UNSEEN + LATE, 3, 5).unnamed


def test_moving_read_or_excused_partition_does_not_count() -> None:
    moves, read, excused = Judge(status()), Judge(status()), Judge(status(), excused=True)
    for seconds, committed in ((0.0, 1), (LATE, 2), (2 * LATE, 3)):
        assert not moves.look(seconds, committed, 9).unnamed
        assert not read.look(seconds, 9, 9).unnamed
        assert not excused.look(seconds, 1, 9).unnamed


def test_vanished_offset_counts_from_then_on() -> None:
    judge = Judge(status(), looked=LATE + 1)
    judge.look(0.0, 5, 5)
    judge.look(LATE, 0, 5)
    assert not judge.look(LATE + 2, 0, 5).unnamed
    assert judge.look(2 * LATE + 2, 0, 5).unnamed


def test_measure_grows_beyond_a_tenth_and_its_allowance() -> None:
    most = 100 * 1.1 + ALLOWED["znodes"]
    assert not Growth(("ZooKeeper", "znodes"), 100, most).grew
    assert Growth(("ZooKeeper", "znodes"), 100, most + 1).grew


@pytest.mark.parametrize("wrong", ["unnamed", "growing"])
def test_unnamed_or_growing_makes_the_score_bad(wrong: str) -> None:
    rows = [Row("an event", 1, 0, 0, 0, 0, 1.0)]
    good, bad = Score("week", rows, days=7), Score("week", rows, days=7, **{wrong: 1})
    assert good.good
    assert not bad.good
    line = "week: days=7 injected=1 lost=0 doubled_planned=0 double_owner=0 unnamed=0 growing=0"
    assert good.last_line() == line
    assert bad.last_line() == line.replace(f"{wrong}=0", f"{wrong}=1")
