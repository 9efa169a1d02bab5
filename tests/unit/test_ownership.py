"""A consumer's state machine, event by event."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from muster.core.model import Seek, TopicAssignment
from muster.core.ownership import (
    HELD_BACK,
    LONGEST_RENEWAL,
    LONGEST_UNCOMMITTED,
    PAUSED,
    RENEWAL_SPREAD,
    Due,
    Ownership,
    PassOver,
    Place,
    PlanRefusedError,
    Source,
    TopicOffer,
    renewal_interval,
)
from muster.core.positions import NO_NOTE, Committed, Jump, Note, Why, format_stamp
from tests.support.claiming import ClaimingOwnership, claim

ME = "flights-1"
HERE = Source("kafka:9092", "group")
Ranges = dict[int, tuple[int, int]]


def assignment(
    mine: set[int], epoch: int = 1, others: set[int] = frozenset(), source: Source = HERE
) -> TopicAssignment:
    owners = dict.fromkeys(mine, ME) | dict.fromkeys(others, "flights-2")
    return TopicAssignment(source.bootstrap_servers, source.group_id, owners, epoch, topic_id=source.topic_id)


class Consumer:
    """An `Ownership` with one topic and shorthands for what Spark and Kafka do."""

    def __init__(self) -> None:
        self.ownership = ClaimingOwnership(ME)
        self.zxid = 0
        self.now = 0.0
        self.ownership.query.start()

    def assign(
        self, mine: set[int], epoch: int = 1, source: Source = HERE, others: set[int] = frozenset()
    ) -> bool:
        self.zxid += 1
        return self.ownership.read("t", assignment(mine, epoch, others, source), self.zxid)

    def pause(self, partitions: set[int]) -> None:
        topic, self.zxid = self.ownership.topics["t"], self.zxid + 1
        node = replace(assignment(set(topic.assigned), topic.epoch or 1), paused=frozenset(partitions))
        self.ownership.read("t", node, self.zxid)

    def stopped(self) -> set[int]:
        return set(self.ownership.status()["t"].paused)

    def offered(self) -> tuple[int, set[int]]:
        offer = self.ownership.offer()
        return offer.asked, set(offer.topics["t"].partitions) if "t" in offer.topics else set()

    def plan(self, ranges: Ranges) -> None:
        asked, _ = self.offered()
        self.ownership.planned(asked, {"t": ranges} if ranges else {})

    def process(self) -> None:
        self.ownership.processed(self.ownership.query.batch(), self.now)

    def due(self) -> dict[Place, dict[tuple[str, int], int]]:
        due = self.ownership.due(self.now)
        return {place: {key: one.offset for key, one in offsets.items()} for place, offsets in due.items()}

    def commit(self, *partitions: int) -> None:
        """Kafka acknowledges what is due, all of it or of these partitions."""
        for offsets in self.ownership.due(self.now).values():
            asked = {key: due for key, due in offsets.items() if not partitions or key[1] in partitions}
            self.ownership.committed(asked, self.now)

    def batch(self, ranges: Ranges) -> None:
        self.plan(ranges)
        self.process()
        self.commit()

    def lists(self) -> tuple[set[int], set[int], set[int]]:
        status = self.ownership.status()["t"]
        return set(status.running), set(status.starting), set(status.closing)

    @property
    def epoch(self) -> int | None:
        return self.ownership.status()["t"].epoch


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def test_consumer_takes_up_what_names_it_and_nothing_else(consumer: Consumer) -> None:
    consumer.assign({0, 1}, others={2})
    assert consumer.lists() == (set(), {0, 1}, set())
    consumer.plan({0: (0, 5)})
    assert consumer.lists() == ({0}, {1}, set())


def test_a_topic_of_others_is_reported_with_its_epoch(consumer: Consumer) -> None:
    consumer.assign(set(), epoch=4, others={0})
    assert consumer.lists() == (set(), set(), set())
    assert consumer.epoch == 4


def test_partition_closes_only_after_a_later_plan_and_the_acknowledged_commit(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 7)})
    consumer.assign({0}, epoch=2)
    assert (consumer.lists(), consumer.epoch) == (({0}, set(), {1}), 2)
    consumer.process()
    assert consumer.due() == {HERE.place: {("t", 0): 5, ("t", 1): 7}}
    consumer.commit()
    assert consumer.lists() == ({0}, set(), {1}), "Spark still has it in its start offset"
    consumer.plan({0: (5, 9)})
    assert consumer.lists() == ({0}, set(), set())


def test_partition_closes_only_after_the_commit_even_if_planned_without(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 7)})
    consumer.assign({0}, epoch=2)
    consumer.process()
    consumer.plan({0: (5, 9)})
    assert consumer.lists() == ({0}, set(), {1})
    consumer.commit(0)
    assert consumer.lists() == ({0}, set(), {1})
    consumer.commit(1)
    assert consumer.lists() == ({0}, set(), set())


def test_an_offer_under_way_holds_a_partition_open(consumer: Consumer) -> None:
    consumer.assign({0})
    asked, offered = consumer.offered()
    assert offered == {0}
    consumer.assign(set(), epoch=2)
    assert consumer.lists() == (set(), set(), {0})
    consumer.ownership.planned(asked, {"t": {0: (3, 4)}})
    assert consumer.lists() == (set(), set(), {0})
    consumer.process()
    consumer.commit()
    consumer.batch({})
    assert consumer.lists() == (set(), set(), set())


def test_an_offer_that_came_to_nothing_lets_go_with_the_next(consumer: Consumer) -> None:
    consumer.assign({0})
    asked, _ = consumer.offered()
    consumer.assign(set(), epoch=2)
    consumer.offered()
    assert consumer.lists() == (set(), set(), set())
    with pytest.raises(PlanRefusedError, match="offer 1 is refused"):
        consumer.ownership.planned(asked, {"t": {0: (3, 4)}})


def test_never_offered_closes_at_once(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.assign(set(), epoch=2)
    assert consumer.lists() == (set(), set(), set())


def test_partition_assigned_again_while_closing_starts_after_it_is_closed(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    consumer.assign(set(), epoch=2)
    consumer.assign({0}, epoch=3)
    assert (consumer.lists(), consumer.epoch) == ((set(), set(), {0}), 3)
    consumer.process()
    asked, offered = consumer.offered()
    assert offered == set()
    consumer.ownership.planned(asked, {})
    assert consumer.lists() == (set(), set(), {0}), "its commit is not acknowledged"
    consumer.process()
    consumer.commit()
    assert consumer.lists() == (set(), {0}, set())
    consumer.plan({0: (40, 41)})  # somebody else may have been there in between
    assert consumer.lists() == ({0}, set(), set())


def test_a_failed_query_turns_running_to_starting_and_closes_what_was_closing(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 5)})
    consumer.assign({0}, epoch=2)
    consumer.ownership.query_ended()
    assert consumer.lists() == (set(), {0}, set())
    assert consumer.due() == {}


def test_failure_commits_what_was_processed_before_it_is_read_again(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 5)})
    consumer.process()
    consumer.assign({0}, epoch=2)
    consumer.ownership.query_ended()
    consumer.ownership.query.start()
    assert consumer.lists() == (set(), {0}, {1})
    assert consumer.offered()[1] == set()
    consumer.commit()
    assert consumer.offered()[1] == {0}
    assert consumer.lists() == (set(), {0}, set())


def test_offer_is_refused_without_a_query(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.ownership.query_ended()
    with pytest.raises(PlanRefusedError, match="no query"):
        consumer.ownership.offer()


def test_an_older_assignment_is_ignored(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=7)
    assert not consumer.ownership.read("t", assignment(set(), epoch=6), zxid=0)
    assert (consumer.lists(), consumer.epoch) == ((set(), {0}, set()), 7)


def test_lower_epoch_is_refused_whatever_its_transaction(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=7)
    for synced in (False, True):
        assert not consumer.ownership.read("t", assignment({1}, epoch=6), 100, synced)
    flow = replace(assignment({0}, epoch=6), paused=frozenset({0}))
    assert not consumer.ownership.read("t", flow, 101, synced=True), "a pause that is built on a backup"
    assert (consumer.lists(), consumer.epoch) == ((set(), {0}, set()), 7), "which the coordinator sees"
    assert consumer.ownership.not_read(0.0) == {}


def test_other_owners_of_the_same_epoch_are_refused(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=7, others={1})
    for node in (assignment({1}, 7, {0}), assignment({0, 2}, 7, {1}), assignment({0}, 7)):
        assert not consumer.ownership.read("t", node, 100)
        assert consumer.epoch == 7, "it may be a server that lags behind"
    assert not consumer.ownership.read("t", assignment({1}, 7, {0}), 100, synced=True)
    assert consumer.epoch == 8, "the coordinator sees that it did not ask this consumer"
    assert not consumer.ownership.read("t", assignment({1}, 8, {0}), 101), "nor does it know that yet"
    assert consumer.lists() == (set(), {0}, set())
    assert consumer.ownership.read("t", assignment({1}, 9, {0}), 102)
    assert consumer.lists() == (set(), {1}, set())


def test_request_about_the_flow_counts_beside_the_same_owners(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=7, others={1})
    paused = replace(assignment({0}, 7, {1}), paused=frozenset({0}))
    assert consumer.ownership.read("t", paused, 100)
    assert consumer.ownership.not_read(0.0) == {("t", 0): PAUSED}
    assert not consumer.ownership.read("t", assignment({0}, 7, {1}), 99), "from before the pause"
    assert consumer.ownership.read("t", assignment({0}, 7, {1}), 99, synced=True), "that was restored"
    assert consumer.ownership.not_read(0.0) == {}


def test_seek_that_a_backup_brings_back_is_not_carried_out_again(consumer: Consumer) -> None:
    """ZooKeeper was restored to before the second seek, which changed no epoch."""
    consumer.assign({0}, epoch=7)
    first, second = Seek("first", 500), Seek("second", 20)
    for seek in (first, second):
        node = replace(assignment({0}, 7), seeks={0: seek})
        assert consumer.ownership.read("t", node, 100)
        offer = consumer.ownership.offer()
        assert offer.seeks == {("t", 0): seek}
        jump = Jump(consumer.ownership.held["t", 0].planned or 0, seek.offset, Why.SEEK)
        plan = {"t": {0: (seek.offset, seek.offset)}}
        consumer.ownership.planned(offer.asked, plan, {("t", 0): jump}, sought={("t", 0): seek})
        consumer.ownership.processed(consumer.ownership.query.batch(), 0.0)
    assert consumer.ownership.read("t", replace(assignment({0}, 7), seeks={0: first}), 101)
    assert consumer.ownership.offer().seeks == {}


def test_noted_epoch_counts_where_a_lower_one_was_obeyed(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=5)
    consumer.ownership.expect({"t": 7})
    assert (consumer.lists(), consumer.epoch) == ((set(), set(), set()), 7)
    assert not consumer.ownership.read("t", assignment({0}, 6), 100, synced=True)
    assert consumer.epoch == 7
    assert consumer.ownership.read("t", assignment({0, 1}, 7), 101), "what was noted has been written"
    assert consumer.epoch == 7


def test_assignment_that_could_not_be_read_counts_again(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=5)
    consumer.ownership.block("isolated")
    consumer.ownership.forget_assigned(["t"])
    consumer.ownership.unblock("isolated")
    assert (consumer.ownership.held, consumer.epoch) == ({}, 5), "its node could not be read"
    assert not consumer.ownership.read("t", assignment({0}, 4), 100, synced=True)
    assert consumer.ownership.read("t", assignment({0}, 5), 101), "a person has mended it"
    assert consumer.lists() == (set(), {0}, set())


def test_a_change_of_standbys_leaves_what_runs_alone(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 7)})
    changed = replace(assignment({0, 1}), standbys={0: ("flights-2",), 3: (ME,)})
    assert consumer.ownership.read("t", changed, consumer.zxid + 1)
    status = consumer.ownership.status()["t"]
    assert (status.running, status.closing, status.standby) == ({0, 1}, set(), {3})
    assert status.held == {0, 1}


def test_paused_partition_stays_running_and_stops_once_it_is_committed(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.batch({0: (0, 10), 1: (0, 10)})
    consumer.commit(0, 1)
    consumer.plan({0: (10, 20), 1: (10, 20)})
    consumer.pause({0})
    assert consumer.ownership.not_read(consumer.now) == {("t", 0): PAUSED}
    assert consumer.stopped() == set(), "a batch that holds it is under way"
    consumer.process()
    assert consumer.stopped() == set(), "its commit is outstanding"
    consumer.commit(0, 1)
    assert consumer.stopped() == {0}
    assert consumer.lists() == ({0, 1}, set(), set())
    asked, offered = consumer.offered()
    assert offered == {0, 1}, "it stays in the plans"
    assert consumer.stopped() == {0}, "what is planned now knows of the pause"
    consumer.ownership.planned(asked, {"t": {0: (20, 20), 1: (20, 30)}})
    assert (consumer.stopped(), consumer.lists()) == ({0}, ({0, 1}, set(), set()))
    consumer.process()
    consumer.commit(1)
    consumer.pause(set())
    assert (consumer.ownership.not_read(consumer.now), consumer.stopped()) == ({}, set())


def test_pause_counts_as_done_only_when_no_offer_from_before_it_is_open(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 10)})
    consumer.commit(0)
    asked, _ = consumer.offered()
    consumer.pause({0})
    assert consumer.stopped() == set()
    consumer.ownership.planned(asked, {"t": {0: (10, 20)}})
    assert consumer.stopped() == set()
    consumer.process()
    consumer.commit(0)
    assert consumer.stopped() == {0}


def test_paused_partition_is_taken_up_and_given_away_as_any_other(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.pause({0})
    assert consumer.lists() == (set(), {0}, set())
    consumer.plan({0: (5, 5)})
    consumer.process()
    consumer.commit(0)
    assert (consumer.lists(), consumer.stopped()) == (({0}, set(), set()), {0})
    consumer.assign(set(), epoch=2, others={0})
    assert (consumer.lists(), consumer.stopped()) == ((set(), set(), {0}), set())
    consumer.plan({})
    assert consumer.lists() == (set(), set(), set())


def test_partition_is_held_back_until_kafka_answers_what_it_has_left_open_for_too_long(
    consumer: Consumer,
) -> None:
    consumer.assign({0, 1})
    consumer.batch({0: (0, 10), 1: (0, 10)})
    consumer.now = 100.0
    consumer.plan({0: (10, 20), 1: (10, 20)})
    consumer.process()
    consumer.commit(1)
    consumer.now += LONGEST_UNCOMMITTED / 2
    consumer.plan({0: (20, 30), 1: (20, 30)})
    consumer.process()
    consumer.commit(1)
    consumer.now += LONGEST_UNCOMMITTED / 2
    assert consumer.ownership.not_read(consumer.now) == {}, "not longer, from the first of the two"
    consumer.now += 1
    assert consumer.ownership.not_read(consumer.now) == {("t", 0): HELD_BACK}
    assert consumer.lists() == ({0, 1}, set(), set())
    assert consumer.offered()[1] == {0, 1}, "it stays in the plans"
    consumer.commit(0)
    assert consumer.ownership.not_read(consumer.now) == {}
    consumer.now += 2 * LONGEST_UNCOMMITTED
    assert consumer.ownership.not_read(consumer.now) == {}, "all is committed"


def test_acknowledged_part_of_what_is_open_begins_its_time_again(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 10)})
    consumer.process()
    first = consumer.ownership.due(consumer.now)[HERE.place]
    consumer.plan({0: (10, 20)})
    consumer.process()
    consumer.now += LONGEST_UNCOMMITTED + 1
    assert consumer.ownership.not_read(consumer.now) == {("t", 0): HELD_BACK}
    consumer.ownership.committed(first, consumer.now)
    assert consumer.ownership.not_read(consumer.now) == {}, "Kafka answers"
    consumer.now += LONGEST_UNCOMMITTED + 1
    assert consumer.ownership.not_read(consumer.now) == {("t", 0): HELD_BACK}, "and no more since"


def test_a_topic_that_vanished_is_closed_in_order(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    assert consumer.ownership.keep_only([], zxid=0) == [], "a list from before the node was written"
    assert consumer.ownership.keep_only([], zxid=9) == ["t"]
    assert consumer.lists() == (set(), set(), {0})
    consumer.process()
    consumer.commit()
    consumer.batch({})
    assert consumer.ownership.status() == {}
    for zxid, synced in ((8, False), (10, False), (10, True)):
        assert not consumer.ownership.read("t", assignment({0}), zxid, synced), (
            "of a server that lags, or a backup"
        )
    assert consumer.epoch == 2, "which the coordinator sees"
    assert consumer.ownership.read("t", assignment({0}, epoch=2), zxid=11), "it was made again"


def test_isolation_closes_and_restoring_takes_up_again(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 5)})
    consumer.ownership.block("isolated")
    consumer.ownership.block("stopping")
    assert consumer.lists() == (set(), set(), {0})
    consumer.batch({})
    assert consumer.ownership.closed
    consumer.ownership.unblock("stopping")
    assert consumer.ownership.closed
    consumer.ownership.unblock("isolated")
    assert consumer.lists() == (set(), {0}, set())


def test_a_topic_read_while_barred_is_not_taken_up(consumer: Consumer) -> None:
    consumer.ownership.block("isolated")
    consumer.assign({0}, epoch=3)
    assert (consumer.lists(), consumer.epoch) == ((set(), set(), set()), 3)


def test_another_place_to_read_from_closes_the_old_one_first(consumer: Consumer) -> None:
    there = Source("other:9092", "group")
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    consumer.assign({0, 1}, epoch=2, source=there)
    assert consumer.lists() == (set(), {1}, {0})
    consumer.process()
    assert consumer.due() == {HERE.place: {("t", 0): 5}}
    consumer.commit()
    offer = consumer.ownership.offer()
    assert offer.topics["t"].source == there
    assert offer.topics["t"].partitions == {1}
    consumer.ownership.planned(offer.asked, {"t": {1: (0, 0)}})
    assert consumer.lists() == ({1}, {0}, set())


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ({1: (0, 5)}, "partition 1: planned, but it was not in the offer"),
        ({0: (6, 9)}, "planned from offset 6, but the last plan ended at 5"),
        ({0: (5, 4)}, "no range"),
    ],
)
def test_a_plan_that_does_not_follow_changes_nothing(consumer: Consumer, ranges: Ranges, reason: str) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 5)})
    with pytest.raises(PlanRefusedError, match=reason):
        consumer.plan(ranges)
    assert consumer.lists() == ({0}, set(), set())
    consumer.batch({0: (5, 6)})


def test_no_plan_while_a_batch_is_under_way(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    with pytest.raises(PlanRefusedError, match="still under way"):
        consumer.plan({0: (5, 9)})


def test_the_same_plan_again_is_no_batch(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 5)})
    consumer.plan({0: (0, 5)})
    with pytest.raises(PlanRefusedError, match="not planned"):
        consumer.ownership.query.batch()


def test_spark_runs_the_first_plan_of_a_query_even_if_it_is_empty(consumer: Consumer) -> None:
    consumer.batch({})
    with pytest.raises(PlanRefusedError, match="not planned"):
        consumer.ownership.query.batch()
    consumer.assign({0})
    consumer.batch({0: (0, 5)})


def test_spark_begins_with_an_empty_batch_if_its_planner_could_not_ask(consumer: Consumer) -> None:
    consumer.assign({0})
    assert consumer.ownership.query.batch().empty
    with pytest.raises(PlanRefusedError, match="still under way"):
        consumer.plan({0: (0, 5)})
    consumer.process()
    consumer.batch({0: (0, 5)})


def test_a_partition_without_records_is_committed_too(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (8, 8)})
    assert consumer.ownership.query.batch().empty
    consumer.process()
    assert consumer.due() == {HERE.place: {("t", 0): 8}}
    consumer.commit()
    assert consumer.due() == {}


def test_a_batch_of_an_ended_query_is_not_taken(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    plan = consumer.ownership.query.batch()
    consumer.ownership.query_ended()
    consumer.ownership.query.start()
    with pytest.raises(PlanRefusedError, match="not the one under way"):
        consumer.ownership.processed(plan, consumer.now)


A, B = replace(HERE, topic_id="A"), replace(HERE, topic_id="B")


def test_a_recreated_topic_is_closed_without_committing_and_begins_from_nothing(consumer: Consumer) -> None:
    consumer.assign({0}, source=A)
    consumer.plan({0: (900, 1000)})
    assert consumer.ownership.query.batch().topic_ids == {"t": "A"}
    consumer.process()
    (due,) = consumer.ownership.due(0.0)[HERE.place].values()
    assert (due.offset, due.topic_id) == (1000, "A")
    consumer.assign({0}, epoch=2, source=B)
    assert consumer.due() == {}, "nothing of the old topic is committed into the new one"
    assert consumer.lists() == (set(), set(), {0})
    assert consumer.offered()[1] == set()
    consumer.plan({})
    assert consumer.lists() == (set(), {0}, set())
    consumer.ownership.committed({("t", 0): due}, 0.0)  # the answer to a commit that was under way
    consumer.process()
    offer = consumer.ownership.offer()
    assert offer.topics["t"].source == B
    consumer.ownership.planned(offer.asked, {"t": {0: (0, 1000)}})
    consumer.process()
    (due,) = consumer.ownership.due(0.0)[HERE.place].values()
    assert (due.offset, due.topic_id) == (1000, "B"), "though the old topic's commit had the same offset"


def test_an_id_that_becomes_known_or_is_left_out_again_closes_nothing(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 5)})
    consumer.assign({0}, epoch=2, source=A)
    consumer.plan({0: (5, 7)})
    consumer.process()
    (due,) = consumer.ownership.due(0.0)[HERE.place].values()
    assert (due.offset, due.topic_id) == (7, "A")
    consumer.assign({0}, epoch=3)  # by a coordinator that knows no ids
    assert consumer.lists() == ({0}, set(), set())
    consumer.assign({0}, epoch=4, source=B)
    assert consumer.lists() == (set(), set(), {0})


def test_a_node_that_comes_back_without_an_id_does_not_drop_what_is_to_be_committed(
    consumer: Consumer,
) -> None:
    consumer.assign({0}, source=A)
    consumer.plan({0: (0, 5)})
    consumer.process()
    consumer.zxid += 1
    consumer.ownership.keep_only([], consumer.zxid)
    consumer.assign({0}, epoch=2)
    assert consumer.due() == {HERE.place: {("t", 0): 5}}
    consumer.assign({0}, epoch=3, source=B)
    assert consumer.due() == {}


def test_another_id_at_another_place_commits_to_the_old_place(consumer: Consumer) -> None:
    consumer.assign({0}, source=A)
    consumer.plan({0: (0, 5)})
    consumer.process()
    consumer.assign({0}, epoch=2, source=Source("other:9092", "group", "B"))
    assert consumer.due() == {HERE.place: {("t", 0): 5}}


def test_a_topic_that_kafka_has_under_another_id_is_neither_offered_nor_committed(consumer: Consumer) -> None:
    consumer.assign({0}, source=A)
    consumer.plan({0: (0, 5)})
    consumer.process()
    consumer.ownership.identify("t", HERE.place, "B")
    assert consumer.due() == {}
    assert consumer.ownership.offer_changes
    consumer.plan({})
    assert not consumer.ownership.offer_changes
    assert consumer.lists() == (set(), {0}, set())
    consumer.ownership.identify("t", HERE.place, "A")  # a broker had lagged behind
    assert consumer.due() == {HERE.place: {("t", 0): 5}}
    consumer.ownership.identify("t", HERE.place, "B")
    consumer.ownership.block("stopping")
    assert consumer.ownership.closed, "what cannot be committed holds up no end"


def test_offer_changes_with_what_is_taken_up_or_given_up_and_with_nothing_else(consumer: Consumer) -> None:
    assert not consumer.ownership.offer_changes
    consumer.assign({0, 1})
    claim(consumer.ownership)
    assert consumer.ownership.offer_changes
    consumer.offered()
    assert not consumer.ownership.offer_changes, "although Kafka did not say where they begin"
    consumer.batch({0: (0, 5), 1: (0, 5)})
    consumer.commit()
    assert not consumer.ownership.offer_changes
    consumer.assign({0}, epoch=2)
    assert consumer.ownership.offer_changes
    consumer.plan({0: (5, 5)})
    assert not consumer.ownership.offer_changes
    consumer.ownership.query_ended()
    consumer.ownership.query.start()
    assert consumer.ownership.offer_changes, "a new query has been offered nothing"


def test_a_topic_that_is_gone_is_closed_without_committing_and_not_taken_up(consumer: Consumer) -> None:
    consumer.assign({0}, source=A)
    consumer.plan({0: (0, 5)})
    consumer.process()
    consumer.ownership.identify("t", HERE.place, "", gone=True)
    assert (consumer.due(), consumer.lists()) == ({}, (set(), set(), {0}))
    consumer.plan({})
    assert consumer.lists() == (set(), set(), set())
    consumer.ownership.identify("t", HERE.place, "")
    assert consumer.ownership.closed, "still not known to be there"
    consumer.ownership.identify("t", HERE.place, "A")
    assert consumer.lists() == (set(), {0}, set())


@pytest.mark.parametrize(("kafka_id", "gone"), [("", True), ("B", False)])
def test_close_at_another_place_waits_for_no_topic_that_is_gone_from_there(
    consumer: Consumer, kafka_id: str, gone: bool
) -> None:
    consumer.assign({0}, source=A)
    consumer.plan({0: (0, 5)})
    consumer.process()
    elsewhere = replace(A, group_id="another")
    consumer.assign(set(), epoch=2, source=elsewhere)
    consumer.plan({})
    assert consumer.due() == {HERE.place: {("t", 0): 5}}
    consumer.ownership.identify("t", elsewhere.place, kafka_id, gone)
    assert consumer.due() == {HERE.place: {("t", 0): 5}}, "what another place says does not concern it"
    consumer.ownership.identify("t", HERE.place, kafka_id, gone)
    assert consumer.ownership.closed


def test_jump_is_accepted_only_if_it_is_reported_and_true(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.batch({0: (0, 600), 1: (0, 50)})
    back = {0: (200, 250), 1: (50, 50)}
    for told in ({}, {("t", 0): Jump(600, 300, Why.TRUNCATION)}, {("t", 1): Jump(600, 200, Why.TRUNCATION)}):
        with pytest.raises(PlanRefusedError, match="planned from offset 200, but the last plan ended at 600"):
            consumer.ownership.planned(consumer.offered()[0], {"t": back}, told)
    consumer.ownership.planned(consumer.offered()[0], {"t": back}, {("t", 0): Jump(600, 200, Why.TRUNCATION)})
    consumer.process()
    assert consumer.due() == {HERE.place: {("t", 0): 250}}


def claiming() -> Consumer:
    consumer = Consumer()
    consumer.ownership = Ownership(ME, fencing=True)
    consumer.ownership.query.start()
    return consumer


def test_a_partition_is_closing_until_its_claim_has_ended() -> None:
    consumer = claiming()
    consumer.assign({0, 1})
    terms = consumer.ownership.unclaimed()[HERE.place]
    assert consumer.ownership.begin_claim(("t", 0), terms["t", 0])
    consumer.assign(set(), epoch=2)
    assert consumer.lists() == (set(), set(), {0}), "the other one's claim had not begun"
    assert not consumer.ownership.begin_claim(("t", 1), terms["t", 1]), "nor does it begin now"
    assert not consumer.ownership.begin_claim(("t", 0), terms["t", 0])
    assert consumer.ownership.claims_in_use() == {}, "to be given up"
    consumer.ownership.claim_ended(("t", 0), terms["t", 0] + 1)
    assert consumer.lists() == (set(), set(), {0})
    consumer.ownership.claim_ended(("t", 0), terms["t", 0])
    assert consumer.ownership.closed


def test_a_claim_that_is_made_after_all_lets_a_closing_partition_go() -> None:
    consumer = claiming()
    consumer.assign({0})
    terms = consumer.ownership.unclaimed()[HERE.place]
    assert consumer.ownership.begin_claim(("t", 0), terms["t", 0])
    consumer.assign(set(), epoch=2)
    consumer.ownership.claimed(terms, consumer.now)
    assert consumer.ownership.closed


def test_higher_epoch_counts_whatever_its_transaction(consumer: Consumer) -> None:
    consumer.zxid = 500
    consumer.assign({0}, epoch=7, others={1})
    assert not consumer.ownership.read("t", assignment({1}, 5), 300, synced=True)
    assert consumer.ownership.read("t", assignment({0}, 7, {1}), 300, synced=True), "what is obeyed already"
    assert consumer.ownership.read("t", assignment({1}, 9), 299)
    assert (consumer.lists(), consumer.epoch) == ((set(), {1}, set()), 9)


def test_expected_epoch_closes_what_an_older_one_gave(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=3)
    consumer.plan({0: (0, 5)})
    consumer.ownership.expect({"t": 3})
    assert consumer.lists() == ({0}, set(), set())
    consumer.ownership.expect({"t": 4})
    assert (consumer.lists(), consumer.epoch) == ((set(), set(), {0}), 4)
    assert not consumer.assign({0}, epoch=3)
    assert consumer.assign({0}, epoch=4)
    assert consumer.lists() == (set(), set(), {0}), "closed first"


def test_partition_of_another_consumer_is_not_committed_without_fencing(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 5)})
    consumer.process()
    consumer.assign(set(), epoch=2, others={0})
    assert consumer.due() == {HERE.place: {("t", 1): 5}}, "1 has no other owner yet"


def test_partition_planned_again_stands_where_that_plan_begins(consumer: Consumer) -> None:
    """Another program set the group's offset back while the partition was in no plan."""
    consumer.assign({0})
    consumer.batch({0: (0, 5)})
    consumer.plan({})
    consumer.process()
    consumer.plan({0: (2, 4)})
    assert consumer.due() == {}
    consumer.ownership.failed(consumer.ownership.query.batch())
    assert consumer.ownership.pass_over(("t", 0), PassOver(2))
    consumer.commit()
    consumer.plan({0: (3, 4)})


