"""Whose turn it is: topics with handlers of their own, and what a handler fails with."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from muster.core.model import TopicPartition
from muster.core.turns import LONGEST_PAUSE, Failure, Turns

NO = Failure("OSError: no sink")
BATCH = 0.2
"""Seconds that a batch takes here."""


def tps(*partitions: int, topic: str = "t") -> list[TopicPartition]:
    return [(topic, partition) for partition in partitions]


@dataclass
class Flow:
    """Partitions with `records` each, and a handler that raises for `poison`; for all while the sink is `down`, or
    for some."""

    partitions: int
    records: int
    poison: set[tuple[TopicPartition, int]] = field(default_factory=set)
    down: bool | set[TopicPartition] = False
    now: float = 0.0
    turns: Turns = field(default_factory=Turns)
    at: dict[TopicPartition, int] = field(default_factory=dict)
    ended: dict[TopicPartition, float] = field(default_factory=dict)
    failures: list[tuple[float, dict[TopicPartition, tuple[int, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = dict.fromkeys(tps(*range(self.partitions)), 0)

    def batch(self) -> None:
        """One batch, or a pause as long if nothing is due."""
        self.now += BATCH
        turn = self.turns.next({tp for tp, at in self.at.items() if at < self.records}, self.now)
        ranges = {
            tp: (self.at[tp], self.records if most is None else min(self.records, self.at[tp] + most))
            for tp, most in turn.items()
        }
        if not ranges:
            return
        down = self.down if isinstance(self.down, bool) else not self.down.isdisjoint(ranges)
        if down or any((tp, at) in self.poison for tp, held in ranges.items() for at in range(*held)):
            self.failures.append((self.now, ranges))
            self.turns.failed(ranges, self.now, Failure("OSError: no sink" if down else "ValueError: poison"))
            return
        for tp, (_, end) in ranges.items():
            self.at[tp] = end
            if end == self.records:
                self.ended[tp] = self.now
        self.turns.passed(ranges, self.now)

    def until(self, moment: float) -> Flow:
        while self.now < moment:
            self.batch()
        return self

    def arrive(self, records: int) -> None:
        self.records += records


def test_partitions_all_have_a_turn_without_a_limit() -> None:
    assert Turns().next(tps(0, 1, 2), 0.0) == dict.fromkeys(tps(0, 1, 2))
    assert Turns().next([], 0.0) == {}


def test_handlers_take_turns() -> None:
    turns = Turns(lambda topic: int(topic == "u"))
    ready = tps(0, 1) + tps(0, topic="u")
    found = [set(turns.next(ready, 0.0)) for _ in range(4)]
    assert found == [set(tps(0, 1)), set(tps(0, topic="u"))] * 2


@pytest.mark.parametrize("partitions", [1, 2, 12, 100])
def test_poison_record_is_found_and_holds_up_only_its_partition(partitions: int) -> None:
    poison = (("t", partitions // 3), 70)
    flow = Flow(partitions, 100, {poison})
    for _ in range(400):
        flow.batch()
    assert flow.at == {tp: 70 if tp == poison[0] else 100 for tp in flow.at}
    suspects = flow.turns.suspects
    assert suspects.keys() == {poison[0]}
    assert suspects[poison[0]].failures >= 3
    assert flow.failures[-1][1] == {poison[0]: (70, 71)}
    if partitions == 12:
        assert max(flow.ended.values()) <= 2.0, "the pause of the others"


def test_several_poison_records_in_several_partitions() -> None:
    draw = random.Random(7)
    poison = {(("t", draw.randrange(40)), draw.randrange(50)) for _ in range(6)}
    flow = Flow(40, 50, poison)
    for _ in range(3000):
        flow.batch()
    first = {tp: min((at for key, at in poison if key == tp), default=50) for tp in flow.at}
    assert flow.at == first
    assert flow.turns.suspects.keys() == {tp for tp, _ in poison}


def test_poison_that_is_mended_is_suspect_no_longer() -> None:
    flow = Flow(3, 100, {(("t", 1), 70)})
    for _ in range(100):
        flow.batch()
    flow.poison.clear()
    for _ in range(400):
        flow.batch()
    assert flow.at == dict.fromkeys(tps(0, 1, 2), 100)
    assert flow.turns.suspects == {}


def test_record_that_fails_alone_is_tried_after_pauses_that_double() -> None:
    flow = Flow(2, 5, {(("t", 1), 0)})
    for _ in range(2000):
        flow.batch()
    alone = [at for at, ranges in flow.failures if ranges == {("t", 1): (0, 1)}]
    pauses = [late - early for early, late in pairwise(alone)]
    assert pauses[0] == pytest.approx(1.0, abs=2 * BATCH)
    assert pauses[:5] == sorted(pauses[:5])
    assert max(pauses) <= LONGEST_PAUSE + 2 * BATCH


@pytest.mark.parametrize("partitions", [1, 12, 100])
def test_sink_that_is_down_for_all_is_tried_ever_more_seldom_and_found_up_again(partitions: int) -> None:
    flow = Flow(partitions, 10, down=True)
    while flow.now < 600:
        flow.batch()
    assert len(flow.failures) < 3 * partitions + 80, "halving, and then every ten seconds"
    flow.down = False
    back = flow.now
    while flow.now < back + LONGEST_PAUSE + partitions * 4 * BATCH:
        flow.batch()
    assert flow.at == dict.fromkeys(flow.at, 10)
    assert flow.turns.suspects == {}


def test_sink_of_one_handler_that_is_down_holds_up_no_other() -> None:
    turns = Turns(lambda topic: int(topic == "u"))
    here, there = {("t", 0): (0, 1)}, {("u", 0): (0, 1)}
    now = 0.0
    for _ in range(10):
        turns.failed(here, now, NO)
        now += 2 * LONGEST_PAUSE
        assert turns.next(here, now)
    turns.failed(here, now, NO)
    assert turns.next([*here, *there], now + 0.1) == dict.fromkeys(there)
    turns.passed(there, now)
    assert turns.next(here, now + 0.1) == {}, "what works elsewhere says nothing of this sink"


def test_partitions_that_are_not_suspect_go_first_after_a_failure() -> None:
    turns = Turns()
    poison = {("t", n): (0, 1) for n in range(9)}
    for tp, held in poison.items():
        turns.failed({tp: held}, 0.0, NO)
    turns.passed({("u", 0): (0, 1)}, 0.0)
    now, served = 10.0, 0
    for _ in range(20):
        turn = turns.next([*poison, ("u", 0)], now)
        now += 100.0
        if ("u", 0) in turn:
            served += 1
            turns.passed({("u", 0): (0, 1)}, now)
        else:
            turns.failed(dict.fromkeys(turn, (0, 1)), now, NO)
    assert served >= 9, "every other turn"


def test_suspect_that_goes_on_beyond_its_end_without_being_read_is_forgotten() -> None:
    turns = Turns()
    turns.failed({("t", 0): (0, 5)}, 0.0, NO)
    turns.moved({("t", 0): 4}, 1.0)
    assert turns.suspects
    turns.moved({("t", 0): 10}, 1.0)
    assert turns.suspects == {}


def test_suspects_that_are_not_held_any_more_are_forgotten() -> None:
    turns = Turns()
    turns.failed({("t", 0): (0, 5), ("t", 1): (0, 5)}, 0.0, NO)
    turns.forget(tps(0))
    assert turns.suspects.keys() == {("t", 1)}
    turns.forget(tps(0, 1))
    assert turns.suspects == {}
