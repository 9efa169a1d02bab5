"""What a consumer claims, reads, commits and closes of topics that share their state: all partitions of a shard."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.model import Seek, SeekState, TopicAssignment, TopicPartition
from muster.core.ownership import Due, Ownership, PassOver
from muster.core.positions import Committed
from muster.core.state_topics import StateTopics

A: TopicPartition = ("a", 0)
B: TopicPartition = ("b", 0)
STATE = StateTopics([("a", "b"), "single"])


class Consumer:
    """The ownership of "me", and the epochs of its topics."""

    def __init__(self) -> None:
        self.own = Ownership("me", fencing=True, state=STATE)
        self.own.query.start()
        self.epoch = 0

    def assign(self, topic: str, owner: str, seek: Seek | None = None, topic_id: str = "id") -> None:
        self.epoch += 1
        seeks = {} if seek is None else {0: seek}
        node = TopicAssignment("k:1", "g", {0: owner}, self.epoch, topic_id=topic_id, seeks=seeks)
        self.own.read(topic, node, self.epoch)

    def claim(self) -> set[TopicPartition]:
        """Claim what is to be claimed, of a group that has offset 4."""
        claimed = set()
        for epochs in self.own.unclaimed().values():
            assert all(self.own.begin_claim(tp, epoch) for tp, epoch in epochs.items())
            self.own.claimed(epochs, 0.0, dict.fromkeys(epochs, Committed(4, "muster:c:id")))
            claimed |= epochs.keys()
        return claimed

    def restore(self) -> None:
        for tp, asked in self.own.shards.to_restore().items():
            self.own.restored(
                tp, asked.claim_epoch, {topic: one.offset for topic, one in asked.committed.items() if one}
            )

    def due(self) -> dict[TopicPartition, Due]:
        return next(iter(self.own.due(1.0).values()), {})

    def commit(self) -> dict[TopicPartition, Due]:
        due = self.due()
        self.own.committed(due, 1.0)
        self.own.looked_at(due)
        return due

    def look(self) -> None:
        self.own.looked_at([tp for of in self.own.last_looks().values() for tp in of])

    def offered(self) -> set[TopicPartition]:
        return {(name, p) for name, topic in self.own.offer().topics.items() for p in topic.partitions}

    def batch(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.own.offer()
        plan: dict[str, dict[int, tuple[int, int]]] = {}
        for (topic, partition), of in ranges.items():
            plan.setdefault(topic, {})[partition] = of
        self.own.planned(self.own.query.asked, plan)
        self.own.processed(self.own.query.batch(), 0.0)

    @classmethod
    def running(cls) -> Consumer:
        """One that has read nothing yet, and has committed what it took up."""
        one = cls()
        one.assign("a", "me")
        one.assign("b", "me")
        one.claim()
        one.restore()
        one.commit()
        return one


def test_shard_is_claimed_once_it_is_whole() -> None:
    one = Consumer()
    one.assign("a", "me")
    assert one.claim() == set()
    assert one.own.shards.waiting() == {A: [B]}
    one.assign("b", "other")
    assert one.claim() == set()
    one.assign("b", "me")
    assert one.claim() == {A, B}
    assert one.own.shards.waiting() == {}


def test_shard_is_restored_once_by_its_first_topic() -> None:
    one = Consumer()
    one.assign("a", "me")
    one.assign("b", "me")
    one.claim()
    restores = one.own.shards.to_restore()
    assert {tp: {*asked.committed} for tp, asked in restores.items()} == {A: {"a", "b"}}
    assert one.offered() == set()
    one.restore()
    assert one.commit().keys() == {A, B}
    assert one.offered() == {A, B}


def test_commit_of_one_partition_holds_both_offsets() -> None:
    one = Consumer.running()
    one.batch({A: (4, 9), B: (4, 4)})
    assert one.own.shards.uncommitted() == {A, B}
    assert {tp: due.offset for tp, due in one.commit().items()} == {A: 9, B: 4}
    assert one.own.shards.uncommitted() == set()


def test_shard_closes_as_a_whole_and_waits() -> None:
    one = Consumer.running()
    one.batch({A: (4, 9), B: (4, 7)})
    one.assign("a", "other")
    assert one.own.status()["b"].closing == {0}
    assert {tp: due.offset for tp, due in one.commit().items()} == {A: 9, B: 7}
    one.own.offer()
    one.own.planned(one.own.query.asked, {})
    one.look()
    assert one.own.status()["a"].closing == set()
    assert one.own.status()["b"].running == {0}, "it was given to this consumer, and waits"
    assert one.claim() == set()
    assert one.own.shards.waiting() == {B: [A]}
    one.assign("a", "me")
    assert one.claim() == {A, B}


def test_refused_shard_closes_without_any_commit() -> None:
    one = Consumer.running()
    one.batch({A: (4, 9), B: (4, 7)})
    one.own.refuse(B, one.own.held[B].claim_epoch)
    assert one.due() == {}
    assert one.own.held[A].closing
    assert one.own.held[A].refused


def test_topic_made_again_stops_the_whole_shard() -> None:
    one = Consumer.running()
    one.batch({A: (4, 9), B: (4, 7)})
    place = one.own.held[B].source.place
    one.own.identify("b", place, "another")
    assert one.due() == {}
    assert one.offered() == set()


def test_seek_is_carried_out_once_all_topics_have_it() -> None:
    one = Consumer.running()
    seek = Seek("s1", 2, state=SeekState.AGAIN)
    one.assign("a", "me", seek)
    assert one.own.offer().seeks == {}
    one.assign("b", "me", Seek("s0", 2, state=SeekState.AGAIN))
    assert one.own.offer().seeks == {}
    one.assign("b", "me", seek)
    assert one.own.offer().seeks == {A: seek, B: seek}


def test_record_passed_over_is_committed_with_both_offsets() -> None:
    one = Consumer.running()
    one.batch({A: (4, 9), B: (4, 7)})
    one.commit()
    assert one.own.pass_over(B, PassOver(7))
    assert {tp: due.offset for tp, due in one.due().items()} == {A: 9, B: 8}


def test_letters_of_one_partition_hold_up_both() -> None:
    one = Consumer.running()
    one.own.offer()
    one.own.planned(one.own.query.asked, {"a": {0: (4, 9)}, "b": {0: (4, 7)}})
    one.own.processed(one.own.query.batch(), 0.0, {B: {5: "ValueError: bad"}})
    assert one.due() == {}
    (letters,) = one.own.letters().values()
    assert {tp: (due.offset, len(due.letters)) for tp, due in letters.items()} == {A: (9, 0), B: (7, 1)}


def test_topics_with_a_state_of_their_own_are_apart() -> None:
    one = Consumer.running()
    one.assign("single", "me")
    assert one.claim() == {("single", 0)}
    one.assign("a", "other")
    assert not one.own.held["single", 0].closing