def test_record_is_not_passed_over_while_its_partition_is_offered(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    consumer.ownership.query_ended()
    consumer.ownership.query.start()
    asked, _ = consumer.offered()
    assert not consumer.ownership.pass_over(("t", 0), PassOver(0)), "a plan may begin before it"
    consumer.ownership.planned(asked, {"t": {0: (0, 5)}})
    consumer.ownership.failed(consumer.ownership.query.batch())
    assert consumer.ownership.pass_over(("t", 0), PassOver(0))


def test_record_is_passed_over_only_by_a_partition_before_it(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    pass_over = consumer.ownership.pass_over
    assert not pass_over(("t", 7), PassOver(0)), "which is not held"
    assert not pass_over(("t", 0), PassOver(0)), "where it stands is not known"
    consumer.plan({0: (0, 5), 1: (0, 5)})
    assert not pass_over(("t", 0), PassOver(0)), "the record is with the handler"
    consumer.process()
    assert not pass_over(("t", 0), PassOver(4)), "it is processed"
    assert pass_over(("t", 0), PassOver(5))
    consumer.assign({0}, epoch=2)
    assert not pass_over(("t", 1), PassOver(5)), "which closes"


def test_record_passed_over_meanwhile_is_read_by_the_plan_of_the_open_offer(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 70)})
    assert consumer.ownership.pass_over(("t", 0), PassOver(70))
    asked, _ = consumer.offered()
    consumer.commit()
    consumer.ownership.planned(asked, {"t": {0: (70, 80)}})
    consumer.process()
    assert consumer.due() == {HERE.place: {("t", 0): 80}}
    consumer.batch({0: (80, 90)})


