"""When a partition whose commit was refused may be taken up again."""

from __future__ import annotations

from muster.consumer.agent import Agent
from muster.core.model import TopicAssignment
from muster.core.ownership import Ownership, Place
from muster.core.refusals import FIRST_PAUSE, FORGET_AFTER, LONGEST_PAUSE, Refusals

KEY = ("t", 0)
PLACE = Place("k:1", "g")


def test_refusal_is_outlived_only_by_two_younger_facts() -> None:
    refusals = Refusals()
    refusals.was_read(1, ())
    refusals.registered(9.0)
    refusals.note(KEY, "why", 10.0, wanted=2)
    assert refusals.take_ready(1000.0) == [], "what was known before counts for nothing"
    refusals.registered(11.0)
    assert refusals.take_ready(1000.0) == []
    assert refusals.to_be_read
    refusals.was_read(1, ())
    assert refusals.take_ready(1000.0) == [], "a reading that began before"
    refusals.was_read(2, {"t"})
    assert refusals.take_ready(1000.0) == [], "that topic could not be read"
    refusals.was_read(3, {"other"})
    assert not refusals.to_be_read
    assert refusals.take_ready(10.0 + FIRST_PAUSE / 2) == [], "not before the pause is over"
    assert refusals.take_ready(10.0 + FIRST_PAUSE) == [KEY]
    assert refusals.take_ready(1000.0) == [], "told once"
    assert refusals.all[KEY].why == "why", "and still shown"


def test_the_pause_doubles_while_it_happens_again_and_is_bounded() -> None:
    refusals = Refusals()
    pauses = []
    now = 0.0
    for number in range(10):
        pauses.append(refusals.note(KEY, "why", now, number).pause)
        refusals.was_read(number, ())
        refusals.registered(now + 1)
        now += pauses[-1] + 1
        assert refusals.take_ready(now) == [KEY]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert refusals.note(KEY, "why", now + FORGET_AFTER + LONGEST_PAUSE, 11).pause == FIRST_PAUSE


class Consumer:
    def __init__(self, fencing: bool) -> None:
        self.ownership = Ownership("me", fencing=fencing)
        self.ownership.query.start()
        self.zxid = 0

    def assign(self, owners: dict[int, str]) -> None:
        self.zxid += 1
        self.ownership.read("t", TopicAssignment("k:1", "g", owners, self.zxid), self.zxid)

    def claim(self) -> None:
        self.ownership.claimed(self.ownership.unclaimed().get(PLACE, {}), 0.0)

    def batch(self, **ends: int) -> None:
        offer = self.ownership.offer()
        held = self.ownership.query.stands_at.get("t", {})
        begins = {p: held[p][1] if p in held else 0 for p in offer.topics["t"].partitions}
        self.ownership.planned(
            offer.asked, {"t": {p: (at, max(at, ends.get(f"p{p}", at))) for p, at in begins.items()}}
        )
        self.ownership.processed(self.ownership.query.batch(), 0.0)

    def due(self) -> dict[tuple[str, int], int]:
        return {key: due.offset for key, due in self.ownership.due(0.0)[PLACE].items()}

    def offered(self) -> set[int]:
        return set(self.ownership.offer().topics["t"].partitions)


def test_partition_is_offered_only_after_it_is_claimed_for_this_very_take_up() -> None:
    me = Consumer(fencing=True)
    me.assign({0: "me"})
    first = me.ownership.unclaimed()[PLACE]
    assert me.ownership.offer().topics == {}
    me.assign({})
    me.assign({0: "me"})
    me.ownership.claimed(first, 0.0)
    assert me.ownership.offer().topics == {}, "somebody else may have had it in between"
    assert me.ownership.status()["t"].starting == {0}
    me.claim()
    assert me.offered() == {0}


def test_a_refused_partition_is_closed_without_a_commit_and_kept_out_until_allowed() -> None:
    me = Consumer(fencing=True)
    me.assign({0: "me", 1: "me"})
    me.claim()
    me.batch(p0=5, p1=5)
    term = me.ownership.claims_in_use()[PLACE][KEY]
    assert me.ownership.refuse(KEY, term)
    assert not me.ownership.refuse(KEY, term + 1), "of another take-up"
    assert me.due() == {("t", 1): 5}
    assert me.ownership.status()["t"].closing == {0}, "a batch with it may be under way"
    me.batch(p1=6)
    assert (me.ownership.status()["t"].running, me.ownership.status()["t"].held) == ({1}, {1})
    me.assign({0: "me", 1: "me"})
    assert me.ownership.unclaimed() == {}, "an assignment may be older than the refusal"
    me.ownership.allow(KEY)
    assert me.ownership.unclaimed()[PLACE].keys() == {KEY}


def test_partition_given_away_is_committed_only_with_fencing() -> None:
    for fencing in (True, False):
        me = Consumer(fencing)
        me.assign({0: "me", 1: "me"})
        me.claim()
        me.batch(p0=5, p1=5)
        me.assign({1: "other"})
        due = me.due()
        assert due == ({KEY: 5, ("t", 1): 5} if fencing else {KEY: 5}), (
            "one that nobody has is closed in order"
        )


ASSIGNED = TopicAssignment("k:1", "g", {0: "me"}, 1)


def test_block_is_lifted_by_a_reading_that_began_after_the_request() -> None:
    agent = Agent("me")
    agent.blocks.block("isolated")
    agent.assigned("t", ASSIGNED, 1)
    assert agent.blocks.reading_wanted() is None
    agent.blocks.unblock_once_read("isolated")
    first = agent.blocks.reading_wanted()
    assert first is not None
    assert agent.blocks.wake_reader.is_set()
    agent.blocks.wake_reader.clear()
    agent.blocks.block("not live yet")
    agent.blocks.unblock_once_read("not live yet")
    agent.blocks.has_read(first)
    assert agent.view().blocks == {"not live yet"}, "asked for when that reading was under way"
    second = agent.blocks.reading_wanted()
    assert second is not None
    assert agent.blocks.wake_reader.is_set()
    agent.blocks.wake_reader.clear()
    agent.blocks.has_read(second)
    assert agent.view().blocks == set()
    assert agent.view().topics["t"].starting == {0}
    assert agent.blocks.reading_wanted() is None
    assert not agent.blocks.wake_reader.is_set()


def test_refusal_and_block_wait_for_the_same_reading() -> None:
    now = [100.0]
    agent = Agent("me", fencing=True, clock=lambda: now[0])
    agent.assigned("t", ASSIGNED, 1)
    agent.blocks.refused(KEY, 1, "fenced")
    agent.blocks.block("isolated")
    agent.blocks.unblock_once_read("isolated")
    number = agent.blocks.reading_wanted()
    assert number is not None
    agent.blocks.has_read(number, unread={"t"})
    assert agent.view().blocks == set()
    assert agent.view().topics["t"].held == set(), (
        "how the topic stands is not known, so nothing of it is taken up"
    )
    assert agent.blocks.reading_wanted() is not None, "the refusal still waits"
    agent.assigned("t", ASSIGNED, 2)
    agent.blocks.has_read(agent.blocks.reading_wanted() or 0)
    now[0] += FIRST_PAUSE
    assert agent.view().topics["t"].held == set(), "whether this process is registered is not known"
    agent.blocks.is_registered(now[0])
    assert agent.view().topics["t"].starting == {0}
    assert agent.view().problems == {}
