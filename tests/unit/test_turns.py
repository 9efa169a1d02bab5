"""Whose turn it is: topics with handlers of their own, and what a handler fails with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from muster.core.model import TopicPartition
from muster.core.turns import BRIEFEST_PAUSE, LONGEST_PAUSE, Turns

BATCH = 0.2
"""Seconds that a batch takes here."""


def tps(*partitions: int, topic: str = "t") -> list[TopicPartition]:
    return [(topic, partition) for partition in partitions]


@dataclass
class Flow:
    """Partitions with `records` each, and a handler that raises for `poison`; for all while the sink is `down`, or
    for some.

    With `attempts` a record that is judged poison goes to `letters`, and its partition goes on.
    """

    partitions: int
    records: int
    poison: set[tuple[TopicPartition, int]] = field(default_factory=set)
    down: bool | set[TopicPartition] = False
    attempts: int = 0
    letters: list[tuple[TopicPartition, int]] = field(default_factory=list)
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
            self.turns.failed(ranges, self.now, "OSError: no sink" if down else "ValueError: poison")
            self.judge(ranges)
            return
        for tp, (_, end) in ranges.items():
            self.at[tp] = end
            if end == self.records:
                self.ended[tp] = self.now
        self.turns.processed(ranges)

    def judge(self, ranges: dict[TopicPartition, tuple[int, int]]) -> None:
        (tp, (begin, end)), *others = ranges.items()
        if self.attempts and not others and end - begin == 1 and self.turns.is_poison(tp, self.attempts):
            self.letters.append((tp, begin))
            self.at[tp] = end
            self.turns.passed_over(tp, end)

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
    assert len(flow.failures) < 25, "ten minutes"
    flow.down = False
    back = flow.now
    while flow.now < back + LONGEST_PAUSE + partitions * 4 * BATCH:
        flow.batch()
    assert flow.at == dict.fromkeys(flow.at, 10)
    assert flow.turns.suspects == {}


def test_sink_of_one_handler_that_is_down_holds_up_no_other() -> None:
    turns = Turns(lambda topic: int(topic == "u"))
    here, there = {("t", 0): (0, 5)}, {("u", 0): (0, 5)}
    now = 0.0
    for _ in range(10):
        turns.failed(here, now)
        now += 2 * LONGEST_PAUSE
        assert turns.next(here, now)
    turns.failed(here, now)
    assert turns.next([*here, *there], now + BRIEFEST_PAUSE) == dict.fromkeys(there)
    turns.processed(there)
    assert turns.next(here, now + BRIEFEST_PAUSE) == {}, "what works elsewhere says nothing of this sink"


def test_partitions_that_are_not_suspect_go_first_after_a_failure() -> None:
    turns = Turns()
    poison = {("t", n): (0, 1) for n in range(9)}
    for tp, held in poison.items():
        turns.failed({tp: held}, 0.0)
    turns.processed({("u", 0): (0, 1)})
    now, served = 10.0, 0
    for _ in range(20):
        turn = turns.next([*poison, ("u", 0)], now)
        now += 100.0
        if ("u", 0) in turn:
            served += 1
            turns.processed({("u", 0): (0, 1)})
        else:
            turns.failed(dict.fromkeys(turn, (0, 1)), now)
    assert served >= 9, "every other turn"


def test_suspect_that_goes_on_beyond_its_end_without_being_read_is_forgotten() -> None:
    turns = Turns()
    turns.failed({("t", 0): (0, 5)}, 0.0)
    turns.passed({("t", 0): 4})
    assert turns.suspects
    turns.passed({("t", 0): 10})
    assert turns.suspects == {}


def test_record_fails_alone_once_it_is_known() -> None:
    turns = Turns()
    one = {("t", 0): (5, 6)}
    assert not turns.fails_alone(one)
    turns.failed(one, 0.0)
    assert turns.fails_alone(one)
    assert not turns.fails_alone({("t", 0): (5, 7)})
    assert not turns.fails_alone({})


def test_suspects_that_are_not_held_any_more_are_forgotten() -> None:
    turns = Turns()
    turns.failed({("t", 0): (0, 5), ("t", 1): (0, 5)}, 0.0)
    turns.forget(tps(0))
    assert turns.suspects.keys() == {("t", 1)}
    turns.forget(tps(0, 1))
    assert turns.suspects == {}


@pytest.mark.parametrize("partitions", [2, 12])
def test_poison_record_is_judged_after_its_attempts_while_others_go_on(partitions: int) -> None:
    flow = Flow(partitions, 100, {(("t", 1), 70)}, attempts=4)
    flow.until(9.0)
    assert flow.letters == []
    assert flow.turns.suspects[("t", 1)].failures == 3
    flow.until(30.0)
    assert flow.letters == [(("t", 1), 70)]
    assert flow.at == dict.fromkeys(flow.at, 100)
    assert flow.turns.suspects == {}


@pytest.mark.parametrize("partitions", [1, 2, 12])
def test_no_record_is_poison_while_the_sink_is_down_for_all(partitions: int) -> None:
    flow = Flow(partitions, 10, down=True, attempts=1).until(1200)
    assert max(suspect.failures for suspect in flow.turns.suspects.values()) >= 1
    assert flow.letters == []
    flow.down = False
    flow.until(1200 + 2 * LONGEST_PAUSE + partitions * 4 * BATCH)
    assert flow.letters == []
    assert flow.at == dict.fromkeys(flow.at, 10)


def test_no_record_is_poison_while_a_sink_is_down_after_records_came_through() -> None:
    """Down in the middle of the search for a record that failed, and with partitions that try in vain."""
    flow = Flow(4, 100, {(("t", 0), 70)}, attempts=3)
    while not any(suspect.proven for suspect in flow.turns.suspects.values()):
        flow.batch()
    flow.down = True
    flow.until(1200)
    assert flow.letters == []


def test_no_record_is_poison_while_some_partitions_fail_in_the_same_way() -> None:
    """As where the sink of some is another one than that of the others, which go on."""
    flow = Flow(6, 50, down={("t", 0), ("t", 1)}, attempts=2)
    while flow.now < 600:
        flow.batch()
        flow.arrive(1)
    assert min(flow.at[tp] for tp in tps(2, 3, 4, 5)) > 100, "the others go on"
    assert flow.letters == []
    assert {suspect.kind for suspect in flow.turns.suspects.values()} == {"OSError"}
    flow.down = False
    flow.until(600 + 2 * LONGEST_PAUSE)
    assert flow.letters == []


def test_topic_whose_sink_is_down_has_no_poison_beside_one_that_works() -> None:
    turns, now = Turns(), 0.0
    bad = {("t", 0): (5, 6)}
    for _ in range(20):
        turns.failed(bad, now, "OSError: no table t")
        turns.processed({("u", 0): (0, 5)})
        now += 2 * LONGEST_PAUSE
    assert not turns.is_poison(("t", 0), 2)
    turns.processed({("t", 1): (0, 5)})
    assert turns.is_poison(("t", 0), 2)


def test_partition_has_poison_only_after_records_before_it_came_through() -> None:
    first = Flow(1, 100, {(("t", 0), 0)}, attempts=3).until(600)
    assert first.letters == [], "no record came through, so it may be the sink"
    assert first.turns.suspects[("t", 0)].failures > 3
    later = Flow(1, 100, {(("t", 0), 70)}, attempts=3).until(600)
    assert later.letters == [(("t", 0), 70)]
    assert later.at == {("t", 0): 100}


def test_proof_of_one_partition_is_good_for_one_record() -> None:
    flow = Flow(1, 100, {(("t", 0), 70), (("t", 0), 71), (("t", 0), 90)}, attempts=3).until(900)
    assert flow.letters == [(("t", 0), 70)], "nothing came through between 70 and 71"
    assert flow.at == {("t", 0): 71}
    flow.poison.remove((("t", 0), 71))
    flow.until(1200)
    assert flow.letters == [(("t", 0), 70), (("t", 0), 90)]


def test_poison_of_several_partitions_is_judged_with_proof_of_each() -> None:
    poison = {(("t", 0), 30), (("t", 1), 40), (("t", 2), 50)}
    flow = Flow(4, 100, poison, attempts=3).until(120)
    assert set(flow.letters) == poison
    assert flow.at == dict.fromkeys(flow.at, 100)


def test_record_is_tried_as_often_again_when_a_person_says_so() -> None:
    turns, one = Turns(), {("t", 0): (5, 6)}
    for _ in range(3):
        turns.failed(one, 0.0, "ValueError: bad")
    turns.processed({("t", 1): (0, 5)})
    assert turns.is_poison(("t", 0), 3)
    turns.again(("t", 0))
    assert turns.next(one, 0.0) == {("t", 0): 1}, "at once"
    turns.failed(one, 0.0, "ValueError: bad")
    assert not turns.is_poison(("t", 0), 3)


def _only_counts(turns: Turns, tp: TopicPartition, max_attempts: int) -> bool:
    return turns.suspects[tp].failures >= max_attempts


def _whatever_others_fail_with(turns: Turns, tp: TopicPartition, max_attempts: int) -> bool:
    suspect = turns.suspects[tp]
    first = suspect.first
    return (
        first is not None
        and suspect.failures >= max_attempts
        and turns._done(tp[0]).of_topic > first.of_topic
    )


@pytest.mark.parametrize(
    ("rule", "down"), [(_only_counts, True), (_whatever_others_fail_with, {("t", 0), ("t", 1)})]
)
def test_weaker_rule_would_take_good_records_for_poison(
    rule: Callable[..., bool], down: bool | set[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenarios above find a rule that leaves out a part."""
    monkeypatch.setattr(Turns, "is_poison", rule)
    flow = Flow(6, 50, down=down, attempts=1)
    while flow.now < 300:
        flow.batch()
        flow.arrive(1)
    assert flow.letters