def test_list_of_topics_counts_from_its_own_transaction(consumer: Consumer) -> None:
    own = consumer.ownership
    assert own.read("t", assignment({0}), 5)
    assert own.read("t", assignment({0}), 5), "read twice"
    assert not own.read("t", assignment({0}), 4)
    assert (own.missing([], 4), own.missing([], 5), own.missing(["t"], 4)) == (["t"], [], [])
    assert (own.keep_only([], 4), own.keep_only(["t"], 5)) == ([], [])
    assert own.keep_only([], 5) == ["t"]
    assert (own.missing([], 4), own.keep_only([], 6)) == ([], [])


def test_offset_is_committed_again_as_soon_as_its_interval_is_over(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 5)})
    interval = renewal_interval(("t", 0))
    consumer.now = math.nextafter(interval, 0.0)
    assert consumer.due() == {}
    consumer.now = interval
    assert consumer.due() == {HERE.place: {("t", 0): 5}}
    consumer.commit()
    consumer.now = 2 * interval - 1
    assert consumer.due() == {}


def test_claim_of_a_replacement_is_in_use_until_it_is_refused(consumer: Consumer) -> None:
    own, tp = consumer.ownership, ("t", 0)
    consumer.assign({0})
    consumer.plan({0: (0, 5)})
    consumer.process()
    consumer.assign(set(), epoch=2)
    claim_epoch = own.held[tp].claim_epoch
    assert own.begin_claim(tp, claim_epoch)
    assert own.claims_in_use() == {HERE.place: {tp: claim_epoch}}, "it is committed before it closes"
    assert own.refuse(tp, claim_epoch)
    assert own.claims_in_use() == {}
    own.claimed({tp: claim_epoch}, 0.0)
    assert own.claims_in_use() == {HERE.place: {tp: claim_epoch}}, "it closes when its plan is over"


