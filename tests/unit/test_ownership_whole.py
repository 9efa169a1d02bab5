"""What a consumer offers, commits, watches and reports, whole: with each field of each value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.model import Seek, TopicAssignment, TopicStatus
from muster.core.ownership import (
    LONGEST_RENEWAL,
    BatchPlan,
    Due,
    Offer,
    Ownership,
    PassOver,
    PlanRefusedError,
    Source,
    Topic,
    TopicOffer,
    renewal_interval,
)
from muster.core.positions import UNKNOWN, Committed, Jump, Note, Why, format_stamp

ME, OTHER = "flights-1", "flights-2"
HERE, THERE = Source("kafka:9092", "g", "A"), Source("other:9092", "g")
PLACE = HERE.place
SEEK = Seek("s1", 40)


def node(
    mine: set[int], epoch: int = 5, source: Source = HERE, others: set[int] = frozenset()
) -> TopicAssignment:
    owners = dict.fromkeys(mine, ME) | dict.fromkeys(others, OTHER)
    return TopicAssignment(source.bootstrap_servers, source.group_id, owners, epoch, {}, source.topic_id)


@pytest.fixture
def own() -> Ownership:
    """Partitions 0 to 2 of topic t, of three with an owner more; and u, elsewhere and without an id."""
    own = Ownership(ME, fencing=True)
    own.query.start()
    own.read("t", replace(node({0, 1, 2}, others={3}), seeks={1: SEEK, 3: SEEK}), 7)
    own.read("u", node({0}, 6, THERE), 8)
    return own


def claimed(own: Ownership) -> None:
    """The group has offsets of partitions 0 and 1, after a seek and with a stopped topic."""
    terms = own.unclaimed()
    assert terms == {PLACE: {("t", 0): 1, ("t", 1): 2, ("t", 2): 3}, THERE.place: {("u", 0): 4}}
    group = {
        ("t", 0): Committed(10, format_stamp("c", "A", Note("s0", True))),
        ("t", 1): Committed(20, format_stamp("c", "A")),
        ("t", 2): Committed(30, format_stamp("c", "B")),
        ("u", 0): Committed(5),
    }
    for of_place in terms.values():
        for tp, term in of_place.items():
            assert own.begin_claim(tp, term)
        own.claimed(of_place, 100.0, group)


OFFERED = {
    "t": TopicOffer(HERE, frozenset({0, 1, 2}), 4),
    "u": TopicOffer(THERE, frozenset({0}), 1),
}


def test_first_offer_is_whole(own: Ownership) -> None:
    claimed(own)
    assert own.offer() == Offer(1, OFFERED, {}, {("t", 1): SEEK}, frozenset({("t", 0), ("t", 1)}))


def test_offers_of_a_query_go_on_with_topics_that_are_given_up(own: Ownership) -> None:
    claimed(own)
    own.planned(own.offer().asked, {"t": {0: (10, 12), 1: (20, 20), 2: (0, 9)}, "u": {0: (5, 6)}})
    own.failed(own.query.batch())
    own.read("u", node(set(), 7, THERE, {0}), 9)
    own.read("t", replace(node({0, 1, 2}, others={3}), seeks={2: SEEK}), 8)
    topics = {**OFFERED, "u": TopicOffer(THERE, frozenset(), 1)}
    again = {("t", 0): 10, ("t", 2): 0}
    assert own.offer() == Offer(2, topics, again, {("t", 2): SEEK}, frozenset())
    own.query_ended()
    own.query.start()
    assert own.offer().topics == {"t": OFFERED["t"]}


def test_offsets_are_due_whole(own: Ownership) -> None:
    claimed(own)
    asked = own.offer().asked
    own.planned(
        asked,
        {"t": {0: (10, 12), 1: (40, 44), 2: (0, 9)}, "u": {0: (5, 6)}},
        notes={("t", 0): Note("s0", True), ("t", 1): Note(), ("t", 2): Note()},
        sought={("t", 1): SEEK},
    )
    assert own.due(101.0) == {PLACE: {("t", 1): Due(40, "A", 2, Note("s1"), seek=SEEK)}}, (
        "the seek, whatever becomes of the batch"
    )
    own.processed(own.query.batch(), 101.0, {("t", 2): {3: "no", 1: "bad"}})
    due = {
        PLACE: {
            ("t", 0): Due(12, "A", 1, Note("s0", True)),
            ("t", 1): Due(44, "A", 2, Note("s1"), seek=SEEK),
        },
        THERE.place: {("u", 0): Due(6, "", 4)},
    }
    letters = {PLACE: {("t", 2): Due(9, "A", 3, letters=((1, "bad"), (3, "no")))}}
    assert (own.due(101.0), own.letters()) == (due, letters)
    for offsets in (*due.values(), *letters.values()):
        own.committed(offsets, 102.0)
    assert (own.due(103.0), own.letters()) == ({}, {})
    assert own.in_group() == {
        PLACE: {("t", 0): "A", ("t", 1): "A", ("t", 2): "A"},
        THERE.place: {("u", 0): ""},
    }
    renewed = own.due(102.0 + LONGEST_RENEWAL)
    assert renewed == {PLACE: {**due[PLACE], ("t", 2): Due(9, "A", 3)}, THERE.place: due[THERE.place]}


def test_offsets_that_were_never_planned_are_renewed_whole(own: Ownership) -> None:
    claimed(own)
    assert own.due(100.0 + LONGEST_RENEWAL) == {
        PLACE: {("t", 0): Due(10, "A", 1, Note("s0", True)), ("t", 1): Due(20, "A", 2)},
        THERE.place: {("u", 0): Due(5, "", 4, Note(reached=UNKNOWN))},
    }


def test_commit_before_a_rejected_record_keeps_its_letter_due(own: Ownership) -> None:
    claimed(own)
    own.planned(own.offer().asked, {"t": {2: (0, 9)}})
    own.processed(own.query.batch(), 101.0, {("t", 2): {3: "no", 1: "bad"}})
    own.committed({("t", 2): Due(3, "A", 3)}, 101.0)
    assert own.letters() == {PLACE: {("t", 2): Due(9, "A", 3, letters=((3, "no"),))}}


def test_stop_of_a_topic_is_due_of_all_that_was_planned(own: Ownership) -> None:
    claimed(own)
    own.planned(own.offer().asked, {"t": {0: (10, 12), 1: (20, 20)}}, notes={("t", 0): Note(stopped=True)})
    own.stop("t", True)
    assert own.due(101.0) == {PLACE: {("t", 1): Due(20, "A", 2, Note(stopped=True))}}
    own.stop("u", True)
    own.stop("t", False)
    assert own.due(101.0) == {PLACE: {("t", 0): Due(10, "A", 1), ("t", 1): Due(20, "A", 2)}}


def test_record_passed_over_is_due_whole(own: Ownership) -> None:
    claimed(own)
    own.planned(own.offer().asked, {"t": {0: (10, 12), 1: (20, 24), 2: (0, 9)}})
    own.failed(own.query.batch())
    assert own.pass_over(("t", 0), PassOver(10))
    assert own.pass_over(("t", 1), PassOver(20, letter=True))
    assert own.due(101.0) == {PLACE: {("t", 0): Due(11, "A", 1)}}
    assert own.letters() == {PLACE: {("t", 1): Due(21, "A", 2)}}
    assert not own.keep(("t", 1), 2, 21)
    assert not own.keep(("t", 1), 3, 20)
    assert not own.keep(("t", 0), 1, 10), "which has no letter"
    assert own.keep(("t", 1), 2, 20)
    assert own.letters() == {}
    own.committed({("t", 0): Due(11, "A", 1)}, 101.0)
    assert own.offer().again == {("t", 0): 11, ("t", 1): 20, ("t", 2): 0}


def test_loss_is_committed_whatever_becomes_of_the_batch(own: Ownership) -> None:
    claimed(own)
    own.planned(own.offer().asked, {"t": {0: (10, 12), 1: (20, 24)}})
    own.processed(own.query.batch(), 101.0)
    for offsets in own.due(101.0).values():
        own.committed(offsets, 101.0)
    jumps = {("t", 0): Jump(12, 50, Why.RETENTION), ("t", 1): Jump(24, 60, Why.SEEK)}
    sought = {("t", 1): Seek("s2", 60)}
    own.planned(own.offer().asked, {"t": {0: (50, 52), 1: (60, 64)}}, jumps, sought=sought)
    own.failed(own.query.batch())
    assert own.due(102.0) == {
        PLACE: {("t", 0): Due(50, "A", 1), ("t", 1): Due(60, "A", 2, Note("s2"), seek=sought["t", 1])}
    }


def test_status_is_whole_and_of_the_topics_asked_for(own: Ownership) -> None:
    claimed(own)
    own.planned(own.offer().asked, {"t": {0: (10, 12), 1: (20, 20)}, "u": {0: (5, 6)}})
    own.processed(own.query.batch(), 101.0)
    for offsets in own.due(101.0).values():
        own.committed(offsets, 101.0)
    paused = replace(
        node({0, 2}, 9, others={3}), paused=frozenset({0, 3}), standbys={3: (OTHER, ME), 0: (OTHER,)}
    )
    own.read("t", paused, 12)
    own.keep_only(["t"], 13)
    own.offer()
    t = TopicStatus(
        running=frozenset({0}),
        starting=frozenset({2}),
        closing=frozenset({1}),
        epoch=9,
        standby=frozenset({3}),
        paused=frozenset({0}),
    )
    u = TopicStatus(closing=frozenset({0}))
    assert own.status() == {"t": t, "u": u}
    assert (own.status("t"), own.status("u"), own.status("v")) == ({"t": t}, {"u": u}, {})
    own.block("isolated")
    assert own.status("t")["t"].standby == frozenset()


def test_topic_keeps_what_counts_when_its_node_goes_or_moves(own: Ownership) -> None:
    own.identify("t", PLACE, "B")
    taken = Topic(
        HERE, 5, 7, frozenset({0, 1, 2}), frozenset({3}), seeks={1: SEEK, 3: SEEK}, least=6, kafka_id="B"
    )
    assert own.topics["t"] == taken
    own.forget_assigned(["t", "unknown"])
    assert own.topics["t"] == Topic(epoch=5, zxid=7, least=5, kafka_id="B")
    own.read("t", node({0}, 5), 9)
    assert own.topics["t"] == Topic(HERE, 5, 9, frozenset({0}), least=6, kafka_id="B")
    assert own.keep_only(["u"], 10) == ["t"]
    assert own.topics["t"] == Topic(zxid=10, least=6, kafka_id="B")
    own.read("t", node({0}, 6, replace(THERE, topic_id="A")), 11)
    moved = Topic(replace(THERE, topic_id="A"), 6, 11, frozenset({0}), least=7, kafka_id="B")
    assert own.topics["t"] == moved
    own.identify("t", PLACE, "C", gone=True)
    assert own.topics["t"] == moved, "another place says nothing of it"
    own.identify("t", THERE.place, "", gone=True)
    assert own.topics["t"] == replace(moved, kafka_id="", gone=True)
    own.read("t", node({0}, 7, replace(THERE, topic_id="A")), 12)
    assert own.topics["t"].gone
    own.read("t", node({0}, 8, HERE), 13)
    assert own.topics["t"] == Topic(HERE, 8, 13, frozenset({0}), least=9)


def test_first_assignment_of_a_topic_counts_from_its_noted_epoch(own: Ownership) -> None:
    own.expect({"v": 9})
    assert not own.read("v", node({0}, 8), 20, synced=True)
    assert own.topics["v"] == Topic(epoch=9, least=9)
    assert own.read("v", node({0}, 9), 21)
    assert own.read("w", node({0}, 0), 22)


def test_consumer_watches_what_it_holds_or_is_assigned(own: Ownership) -> None:
    own.read("v", node(set(), 1, THERE, {0}), 9)
    assert own.watched() == {PLACE: {"t"}, THERE.place: {"u"}}
    claimed(own)
    own.offer()
    own.read("t", node({7}, 6, replace(THERE, topic_id="A")), 10)
    own.block("isolated")
    assert own.watched() == {PLACE: {"t"}, THERE.place: {"t", "u"}}


def test_renewal_of_a_partition_comes_in_the_last_quarter() -> None:
    assert renewal_interval(("t", 0), 1000.0) == pytest.approx(851.0892187)
    assert renewal_interval(("t", 0)) == pytest.approx(LONGEST_RENEWAL * 0.8510892187)


def test_plan_answers_only_the_newest_open_offer(own: Ownership) -> None:
    claimed(own)
    ranges = {"t": {0: (10, 12)}, "u": {0: (5, 6)}}
    own.planned(own.offer().asked, {**ranges, "v": {}})
    plan = own.query.batch()
    assert plan == BatchPlan(1, ranges, {"t": "A"}), "of those planned whose id is known"
    own.processed(plan, 101.0)
    with pytest.raises(
        PlanRefusedError, match="plan made from offer 1 is refused, the newest open offer is 1"
    ):
        own.planned(1, {"t": {0: (12, 13)}})
    asked = own.offer().asked
    own.planned(asked, ranges)
    with pytest.raises(PlanRefusedError, match="plan made from offer 2 is refused"):
        own.planned(asked, {"t": {0: (12, 13)}})
    assert own.query.stands_at == ranges
    own.planned(own.offer().asked, {"u": {0: (6, 7)}})
    assert own.query.batch() == BatchPlan(3, {"u": {0: (6, 7)}}), "t has an id, and is not planned"
    own.query_ended()
    own.query.start()
    assert own.query.batch() == BatchPlan(3, {})


def test_topic_keeps_its_id_in_kafka_where_it_stays(own: Ownership) -> None:
    own.identify("t", PLACE, "B")
    own.read("t", node({0}, 6), 9)
    assert own.topics["t"].kafka_id == "B"
    own.read("t", node({0}, 7, THERE), 10)
    assert own.topics["t"].kafka_id == ""
