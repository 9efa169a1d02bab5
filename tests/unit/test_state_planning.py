"""What a partition with state is planned, offered and committed: after its restore, one commit at a time, and when
something is due."""

from __future__ import annotations

from muster.consumer.agent import Agent
from muster.core.model import FailingRecord, Seek, SeekState, TopicAssignment, TopicPartition
from muster.core.ownership import Due, Place
from muster.core.parking import Answer
from muster.core.positions import Committed
from muster.core.state_topics import StateTopics
from tests.support.told_states import ToldStates

TP: TopicPartition = ("t", 0)
PLACE = Place("k:1", "g")


class Consumer:
    """An agent that is assigned a partition with state, claimed with offset 4 committed."""

    def __init__(self) -> None:
        self.states = ToldStates(StateTopics(["t"]))
        self.agent = Agent("me", fencing=True, states=self.states)
        self.token = self.agent.query_started()
        self.agent.assigned("t", TopicAssignment("k:1", "g", {0: "me"}, 1, topic_id="id"), 1)
        with self.agent.shared.change() as own:
            own.claimed({TP: 1}, 0.0, {TP: Committed(4, "muster:c:id")})
        self.ends: dict[str, dict[int, tuple[int, int]]] = {}

    def offered(self) -> bool:
        return "t" in (offer := self.agent.offer(self.token)).topics and bool(offer.topics["t"].partitions)

    def due(self) -> dict[TopicPartition, Due]:
        return self.agent.due(PLACE)

    def commit(self) -> None:
        self.agent.committed(self.due())

    def restored(self, commits: int | None) -> None:
        with self.agent.shared.change() as own:
            own.restored(TP, 1, {} if commits is None else {"t": commits})

    def batch(self, begin: int, end: int, due: bool = False) -> None:
        asked = self.agent.offer(self.token).asked
        after = {"t": {0: (begin, end)}}
        due_state = frozenset({TP}) if due else frozenset()
        self.agent.planned(self.token, asked, self.ends, after, {}, [], due=due_state)
        self.ends = after
        batch = self.agent.batch_started()
        assert batch.due == due_state
        self.agent.batch_done(batch, None)

    def fail(self, at: int, why: str) -> None:
        """Have a batch without records fail with a timer."""
        asked = self.agent.offer(self.token).asked
        self.agent.planned(self.token, asked, self.ends, {"t": {0: (at, at)}}, {}, [], due=frozenset({TP}))
        self.ends = {"t": {0: (at, at)}}
        self.agent.timer_failed(self.agent.batch_started(), TP, why)


def test_partition_is_offered_once_restored_and_committed() -> None:
    one = Consumer()
    assert not one.offered()
    assert one.due() == {}
    with one.agent.shared.locked() as own:
        assert own.shards.to_restore()[TP].committed == {"t": Committed(4, "muster:c:id")}
    one.restored(4)
    assert not one.offered()
    assert one.due()[TP].offset == 4
    one.commit()
    assert one.offered()
    with one.agent.shared.locked() as own:
        assert own.shards.to_restore() == {}


def test_restore_of_an_earlier_claim_counts_for_nothing() -> None:
    one = Consumer()
    with one.agent.shared.change() as own:
        own.restored(TP, 0, {})
    assert not one.offered()


def test_offset_set_by_others_waits_for_the_restore() -> None:
    one = Consumer()
    one.agent.outside.set_by_others({TP: Committed(2)}, "g")
    assert one.due() == {}
    with one.agent.shared.change() as own:
        own.block("the end")
        own.looked_at([TP])
        assert own.closed


def test_next_batch_waits_for_the_commit_of_the_last() -> None:
    one = Consumer()
    one.restored(None)
    assert one.agent.failing.turn([TP]) == {TP: None}
    one.batch(4, 9)
    assert one.agent.failing.turn([TP]) == {}
    one.commit()
    assert one.agent.failing.turn([TP]) == {TP: None}


def test_due_state_is_committed_where_it_stood() -> None:
    one = Consumer()
    one.states.of_due = frozenset({TP})
    one.restored(None)
    one.batch(4, 9)
    assert one.agent.failing.due_state([TP]) == frozenset(), "before the commit"
    one.commit()
    assert one.due() == {}
    for _ in range(2):
        assert one.agent.failing.due_state([TP]) == {TP}
        one.batch(9, 9, due=True)
        assert one.due()[TP].offset == 9
        one.commit()


def test_failing_timer_parks_its_partition_until_an_answer() -> None:
    one = Consumer()
    one.states.of_due = frozenset({TP})
    one.restored(None)
    one.batch(4, 9)
    one.commit()
    for answer in (Answer.RETRY, Answer.SKIP):
        one.fail(9, "the timer of key (1,) failed")
        assert one.agent.answers.failing[TP] == FailingRecord(
            9, "the timer of key (1,) failed", parked=True, timer=True
        )
        assert "muster skip-record t 0 9" in one.agent.view().problems["parked t [0]"]
        assert one.agent.failing.due_state([TP]) == frozenset()
        assert one.agent.failing.turn([TP]) == {}
        assert not one.agent.answers.answer(TP, 9, Answer.DEAD_LETTER, "ann")
        assert one.agent.answers.answer(TP, 9, answer, "ann")
        assert one.agent.failing.due_state([TP]) == {TP}
    assert one.states.dropped == [TP]
    assert one.agent.answers.failing == {}


def test_seek_frees_a_partition_from_its_failing_timer() -> None:
    one = Consumer()
    one.states.of_due = frozenset({TP})
    one.restored(None)
    one.batch(4, 9)
    one.commit()
    one.fail(9, "the timer of key (1,) failed")
    asked = one.agent.offer(one.token).asked
    seek = {TP: Seek("s1", 9, 7, SeekState.REBUILD)}
    one.agent.planned(one.token, asked, one.ends, {"t": {0: (9, 9)}}, {}, [], sought=seek)
    assert one.agent.answers.failing == {}
    assert one.due()[TP].seek == seek[TP]