def test_plan_without_a_query_is_refused() -> None:
    with pytest.raises(PlanRefusedError, match="plan made from offer 0 is refused"):
        Ownership(ME).planned(0, {"t": {0: (0, 5)}})


def test_topic_whose_node_could_not_be_read_stays_in_an_older_list(consumer: Consumer) -> None:
    consumer.ownership.read("t", assignment({0}), 5)
    consumer.ownership.forget_assigned(["t"])
    assert consumer.ownership.keep_only([], 4) == []
    assert consumer.ownership.keep_only([], 5) == ["t"]


def test_noted_epoch_counts_where_no_assignment_is_known(consumer: Consumer) -> None:
    consumer.assign({0}, epoch=3)
    consumer.ownership.keep_only([], 50)
    assert not consumer.ownership.read("t", assignment({0}, 3), 60)
    consumer.ownership.expect({"t": 7})
    assert not consumer.ownership.read("t", assignment({0}, 6), 61)
    consumer.ownership.expect({"t": 5})
    assert not consumer.ownership.read("t", assignment({0}, 6), 62), "what was noted stays so"
    assert consumer.ownership.read("t", assignment({0}, 7), 63)


def test_refused_partition_is_not_kept_and_begins_no_claim() -> None:
    consumer = claiming()
    consumer.assign({0})
    claim_epochs = consumer.ownership.unclaimed()[HERE.place]
    consumer.ownership.claimed(claim_epochs, consumer.now)
    consumer.plan({0: (0, 5)})
    tp, claim_epoch = ("t", 0), claim_epochs["t", 0]
    assert consumer.ownership.keeps(tp, claim_epoch)
    assert consumer.ownership.refuse(tp, claim_epoch)
    assert consumer.lists() == (set(), set(), {0}), "Spark still has it"
    assert not consumer.ownership.keeps(tp, claim_epoch)
    assert not consumer.ownership.begin_claim(tp, claim_epoch)


