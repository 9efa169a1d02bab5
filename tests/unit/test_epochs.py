"""What is noted of epochs, who has to answer before a topic is written again, and what is not built on its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import pytest

from muster.coordinator.view import CoordinatorView
from muster.core.epochs import Noted, epoch_ahead, to_note
from muster.core.flow import with_flow
from muster.core.model import ConsumerStatus, Membership, Seek, State, TopicSnapshot
from muster.core.overrides import Overrides, SeekRequest
from muster.core.patience import Patience, Policy, Replies
from muster.core.state_machine import advance
from muster.edges.consul import Members
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import SimulatedCluster
from tests.support.snapshots import HALVES, NOW, expect, members, status, topic

ALL_TO_A = dict.fromkeys(range(4), "a")
NOTED = Noted(4, over=3, gaining=frozenset("a"))
"""A write over epoch 3 that gives something to a."""


def patience(there: Membership, answers: Mapping[str, ConsumerStatus], noted: Noted = NOTED) -> Patience:
    return Patience(Policy(), there, Replies(answers, epochs={"t": noted}))


def test_noted_epoch_never_falls_whichever_note_came_first() -> None:
    first, second = Noted(4, 3, frozenset("a")), Noted(5, 3, frozenset("b"))
    for one, other in permutations((first, second)):
        assert one.merged(other) == Noted(5, 3, frozenset("ab")), "either write may have been made"
    for one, other in permutations((first, Noted(5, 4, frozenset("b")))):
        assert one.merged(other) == Noted(5, 4, frozenset("b")), "the first was written"
    for one, other in permutations((first, Noted(4))):
        assert one.merged(other) == Noted(4), "it was written"
    for one, other in permutations((Noted(4), Noted(5, 3, frozenset("b")))):
        assert one.merged(other) == Noted(5), "ZooKeeper went back from 4 to 3 in between"
    for one, other in permutations((Noted(5, 4, frozenset("a")), Noted(5, 3, frozenset("b")))):
        assert one.merged(other) == Noted(5)


def test_note_names_who_gains_by_the_write() -> None:
    before = topic(HALVES)
    taken = expect(advance(before, Patience(Policy(), members("a"), Replies()), ALL_TO_A, NOW))
    assert to_note(taken) == Noted(4, 3), "it only takes away from b"
    after = replace(before, assignment=taken.assignment, state=taken.state)
    given = expect(advance(after, Patience(Policy(), members("a"), Replies()), ALL_TO_A, NOW))
    assert to_note(given) == Noted(5, 4, frozenset("a"))


@pytest.mark.parametrize(
    ("noted", "waited_for"),
    [
        pytest.param(NOTED, {"a"}, id="only who gains"),
        pytest.param(Noted(4, 3), set(), id="nobody gains"),
        pytest.param(Noted(6, 3, frozenset("b")), {"b"}, id="several notes over one epoch"),
        pytest.param(Noted(4), {"a", "b", "c"}, id="it was written"),
        pytest.param(Noted(5, 4, frozenset("a")), {"a", "b", "c"}, id="over a node that is lost"),
        pytest.param(Noted(3), set(), id="nothing is ahead"),
    ],
)
def test_note_without_its_write_waits_for_those_that_gain(noted: Noted, waited_for: set[str]) -> None:
    there = members("a", "b", "c")
    assert patience(there, {}, noted).unanswered(topic(HALVES)) == waited_for
    answers = {c: a for c in waited_for for a in status(c, {p for p in HALVES if HALVES[p] == c}).values()}
    assert patience(there, answers, noted).unanswered(topic(HALVES)) == set()


def test_all_have_to_answer_where_one_holds_more() -> None:
    there, snapshot = members("a", "b", "c"), topic(HALVES)
    beyond = patience(there, status("a", {0, 1, 2}, epoch=4))
    assert beyond.unanswered(snapshot) == {"b", "c"}, "ZooKeeper was restored to before the write"
    higher = patience(there, status("a", {0, 1}, epoch=5))
    assert higher.unanswered(snapshot) == {"b", "c"}, "a reports a higher epoch than was noted"
    unknown = patience(there, status("a", {0, 1}))
    assert unknown.unanswered(replace(snapshot, state=None)) == {"b", "c"}, "who has to close is not known"


def test_consumer_that_gains_nothing_holds_up_nothing() -> None:
    """A coordinator died before it took from c, which has died, what it had; b does not answer."""
    snapshot = topic({0: "a", 1: "b", 2: "c"}, partitions=3)
    targets = {0: "a", 1: "b", 2: "a"}
    done = expect(advance(snapshot, patience(members("a", "b"), {}, Noted(4, 3)), targets, NOW))
    assert (done.state.state, done.state.to_close) == (State.CLOSING, {"c": {2}})
    assert done.assignment.epoch == 5
    assert advance(snapshot, patience(members("a", "b"), {}, Noted(4)), targets, NOW) is None


@pytest.mark.parametrize("alone", ["state", "assignment"])
def test_nodes_of_different_epochs_do_not_count(alone: str) -> None:
    """One of them was restored without the other: p2 is on its way from b to a, and the state does not say so."""
    snapshot = topic({0: "a", 1: "a", 3: "b"}, epoch=5)
    assert snapshot.assignment is not None and snapshot.state is not None
    other = 4 if alone == "state" else 6
    snapshot = replace(snapshot, state=replace(snapshot.state, epoch=other))
    assert epoch_ahead(snapshot, {}) == max(5, other)
    there, targets = members("a", "b"), {**HALVES, 2: "a"}
    known = status("a", {0, 1}, epoch=5)
    assert advance(snapshot, Patience(Policy(), there, Replies(known)), targets, NOW) is None
    known |= status("b", {3}, closing={2}, epoch=5)
    done = expect(advance(snapshot, Patience(Policy(), there, Replies(known)), targets, NOW))
    assert (done.state.to_close, 2 in done.assignment.owners) == ({"b": {2}}, False)
    assert done.assignment.epoch == done.state.epoch == max(5, other) + 1


def _view(snapshot: TopicSnapshot, noted: Noted, **further: object) -> CoordinatorView:
    overrides = Overrides(epochs={"t": noted})
    view = CoordinatorView({"t": snapshot}, {}, Members(members("a", "b"), {}), overrides)
    return replace(view, **further)  # type: ignore[arg-type]


def test_topic_ahead_counts_as_under_way() -> None:
    view = _view(topic(HALVES), Noted(4))
    assert (view.ahead, view.all_stable, view.under_way()) == ({"t"}, False, {"t": "Stable -> ..."})
    assert _view(topic(HALVES), Noted(3)).all_stable


def test_request_of_the_flow_waits_while_a_topic_is_ahead() -> None:
    assert with_flow(topic(HALVES), None, frozenset({1}), {}, ahead=True) is None
    step = expect(advance(topic(HALVES), patience(members("a"), status("a", {0, 1})), ALL_TO_A, NOW))
    written = expect(with_flow(step.before, step, frozenset({1}), {}, ahead=True))
    assert (written.assignment.paused, written.assignment.epoch) == ({1}, 5), "with the step that is planned"


def test_topic_ahead_is_not_removed() -> None:
    left = topic({})
    for noted, removable in ((Noted(3), {"t"}), (Noted(4), set())):
        assert _view(left, noted, leaving={"t": "unsubscribed"}).removable().keys() == removable
    stateless = replace(left, state=None)
    there = patience(members("a"), status("a"), Noted(4))
    done = expect(advance(stateless, there, {}, NOW, leaving="unsubscribed"))
    assert done.assignment.epoch == 5, "then it is removed"


def test_seek_of_a_topic_ahead_waits_while_a_consumer_is_registered() -> None:
    seek = SeekRequest(by="ann", at=NOW, why="w", id="s", topic="t", topic_id="", partition=2, offset=7)
    snapshot = topic({**HALVES, 2: "gone"})
    assert snapshot.assignment is not None
    snapshot = replace(snapshot, assignment=replace(snapshot.assignment, seeks={2: Seek("s", 7)}))
    for noted, found in ((Noted(3), {("t", 2)}), (Noted(4), set())):
        view = _view(snapshot, noted)
        view = replace(view, overrides=replace(view.overrides, seeks={("t", 2): seek}))
        assert view.seeks_without_owner.keys() == found
    nobody = replace(view, members=Members(Membership({}), {}))
    assert nobody.seeks_without_owner.keys() == {("t", 2)}


@pytest.fixture
def world() -> SimulatedCluster:
    return settled_world()


def _read(world: SimulatedCluster) -> TopicSnapshot:
    snapshot = world.store.snapshots()["t"]
    assert isinstance(snapshot, TopicSnapshot)
    return snapshot


def _epoch(snapshot: TopicSnapshot) -> int:
    assert snapshot.assignment is not None
    return snapshot.assignment.epoch


def _note(world: SimulatedCluster, epoch: int) -> None:
    world.decided = replace(world.decided, epochs={"t": Noted(epoch)})


def test_topic_that_comes_back_has_a_higher_epoch_than_noted(world: SimulatedCluster) -> None:
    _note(world, 4_000_000_000)
    assert world.store.remove_topic("t", _read(world))
    coordinator(world, Topics(t=7, u=5)).fetch_partitions()
    assert _epoch(_read(world)) == 4_000_000_001


def test_recreated_topic_is_planned_first_where_it_is_ahead(world: SimulatedCluster) -> None:
    kafka = Topics(t=7, u=5)
    kafka.ids = {"t": "first"}
    coordinator(world, kafka).fetch_partitions()
    kafka.ids = {"t": "second"}
    _note(world, _epoch(_read(world)) + 2)
    assert coordinator(world, kafka).fetch_partitions().recreated == []
    _note(world, _epoch(_read(world)))
    assert coordinator(world, kafka).fetch_partitions().recreated == ["t"]
