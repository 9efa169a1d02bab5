"""A record that kills its process: found after six deaths, then parked, and other kills cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.consumer.source.batch_size import Bounds
from muster.core.deaths import ALONE, IN_DOUBT, NO_DEATHS, PAUSE, Deaths, parse_deaths
from muster.core.parking import Answer
from muster.core.positions import NO_NOTE, Note, format_stamp, parse_stamp
from muster.core.turns import Failure
from tests.support.examples import examples
from tests.support.planned_consumer import PLACE, PlannedConsumer, PlannedKafka
from tests.support.poisoned_consumer import POISON, Consumer

KILLS = ("t", 1)
LARGEST = 100_000


class DiedError(Exception):
    """The process is gone, at once."""


class Mortal(PlannedConsumer):
    """A process that dies with a batch that holds the record at `killer` of partition 1, or more than `memory`
    records of that. What is due is committed while the handler is at work, if it `notes` that."""

    notes = True

    def __init__(
        self, kafka: PlannedKafka, holder: str, killer: int | None, memory: float = float("inf")
    ) -> None:
        self.killer, self.memory = killer, memory
        self.tried: list[dict[int, tuple[int, int]]] = []
        super().__init__(kafka, Bounds(LARGEST), holder=holder)
        self.step = 1.0

    def plan(self) -> bool:
        with self.agent.shared.locked() as own:
            return super().plan() or not own.query.finished  # the first batch may be empty

    def process(self) -> None:
        plan = self.agent.batch_started()
        if self.notes:
            self.commit()
        ranges = {p: held for (_, p), held in plan.filled.items()}
        if ranges:
            self.tried.append(ranges)
        begin, end = ranges.get(1, (0, 0))
        if (self.killer is not None and begin <= self.killer < end) or end - begin > self.memory:
            raise DiedError
        self.agent.batch_done(plan, None)

    def of_one(self) -> list[tuple[int, int]]:
        """What was tried of partition 1."""
        return [ranges[1] for ranges in self.tried if 1 in ranges]


class World:
    """Processes of a consumer, one after the other: each dies, and the next takes everything up."""

    def __init__(
        self, killer: int | None = None, records: int = 300_000, memory: float = float("inf")
    ) -> None:
        self.kafka = PlannedKafka(3)
        self.kafka.ends[KILLS] = records
        self.killer, self.memory, self.deaths = killer, memory, 0
        self._holders: Iterator[int] = count(1)
        self.kafka.committed = dict.fromkeys(self.kafka.ends, 0)
        self.kafka.stamps = dict.fromkeys(self.kafka.ends, "")

    def process(self) -> Mortal:
        return Mortal(self.kafka, f"{next(self._holders):012x}", self.killer, self.memory)

    def live(self, seconds: float = 400.0) -> Mortal:
        """Let one process after the other live, until one has lived for so long."""
        while True:
            process = self.process()
            try:
                process.go(seconds)
            except DiedError:
                self.deaths += 1
                assert self.deaths < 20
                continue
            return process


@pytest.mark.parametrize("killer", [0, 54_321, 99_999])
def test_killing_record_is_found_after_six_deaths(killer: int) -> None:
    world = World(killer)
    last = world.live()
    assert world.deaths == ALONE
    assert last.failing is not None
    assert (last.failing.offset, last.failing.parked, last.failing.attempts) == (killer, True, 2)
    assert "the process died 6 times" in last.failing.error
    assert world.kafka.committed[KILLS] == killer
    assert all(world.kafka.committed["t", p] == 100 for p in (0, 2)), "the others flow"
    again = world.live(10)
    assert again.failing is not None
    assert again.failing.offset == killer, "its next owner does not try it either"
    assert again.of_one() == []
    assert again.agent.answers.answer(KILLS, killer, Answer.SKIP, "ann (known)")
    again.go(400)
    assert world.kafka.committed[KILLS] == 300_000
    assert world.deaths == ALONE
    assert again.agent.answers.failing == {}
    assert not [error for error in again.page.get("/status").json()["errors"] if "apart" in error]


class Group:
    """Three consumers with two partitions each. What one had goes to the others a second after its death; it is back
    after 25 s, and gets its own ones again. More records arrive in all partitions but that of the killing record."""

    def __init__(self, killer: int) -> None:
        self.kafka, self.killer = PlannedKafka(6), killer
        self.kafka.ends[KILLS] = 150_000
        self.kafka.committed = dict.fromkeys(self.kafka.ends, 0)
        self.kafka.stamps = dict.fromkeys(self.kafka.ends, "")
        self.now, self.epoch, self.deaths = 0.0, 1, 0
        self.down: list[tuple[int, int]] = []
        """How many are down, second by second, and how many deaths there were by then."""
        self.back_at = dict.fromkeys(range(3), 0.0)
        self.up: dict[int, Mortal] = {}

    def second(self) -> None:
        """Let a second go by."""
        self.now += 1.0
        back = {c for c, at in self.back_at.items() if c not in self.up and at <= self.now}
        for number in back:
            self.epoch += 1
            self.up[number] = made = Mortal(self.kafka, f"{self.epoch:012x}", self.killer)
            made.now = self.now
            made.assign(set(), self.epoch)
        owners = {p: p % 3 if p % 3 in self.up else min(self.up, default=0) for p in range(6)}
        for number, one in self.up.items():  # closed in order before the others take it up
            one.assign({p for p in owners if owners[p] == number and self._free(p, number)}, self.epoch + 1)
        self.epoch += 1
        for number, one in list(self.up.items()):
            try:
                one.go(1.0)
            except DiedError:
                self.deaths += 1
                del self.up[number]
                self.back_at[number] = self.now + 25
        for p in range(6):
            if p != 1:
                self.kafka.ends["t", p] += 20
        self.down.append((3 - len(self.up), self.deaths))

    def _free(self, partition: int, number: int) -> bool:
        others = (one for other, one in self.up.items() if other != number)
        return not any(("t", partition) in one.agent._ownership.held for one in others)


@pytest.mark.parametrize("killer", [0, 54_321])
def test_consumers_die_one_at_a_time_while_others_flow(killer: int) -> None:
    group = Group(killer)
    while not any(one.agent.answers.failing for one in group.up.values()):
        group.second()
        assert group.now < 3_600
    assert group.deaths == ALONE
    assert max(down for down, deaths in group.down if deaths > 2) == 1
    assert max(down for down, _ in group.down) <= 2, "the first two deaths are not waited for"
    for _ in range(60):
        group.second()
    lag = {p: group.kafka.ends["t", p] - group.kafka.committed["t", p] for p in range(6) if p != 1}
    assert max(lag.values()) < 100, "the others flow"
    assert group.kafka.committed[KILLS] == killer
    assert group.deaths == ALONE


def test_record_that_is_retried_kills_once_more() -> None:
    world = World(70)
    last = world.live()
    assert last.agent.answers.answer(KILLS, 70, Answer.RETRY, "ann (mended)")
    with pytest.raises(DiedError):
        last.go(100)
    assert last.of_one()[-1] == (70, 71)
    world.killer = None
    assert world.live().agent.failing, "it died alone"


def test_record_that_was_mended_is_read_on() -> None:
    world = World(70)
    last = world.live()
    last.killer = None
    assert last.agent.answers.answer(KILLS, 70, Answer.RETRY, "ann (mended)")
    last.go(100)
    assert world.kafka.committed[KILLS] == 300_000


def test_first_kill_costs_nothing() -> None:
    world = World()
    first = world.process()
    while not first.tried:
        if first.plan():
            first.agent.batch_started()
            first.tried.append({})
        first.commit()
    second = world.process()
    second.go(5)
    begin, end = second.of_one()[0]
    assert end - begin > 0.9 * LARGEST
    assert second.agent.view().problems == {}
    second.commit()
    assert str(parse_stamp(world.kafka.stamps[KILLS]).note.deaths) == "000000000002"  # type: ignore[union-attr]


def test_kills_of_partitions_without_records_cost_nothing() -> None:
    world = World(records=100)
    world.live(20)
    for _ in range(4):
        world.live(20)  # ended without closing
    last = world.process()
    last.go(2)
    world.kafka.ends[KILLS] = 200
    last.go(3)
    assert last.of_one() == [(100, 200)]


def test_orderly_close_takes_the_token_away() -> None:
    world = World()
    first = world.process()
    first.go(5)
    assert all("000000000001" in stamp for stamp in world.kafka.stamps.values())
    first.agent.blocks.block("stopping")
    for _ in range(5):
        first.plan()
        first.commit()
    assert first.agent.wait_closed(0)
    assert {parse_stamp(stamp).note for stamp in world.kafka.stamps.values()} == {NO_NOTE}  # type: ignore[union-attr]


def test_partition_in_doubt_waits_for_a_minute_and_its_note() -> None:
    world = World(54_321)
    while world.deaths < 2:
        with pytest.raises(DiedError):
            world.process().go(5)
        world.deaths += 1
    waits = world.process()
    waits.go(PAUSE - 10)
    assert waits.of_one() == []
    waits.agent.blocks.block("stopping")
    waits.plan()
    waits.commit()
    silent = world.process()
    silent.notes = False
    silent.go(3 * PAUSE, commits=False)
    assert silent.of_one() == [], "it is not noted what is tried"
    third = world.process()
    with pytest.raises(DiedError):
        third.go(5 * PAUSE)
    assert {end - begin for begin, end in third.of_one()} == {1_000}
    assert all(ranges.keys() == {1} for ranges in third.tried if 1 in ranges), "apart"


def test_batch_too_large_for_the_process_is_halved() -> None:
    world = World(memory=60_000)
    last = world.live()
    assert world.deaths == 2
    assert world.kafka.committed[KILLS] == 300_000
    sizes = [end - begin for begin, end in last.of_one()]
    assert sizes[:100] == [1_000] * 100
    assert max(sizes[100:]) == 50_000


def test_partition_apart_leaves_every_other_turn_to_the_rest() -> None:
    world = World(54_321)
    while world.deaths < 2:
        with pytest.raises(DiedError):
            world.process().go(5)
        world.deaths += 1
    third = world.process()
    third.go(PAUSE)
    third.tried.clear()
    for _ in range(60):
        for p in (0, 2):
            world.kafka.ends["t", p] += 1
        third.go(1.0)
    turns = [frozenset(ranges) for ranges in third.tried]
    assert turns.count(frozenset({1})) >= 10
    assert turns.count(frozenset({0, 2})) >= 10


@given(killer=st.integers(0, 400_000), records=st.integers(1, 400_000))
@examples(10)
def test_every_killing_record_is_found(killer: int, records: int) -> None:
    world = World(killer, records)
    last = world.live(500)
    parked = last.failing is not None
    assert parked is (killer < records)
    assert world.deaths <= (ALONE if killer < IN_DOUBT else 2 * ALONE)
    assert world.kafka.committed[KILLS] == min(killer, records)


def test_worker_that_dies_twice_alone_parks_its_record() -> None:
    consumer = Consumer(PlannedKafka(3))
    consumer.error = Failure("Python worker exited unexpectedly (crashed)", of_record=False, death=True)
    consumer.go(10)
    assert consumer.failing is not None
    assert (consumer.failing.offset, consumer.failing.parked, consumer.failing.attempts) == (70, True, 2)
    assert consumer.agent.letters(PLACE) == {}
    consumer.poisoned = set()
    assert consumer.agent.answers.answer(POISON, 70, Answer.RETRY, "ann (mended)")
    consumer.go(10)
    assert consumer.kafka.committed[POISON] == 100


def test_worker_that_dies_once_parks_nothing() -> None:
    consumer = Consumer(PlannedKafka(3))
    consumer.error = Failure("Python worker exited unexpectedly (crashed)", of_record=False, death=True)
    while not (known := consumer.agent.failing.turns.suspects.get(POISON)) or not known.failures:
        if consumer.plan():
            consumer.process()
    consumer.poisoned = set()
    consumer.go(10)
    assert consumer.kafka.committed[POISON] == 100
    assert consumer.agent.answers.failing == {}


@pytest.mark.parametrize(
    "deaths", [NO_DEATHS, Deaths("ab12"), Deaths("ab12", 3, 10, 71, tried=True), Deaths("", 6, 1, 71)]
)
def test_note_of_deaths_is_read_as_written(deaths: Deaths) -> None:
    assert parse_deaths(str(deaths)) == deaths
    note = Note("seek", True, 7, deaths)
    assert parse_stamp(format_stamp("c", "A", note, 3)).note == note  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["x", "ab.1", "ab.1.2", "ab.1.2.3.4", "ab.-1.2.3", "ab.99999.1.1"])
def test_other_text_notes_no_deaths(text: str) -> None:
    assert parse_deaths(text) == NO_DEATHS