def test_standbys_stand_by_unless_something_blocks_their_consumer(consumer: Consumer) -> None:
    standbys = {1: (ME,), 2: ("flights-2",)}
    consumer.ownership.read("t", replace(assignment({0}), standbys=standbys), 1)
    assert consumer.ownership.standing_by == {("t", 1)}
    consumer.ownership.block("isolated")
    assert consumer.ownership.standing_by == set()
    assert consumer.ownership.status()["t"].standby == set()


def test_nearby_names_a_topic_with_an_owner_of_each_kafka(consumer: Consumer) -> None:
    there = Source("elsewhere:9092", "group")
    consumer.assign(set(), others={3, 5})
    consumer.ownership.read("u", assignment({1, 2}), 1)
    consumer.ownership.read("v", assignment(set(), source=there), 1)
    consumer.ownership.read("w", assignment({7, 4}, source=there, others={6}), 1)
    assert consumer.ownership.nearby() == {
        "t": TopicOffer(HERE, frozenset({3}), 2),
        "w": TopicOffer(there, frozenset({4}), 3),
    }


def test_committed_and_read_partition_is_due_again_within_a_day(consumer: Consumer) -> None:
    earliest = LONGEST_RENEWAL * (1 - RENEWAL_SPREAD) - 1
    consumer.assign({0, 1}, source=A)
    assert consumer.ownership.due(LONGEST_RENEWAL) == {}, "nothing was committed"
    consumer.plan({0: (0, 5), 1: (0, 5)})
    consumer.process()
    consumer.commit()
    assert consumer.ownership.due(earliest) == {}
    again = consumer.ownership.due(LONGEST_RENEWAL)[HERE.place]
    assert {tp: (due.offset, due.topic_id) for tp, due in again.items()} == {
        ("t", 0): (5, "A"),
        ("t", 1): (5, "A"),
    }
    consumer.ownership.committed({("t", 0): again["t", 0]}, LONGEST_RENEWAL)
    assert consumer.ownership.due(LONGEST_RENEWAL)[HERE.place].keys() == {("t", 1)}
    consumer.assign({0}, epoch=2, source=A)
    assert consumer.ownership.due(2 * LONGEST_RENEWAL)[HERE.place].keys() == {("t", 0)}, "1 is closing"


def test_renewals_are_spread_over_the_last_quarter_of_the_day() -> None:
    hours = [renewal_interval(("t", number)) / 3600 for number in range(1000)]
    counted = [sum(1 for at in hours if hour <= at < hour + 1) for hour in range(18, 24)]
    assert sum(counted) == len(hours)
    assert max(counted) < 250


KNOWN = Source("kafka:9092", "group", "A")


def in_group(offset: int, note: Note = NO_NOTE) -> Consumer:
    """A consumer that claims partition 0, of which the group has this offset."""
    consumer = Consumer()
    consumer.assign({0}, source=KNOWN)
    terms = consumer.ownership.unclaimed()[KNOWN.place]
    group = {("t", 0): Committed(offset, format_stamp("c", "A", note))}
    consumer.ownership.claimed(terms, consumer.now, group)
    return consumer


def test_partition_that_committed_nothing_is_renewed_where_it_stands(consumer: Consumer) -> None:
    consumer.now = 50.0
    consumer.assign({0})
    claim(consumer.ownership, consumer.now)
    consumer.plan({0: (7, 9)})
    consumer.ownership.failed(consumer.ownership.query.batch())
    consumer.now += LONGEST_RENEWAL * (1 - RENEWAL_SPREAD) - 1
    assert consumer.due() == {}
    consumer.now = 50.0 + LONGEST_RENEWAL
    assert consumer.due() == {HERE.place: {("t", 0): 7}}


def test_claimed_partition_that_was_never_planned_is_renewed_as_the_group_has_it() -> None:
    consumer = in_group(7, Note("s1", rebuild=3))
    assert consumer.due() == {}
    consumer.now = LONGEST_RENEWAL
    assert consumer.ownership.due(consumer.now)[KNOWN.place]["t", 0] == Due(7, "A", 1, Note("s1", rebuild=3))


def test_offset_of_another_topic_is_not_renewed_for_this_one() -> None:
    consumer = Consumer()
    consumer.assign({0}, source=KNOWN)
    terms = consumer.ownership.unclaimed()[KNOWN.place]
    consumer.ownership.claimed(terms, 0.0, {("t", 0): Committed(7, format_stamp("c", "B"))})
    consumer.now = 2 * LONGEST_RENEWAL
    assert consumer.due() == {}
    assert consumer.ownership.in_group() == {}


def test_deleted_offset_is_due_again_where_the_partition_stands() -> None:
    consumer = in_group(7)
    consumer.batch({0: (7, 9)})
    assert consumer.due() == {}
    consumer.ownership.held[("t", 0)].set_by_others()
    assert consumer.due() == {KNOWN.place: {("t", 0): 9}}
    assert consumer.ownership.in_group() == {}, "noticed once"
    consumer.commit()
    assert consumer.ownership.in_group() == {KNOWN.place: {("t", 0): "A"}}


def test_offset_deleted_before_the_first_plan_is_committed_before_it_is_offered() -> None:
    consumer = in_group(7)
    assert consumer.ownership.offer().in_group == {("t", 0)}
    consumer.ownership.held[("t", 0)].set_by_others()
    assert consumer.ownership.offer().topics["t"].partitions == frozenset()
    consumer.commit()
    assert consumer.offered()[1] == {0}


def test_quiet_partition_closes_once_the_group_was_looked_at() -> None:
    consumer = in_group(7)
    consumer.batch({0: (7, 9)})
    consumer.assign(set(), epoch=2, source=KNOWN)
    consumer.plan({})
    assert consumer.lists() == (set(), set(), {0})
    assert consumer.ownership.last_looks() == {KNOWN.place: {("t", 0): "A"}}
    consumer.ownership.held[("t", 0)].set_by_others()
    consumer.ownership.looked_at([("t", 0)])
    assert consumer.lists() == (set(), set(), {0}), "its offset was deleted"
    consumer.commit()
    assert consumer.ownership.closed


def test_partition_whose_last_commit_comes_while_closing_needs_no_look() -> None:
    consumer = in_group(7)
    consumer.plan({0: (7, 9)})
    consumer.assign(set(), epoch=2, source=KNOWN)
    consumer.process()
    consumer.commit()
    consumer.plan({})
    assert consumer.ownership.closed


def test_partition_given_away_without_fencing_closes_without_a_look() -> None:
    consumer = in_group(7)
    consumer.batch({0: (7, 9)})
    consumer.assign(set(), epoch=2, source=KNOWN, others={0})
    consumer.plan({})
    assert consumer.ownership.closed


def test_topic_of_an_unknown_id_is_the_one_that_kafka_first_had(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.batch({0: (0, 9)})
    assert consumer.ownership.in_group() == {HERE.place: {("t", 0): ""}}
    consumer.ownership.identify("t", HERE.place, "A")
    consumer.ownership.identify("t", HERE.place, "B")
    assert consumer.ownership.in_group() == {HERE.place: {("t", 0): "A"}}
    consumer.assign(set(), epoch=2)
    consumer.plan({})
    assert consumer.ownership.last_looks() == {HERE.place: {("t", 0): "A"}}
