"""Every transition of every state, and the fault table of the design, row by row, on plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from muster.core import state_machine
from muster.core.assignors import load_assignor
from muster.core.epochs import Noted
from muster.core.model import (
    Consumer,
    ConsumerStatus,
    Membership,
    Move,
    Return,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
    Transition,
)
from muster.core.patience import Patience, Policy, Replies
from muster.core.planner import plan
from muster.core.state_machine import (
    CREATED_AGAIN,
    WENT_BACK,
    advance,
    consumers_to_ask,
    may_be_removed,
    recreated,
    topics_ahead,
)
from muster.core.step import Inputs
from tests.support.snapshots import HALVES, NOW, expect, members, status, topic


def step(
    snapshot: TopicSnapshot,
    membership: Membership,
    targets: Mapping[int, str] | None = None,
    statuses: Mapping[str, ConsumerStatus] | None = None,
    delay: float = 0.0,
    now: float = NOW,
    heard: Replies | None = None,
) -> Transition | None:
    replies = replace(heard or Replies(), statuses=statuses or {})
    return advance(snapshot, Patience(Policy(delay), membership, replies), targets or {}, now)


def after(transition: Transition) -> TopicSnapshot:
    """What stands once it is written."""
    return replace(transition.before, assignment=transition.assignment, state=transition.state)


class TestInitial:
    def test_plans_and_starts(self) -> None:
        nothing = status("a", epoch=0) | status("b", epoch=0)
        done = expect(step(topic({}, None, epoch=0), members("a", "b"), HALVES, nothing))
        assert done.assignment.owners == HALVES
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"a": {0, 1}, "b": {2, 3}}
        assert done.state.to_close == {}
        assert done.state.epoch == done.assignment.epoch == 1
        assert done.state.since == NOW
        assert done.state.reason == "first assignment"
        assert {(m.partition, m.source, m.target) for m in done.moves} == {
            (p, None, c) for p, c in HALVES.items()
        }

    def test_topic_without_partitions_stays(self) -> None:
        assert step(topic({}, None, partitions=0), members("a")) is None

    def test_topic_without_assignment_node_stays(self) -> None:
        assert step(TopicSnapshot("t", frozenset({0})), members("a"), {0: "a"}) is None

    def test_owners_without_state_are_verified_not_moved(self) -> None:
        """A person deleted the state node: what is assigned stays, and is asked after."""
        running = status("a", {0, 1}) | status("b", {2, 3})
        done = expect(step(topic(HALVES, None), members("a", "b"), HALVES, running))
        assert done.assignment.owners == HALVES
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"a": {0, 1}, "b": {2, 3}}
        assert done.moves == ()

    def test_balance_waits_for_stable(self) -> None:
        running = status("a", {0, 1}) | status("b")
        lost = topic({0: "a", 1: "a"}, None, partitions=2)
        done = expect(step(lost, members("a", "b"), {0: "a", 1: "b"}, running))
        assert done.state.state is State.STARTING
        assert done.assignment.owners == {0: "a", 1: "a"}

    @pytest.mark.parametrize(
        "answers",
        [
            pytest.param(status("a", {0, 1}), id="one has not answered"),
            pytest.param(status("a", {0, 1}) | status("b", epoch=2), id="one has not seen the epoch"),
            pytest.param(status("a", {0, 1}) | status("b", epoch=None), id="one has not seen the topic"),
        ],
    )
    def test_partition_is_given_only_after_all_live_consumers_have_answered(
        self, answers: dict[str, ConsumerStatus]
    ) -> None:
        assert step(topic({0: "a", 1: "a"}, None), members("a", "b"), HALVES, answers) is None

    def test_consumer_without_epochs_has_answered(self) -> None:
        answers = status("a", epochs=False) | status("b", epoch=0)
        assert step(topic({}, None, epoch=0), members("a", "b"), HALVES, answers) is not None

    def test_deleted_state_node_gives_nothing_that_is_still_being_closed(self) -> None:
        """The state node was deleted in the middle of a hand-over: a is closing 1, and only a knows."""
        answers = status("a", {0}, closing={1}) | status("b")
        done = expect(step(topic({0: "a"}, None, partitions=2), members("a", "b"), {0: "a", 1: "b"}, answers))
        assert done.state.state is State.CLOSING
        assert done.assignment.owners == {0: "a"}
        assert done.state.to_close == {"a": {1}}
        assert done.state.to_start == {"a": {0}, "b": {1}}

    def test_topic_whose_nodes_are_deleted_gives_nothing_that_is_still_being_closed(self) -> None:
        answers = status("a", closing={0, 1}, epoch=2000) | status("b", epoch=2000)
        fresh = topic({}, None, partitions=3, epoch=2000)
        done = expect(step(fresh, members("a", "b"), {0: "b", 1: "a", 2: "b"}, answers))
        assert done.assignment.owners == {2: "b"}
        assert done.state.to_close == {"a": {0, 1}}

    @pytest.mark.parametrize("there", [members("a", failing=("b",)), members("a", outside=("b",))])
    def test_consumer_that_is_not_live_and_answers_closes_what_it_holds(self, there: Membership) -> None:
        answers = status("a") | status("b", {0})
        done = expect(step(topic({}, None, partitions=1), there, {0: "a"}, answers))
        assert done.assignment.owners == {}
        assert done.state.to_close == {"b": {0}}

    def test_partition_run_by_two_is_closed_by_one_before_the_other_goes_on(self) -> None:
        answers = status("a", {0}) | status("b", {0})
        done = expect(step(topic({0: "b"}, None, partitions=1), members("a", "b"), {0: "b"}, answers))
        assert done.assignment.owners == {}
        assert done.state.to_close == {"a": {0}}
        assert done.state.to_start == {"b": {0}}

    def test_three_holders_are_waited_for(self) -> None:
        answers = status("a", {0}) | status("b", {0}) | status("c", closing={0})
        assert step(topic({0: "b"}, None, partitions=1), members("a", "b", "c"), {0: "b"}, answers) is None

    def test_topic_without_a_node_asks_every_consumer(self) -> None:
        there = members("a", "b", failing=("c",), outside=("d",), older=("a",))
        assert consumers_to_ask([topic({}, None)], there) == {c: {"t"} for c in "abcd"}

    def test_topic_without_a_node_keeps_no_other_from_being_asked_about(self) -> None:
        moving = replace(topic(HALVES, State.STARTING, to_start={"a": {0}}), topic="u")
        there = members("a", "b")
        assert consumers_to_ask([topic({}, None), moving], there) == {"a": {"t", "u"}, "b": {"t"}}
        assert consumers_to_ask([topic(HALVES), moving], there, {"t"}) == {"a": {"t", "u"}, "b": {"t"}}


class TestRestored:
    """ZooKeeper holds an older state than consumers have acted on."""

    def answers(self) -> dict[str, ConsumerStatus]:
        """In the state that was lost, 1 had moved to b."""
        return status("a", {0}, epoch=9) | status("b", {1, 2, 3}, epoch=9)

    def test_consumers_keep_what_they_run_under_a_higher_epoch(self) -> None:
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, self.answers()))
        assert done.assignment.owners == {0: "a", 1: "b", 2: "b", 3: "b"}
        assert done.assignment.epoch == done.state.epoch == 10
        assert done.state.state is State.STARTING
        assert WENT_BACK in done.state.reason
        assert done.moves == ()

    def test_closed_is_not_believed_of_an_epoch_of_the_lost_state(self) -> None:
        """By the restored nodes 2 and 3 are on their way from a to b, which a never heard of: it has closed 2 and 3
        and holds 0 and 1 by a later epoch."""
        moving = topic({0: "a", 1: "a"}, State.CLOSING, to_start={"b": {2, 3}}, to_close={"a": {2, 3}})
        answers = status("a", {0, 1}, epoch=9) | status("b", epoch=3) | status("c", {2, 3}, epoch=9)
        done = expect(step(moving, members("a", "b", "c"), HALVES, answers))
        assert done.assignment.owners == {0: "a", 1: "a", 2: "c", 3: "c"}
        assert done.state.to_close == {}

    def test_topic_without_a_node_waits_for_all_answers(self) -> None:
        assert step(topic(HALVES), members("a", "b", "c"), HALVES, self.answers()) is None

    def test_noted_epoch_counts_though_no_consumer_reports_it(self) -> None:
        noted = {"t": Noted(7)}
        assert topics_ahead({"t": topic(HALVES)}, (), noted) == {"t"}
        assert topics_ahead({"t": topic(HALVES, epoch=7)}, (), noted) == set()
        assert step(topic(HALVES), members("a", "b"), HALVES, heard=Replies(epochs=noted)) is None
        known = status("a", {0, 1}) | status("b", {2, 3})
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, known, heard=Replies(epochs=noted)))
        assert done.assignment.epoch == done.state.epoch == 8


class TestAway:
    """Owners that are registered and not live, and answer or do not."""

    ALL_TO_A = dict.fromkeys(range(4), "a")

    def away(self, snapshot: TopicSnapshot, seconds: float, there: Membership, **answers: Any) -> Any:
        """The step so many seconds after `b` was seen away."""
        state = replace(snapshot.state or TopicState(State.STABLE), missing={"b": NOW})
        return step(replace(snapshot, state=state), there, self.ALL_TO_A, now=NOW + seconds, **answers)

    def test_failing_and_silent_is_gone_at_once(self) -> None:
        done = expect(step(topic(HALVES), members("a", failing=("b",)), self.ALL_TO_A))
        assert done.state.to_close == {"b": {2, 3}}

    def test_failing_that_answers_keeps_its_partitions_for_a_grace(self) -> None:
        there, running = members("a", failing=("b",)), status("b", {2, 3})
        done = expect(step(topic(HALVES), there, self.ALL_TO_A, running))
        assert done.state.state is State.STABLE
        assert done.state.missing == {"b": NOW}
        assert done.assignment == topic(HALVES).assignment
        assert self.away(topic(HALVES), 4.9, there, statuses=running) is None
        late = expect(self.away(topic(HALVES), 5.1, there, statuses=running))
        assert late.state.to_close == {"b": {2, 3}}

    @pytest.mark.parametrize(
        "there",
        [
            pytest.param(members("a", failing=("b",)), id="failing"),
            pytest.param(members("a", outside=("b",)), id="isolated"),
        ],
    )
    def test_taken_partitions_wait_for_an_answering_owner_within_a_limit(self, there: Membership) -> None:
        taken = topic({0: "a", 1: "a"}, State.CLOSING, to_start={"a": {2, 3}}, to_close={"b": {2, 3}})
        closing = status("b", closing={2, 3})
        assert self.away(taken, 29, there, statuses=closing) is None
        closed = expect(self.away(taken, 29, there, statuses=status("b")))
        assert closed.assignment.owners == self.ALL_TO_A
        bound = expect(self.away(taken, 36, there, statuses=closing))
        assert bound.assignment.owners == self.ALL_TO_A

    def test_isolated_that_answers_loses_its_partitions_at_once_and_closes_them(self) -> None:
        first = expect(step(topic(HALVES), members("a", outside=("b",)), self.ALL_TO_A, status("b", {2, 3})))
        assert first.state.to_close == {"b": {2, 3}}
        assert first.state.missing == {"b": NOW}
        assert (
            step(after(first), members("a", outside=("b",)), self.ALL_TO_A, status("b", closing={2}, epoch=4))
            is not None
        ), "3 is closed, so it is given"

    def test_owner_that_dies_meanwhile_is_not_waited_for_any_longer(self) -> None:
        taken = topic({0: "a", 1: "a"}, State.CLOSING, to_start={"a": {2, 3}}, to_close={"b": {2, 3}})
        done = expect(self.away(taken, 1, members("a", failing=("b",))))
        assert done.assignment.owners == self.ALL_TO_A

    def test_doubted_owner_keeps_its_partitions_for_longer(self) -> None:
        doubt = Replies(doubted=frozenset("b"))
        there = members("a")
        assert expect(step(topic(HALVES), there, self.ALL_TO_A, heard=doubt)).state.to_close == {}
        assert self.away(topic(HALVES), 9.9, there, heard=doubt) is None
        assert expect(self.away(topic(HALVES), 10.1, there, heard=doubt)).state.to_close == {"b": {2, 3}}

    def test_older_incarnation_that_answers_must_have_closed_as_well(self) -> None:
        taken = topic({0: "a", 1: "a"}, State.CLOSING, to_start={"a": {2, 3}}, to_close={"b": {2, 3}})
        there = members("a", "b", older=("b",))
        holds = Replies(older={"b": tuple(status("b", {2}).values())})
        done = expect(step(taken, there, self.ALL_TO_A, status("b"), heard=holds))
        assert done.assignment.owners == {0: "a", 1: "a", 3: "a"}
        assert done.state.to_close == {"b": {2}}

    def test_silent_live_owner_has_closed_nothing_its_predecessor_closed(self) -> None:
        taken = topic({0: "a", 1: "a"}, State.CLOSING, to_start={"a": {2, 3}}, to_close={"b": {2, 3}})
        closed = Replies(older={"b": tuple(status("b").values())})
        there = members("a", "b", older=("b",))
        assert step(taken, there, self.ALL_TO_A, heard=closed) is None
        assert expect(step(taken, there, self.ALL_TO_A, status("b"), heard=closed)).state.to_close == {}

    def test_crash_loop_is_not_waited_for_each_time(self) -> None:
        """It comes back within the delay again and again, and dies before it runs anything."""
        snapshot, now = topic(HALVES), NOW
        for live in (["a"], ["a", "b"], ["a"], ["a", "b"], ["a"]):
            starting = status("b", starting={2, 3}) if "b" in live else {}
            moved = step(
                snapshot, members(*live), HALVES if "b" in live else self.ALL_TO_A, starting, 30, now
            )
            if moved is not None:
                if moved.state.to_close:
                    break
                snapshot = after(moved)
            now += 10
        else:
            pytest.fail("it kept its partitions")
        assert now - NOW == 40

    def test_clock_that_was_ahead_delays_nothing_for_longer_than_the_delay(self) -> None:
        ahead = topic(HALVES, missing={"b": NOW + 3600})
        first = expect(step(ahead, members("a"), self.ALL_TO_A, delay=30))
        assert first.state.missing == {"b": NOW}

    def test_failing_owner_is_asked(self) -> None:
        there = members("a", "c", failing=("b",), older=("a",))
        assert consumers_to_ask([topic(HALVES)], there) == {"b": {"t"}}


class TestRecreated:
    """Kafka has the topic under another id."""

    def before(self, **more: Any) -> TopicSnapshot:
        snapshot = topic(HALVES, **more)
        assert snapshot.assignment is not None
        return replace(snapshot, assignment=replace(snapshot.assignment, topic_id="old"))

    def test_owners_stay_and_start_again(self) -> None:
        done = expect(recreated(self.before(), "new", NOW))
        assert done.assignment == replace(
            self.before().assignment or TopicAssignment("", ""), topic_id="new", epoch=4
        )
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"a": {0, 1}, "b": {2, 3}}
        assert (done.state.epoch, done.state.since) == (4, NOW)
        assert "created again" in done.state.reason

    def test_hand_over_goes_on(self) -> None:
        moving = replace(
            TestClosing().closing(), assignment=TopicAssignment("k:9092", "g", {0: "a", 1: "a"}, 3, {}, "old")
        )
        done = expect(recreated(moving, "new", NOW))
        assert done.state.state is State.CLOSING
        assert done.state.to_close == {"a": {2, 3}}
        assert done.state.to_start == {"a": {0, 1}, "b": {2, 3}}
        assert (done.state.since, done.state.reason) == (4_900.0, f"before; {CREATED_AGAIN}")
        answers = status("a", {0, 1}, epoch=3)
        assert step(after(done), members("a", "b"), HALVES, answers) is None, (
            "closed by the old epoch is not closed"
        )

    def test_topic_with_its_old_id_is_left_as_it_is(self) -> None:
        assert recreated(self.before(), "old", NOW) is None

    def test_id_that_was_unknown_is_noted_and_restarts_nothing(self) -> None:
        done = expect(recreated(topic(HALVES), "new", NOW))
        assert done.assignment == replace(topic(HALVES).assignment or TopicAssignment("", ""), topic_id="new")
        assert done.state == topic(HALVES).state
        assert done.reason == "topic id noted"


class TestStarting:
    def start(self, owners: Mapping[int, str] = HALVES) -> TopicSnapshot:
        return topic(owners, State.STARTING, to_start={"a": {0, 1}, "b": {2, 3}})

    def test_topic_is_stable_once_all_runs(self) -> None:
        done = expect(
            step(self.start(), members("a", "b"), HALVES, status("a", {0, 1}) | status("b", {2, 3}))
        )
        assert done.state.state is State.STABLE
        assert done.state.to_start == {}
        assert done.state.since == NOW
        assert done.assignment == self.start().assignment, "the assignment does not change"
        assert done.state.reason == "before", "the reason of the rebalance is kept"

    @pytest.mark.parametrize(
        "statuses",
        [
            status("a", {0, 1}),
            status("a", {0, 1}) | status("b", {2}, {3}),
            status("a", {0, 1}) | status("b", {2}),
            status("a", {0, 1}) | status("b", {2, 3}, epoch=2),
            status("a", {0, 1}) | status("b", {2, 3}, epoch=None),
            {},
        ],
        ids=["no answer", "still starting", "not begun", "old epoch", "no epoch yet", "nobody answers"],
    )
    def test_topic_is_starting_until_all_runs(self, statuses: Mapping[str, ConsumerStatus]) -> None:
        assert step(self.start(), members("a", "b"), HALVES, statuses) is None

    def test_foreign_consumer_without_epochs_is_believed(self) -> None:
        statuses = status("a", {0, 1}, epochs=False) | status("b", {2, 3}, epochs=False)
        assert expect(step(self.start(), members("a", "b"), HALVES, statuses)).state.state is State.STABLE

    @pytest.mark.parametrize("isolated", [(), ("b",)], ids=["left", "isolated"])
    def test_lost_consumer_is_planned_again(self, isolated: tuple[str, ...]) -> None:
        there, all_to_a = members("a", isolated=isolated), dict.fromkeys(range(4), "a")
        first = expect(step(self.start(), there, all_to_a))
        assert first.assignment.owners == {0: "a", 1: "a"}
        assert first.state.to_close == {"b": {2, 3}}, "taken off first: b may be back by now"
        done = expect(step(after(first), there, all_to_a))
        assert done.state.state is State.STARTING
        assert done.assignment.owners == dict.fromkeys(range(4), "a")
        assert done.state.to_start == {"a": {0, 1, 2, 3}}
        assert done.state.since == 4_900.0, "it is still the same rebalance"
        why = "was isolated" if isolated else "left"
        assert done.state.reason == f"before; consumer b {why}"
        assert done.state.epoch == 5

    def test_reason_names_the_person_that_isolated_the_consumer(self) -> None:
        there = replace(members("a", isolated=("b",)), isolated_by={"b": "ann: disk full"})
        first = expect(step(self.start(), there, dict.fromkeys(range(4), "a")))
        assert {move.reason for move in first.moves} == {"consumer b was isolated by ann: disk full"}

    def test_running_partition_is_not_moved_for_balance(self) -> None:
        targets = {0: "a", 1: "b", 2: "b", 3: "a"}
        done = step(self.start(), members("a", "b"), targets, status("a", {0, 1}))
        assert done is None

    def test_new_partition_is_placed_at_once(self) -> None:
        snapshot = replace(self.start(), partitions=frozenset(range(5)))
        done = expect(step(snapshot, members("a", "b"), {**HALVES, 4: "a"}))
        assert done.assignment.owners[4] == "a"
        assert done.state.to_start["a"] == {0, 1, 4}


class TestStable:
    @pytest.mark.parametrize(
        "snapshot",
        [
            topic(HALVES),
            topic(HALVES, State.STARTING),
            topic(HALVES, partitions=5),
            topic(HALVES, partitions=3),
            topic({0: "a", 1: "a", 2: "b"}),
            topic({**HALVES, 3: "gone"}),
            topic(HALVES, missing={"gone": NOW}),
            topic(HALVES, to_start={"b": {2}}),
            topic(HALVES, to_close={"a": {2}}),
            replace(topic(HALVES), state=None),
        ],
    )
    @pytest.mark.parametrize("targets", [HALVES, {0: "b", 1: "a", 2: "b", 3: "a"}, {}])
    def test_a_topic_at_rest_is_one_without_a_step(
        self, snapshot: TopicSnapshot, targets: Mapping[int, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quickly = step(snapshot, members("a", "b"), targets)
        monkeypatch.setattr(Inputs, "at_rest", False)
        assert quickly == step(snapshot, members("a", "b"), targets)

    def test_topic_at_rest_is_known_without_a_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a large cluster nearly all topics rest, and a step goes through all their partitions."""
        monkeypatch.delattr(state_machine, "_step")
        assert step(topic(HALVES), members("a", "b"), HALVES, heard=Replies(epochs={"t": Noted(3)})) is None

    def test_balanced_topic_needs_no_step(self) -> None:
        assert step(topic(HALVES), members("a", "b"), HALVES) is None

    def test_leave_is_taken_off_then_given(self) -> None:
        all_to_a = dict.fromkeys(range(4), "a")
        first = expect(step(topic(HALVES), members("a"), all_to_a))
        assert first.state.state is State.CLOSING
        assert first.assignment.owners == {0: "a", 1: "a"}
        assert first.state.to_close == {"b": {2, 3}}
        done = expect(step(after(first), members("a"), all_to_a))
        assert done.assignment.owners == all_to_a
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"a": {2, 3}}, "what does not move is not touched"
        assert done.state.to_close == {}
        assert done.state.reason == "consumer b left"

    def test_leaving_consumer_hands_over_while_it_reads_on(self) -> None:
        there = Membership({"a": Consumer("a"), "b": Consumer("b", leaving=True)})
        targets = plan([topic(HALVES)], there.live, load_assignor("sticky")).owners["t"]
        assert targets == dict.fromkeys(range(4), "a"), "it is given nothing"
        first = expect(step(topic(HALVES), there, targets))
        assert first.state.to_close == {"b": {2, 3}}
        assert first.state.reason == "consumer b leaves"
        # Unlike what one that is gone has had, it is not given away before it is closed.
        assert step(after(first), there, targets, status("b", set(), closing={2, 3}, epoch=4)) is None
        done = expect(step(after(first), there, targets, status("b", closing={3}, epoch=4)))
        assert done.assignment.owners == {0: "a", 1: "a", 2: "a"}

    def test_partitions_stay_if_all_consumers_leave(self) -> None:
        there = Membership({c: Consumer(c, leaving=True) for c in ("a", "b")})
        targets = plan([topic(HALVES)], there.live, load_assignor("sticky")).owners["t"]
        assert step(topic(HALVES), there, targets) is None

    def test_owner_that_comes_back_before_it_was_given_away_closes_first(self) -> None:
        first = expect(step(topic(HALVES), members("a"), dict.fromkeys(range(4), "a")))
        back = members("a", "b")
        assert step(after(first), back, HALVES, status("b", {2, 3}, epoch=3)) is None
        assert step(after(first), back, HALVES, status("b", set(), closing={2, 3}, epoch=4)) is None
        done = expect(step(after(first), back, HALVES, status("b", epoch=4)))
        assert done.assignment.owners == dict.fromkeys(range(4), "a")

    def test_join_closes_first(self) -> None:
        done = expect(step(topic(dict.fromkeys(range(4), "a")), members("a", "b"), HALVES))
        assert done.state.state is State.CLOSING
        assert done.assignment.owners == {0: "a", 1: "a"}, "a moving partition is in nobody's hands"
        assert done.state.to_close == {"a": {2, 3}}
        assert done.state.to_start == {"b": {2, 3}}
        assert done.state.reason == "consumer b joined"
        assert done.state.since == NOW

    def test_leave_with_a_shift_closes_and_starts_at_once(self) -> None:
        """Range: c leaves and b's block shifts to a. c's partitions need not wait for b."""
        snapshot = topic({0: "a", 1: "b", 2: "b", 3: "c"})
        first = expect(step(snapshot, members("a", "b"), HALVES))
        assert first.state.to_close == {"b": {1}, "c": {3}}
        done = expect(step(after(first), members("a", "b"), HALVES))
        assert done.state.state is State.CLOSING
        assert done.assignment.owners == {0: "a", 2: "b", 3: "b"}
        assert done.state.to_close == {"b": {1}}
        assert done.state.to_start == {"a": {1}, "b": {3}}

    def test_new_partitions_start_at_their_planned_owner(self) -> None:
        done = expect(step(topic(HALVES, partitions=5), members("a", "b"), {**HALVES, 4: "b"}))
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"b": {4}}
        assert done.state.reason == "no consumer held it"

    def test_vanished_partitions_are_closed(self) -> None:
        done = expect(step(topic(HALVES, partitions=3), members("a", "b"), {0: "a", 1: "a", 2: "b"}))
        assert done.assignment.owners == {0: "a", 1: "a", 2: "b"}
        assert done.state.to_close == {"b": {3}}
        assert done.state.state is State.CLOSING
        assert done.moves == (Move("t", 3, "b", None, "partition vanished from Kafka"),)

    def test_vanished_partition_of_a_lost_consumer_just_goes(self) -> None:
        first = expect(step(topic({0: "a", 1: "b"}, partitions=1), members("a"), {0: "a"}))
        assert first.state.to_close == {"b": {1}}
        done = expect(step(after(first), members("a"), {0: "a"}))
        assert done.assignment.owners == {0: "a"}
        assert done.state.state is State.STABLE

    def test_topic_without_subscribers_keeps_its_owners(self) -> None:
        assert step(topic(HALVES), members("c"), {}) is None

    def test_owner_that_does_not_run_what_it_owns_is_started_again(self) -> None:
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, status("a", {1}, {0})))
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"a": {0}}
        assert done.state.since == NOW
        assert done.assignment == topic(HALVES).assignment
        assert "consumer a does not run" in done.state.reason

    def test_owner_that_does_not_run_starts_beside_new_partitions(self) -> None:
        grown = topic(HALVES, partitions=5)
        done = expect(step(grown, members("a", "b"), {**HALVES, 4: "b"}, status("a", {1})))
        assert done.state.to_start == {"a": {0}, "b": {4}}

    def test_next_owner_that_is_held_for_gets_what_is_closed(self) -> None:
        """It finds it when it is back, though no coordinator may run by then."""
        taken = topic({0: "a", 1: "a"}, State.CLOSING, to_start={"c": {2, 3}}, to_close={"b": {2, 3}})
        done = expect(step(taken, members("a", "b"), {**HALVES, 2: "a", 3: "a"}, status("b"), delay=30))
        assert done.assignment.owners == {0: "a", 1: "a", 2: "c", 3: "c"}
        assert done.state.state is State.STARTING
        assert done.state.missing == {"c": NOW}

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(status("b", epoch=2), id="it has read an older epoch"),
            pytest.param({"b": ConsumerStatus("b", "i", {}, epochs=True)}, id="it lists no topic"),
        ],
    )
    def test_owner_that_runs_nothing_starts_again(self, answer: Mapping[str, ConsumerStatus]) -> None:
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, answer))
        assert (done.state.state, done.state.to_start) == (State.STARTING, {"b": {2, 3}})
        assert done.assignment == topic(HALVES).assignment
        assert done.reason == "consumer b does not run what it owns"

    def test_owner_that_was_not_asked_about_it_stays(self) -> None:
        about_another = {"b": ConsumerStatus("b", "i", {"u": TopicStatus(epoch=3)}, epochs=True)}
        asked = Replies(asked={"b": {"u"}})
        assert step(topic(HALVES), members("a", "b"), HALVES, about_another, heard=asked) is None

    def test_owner_starts_again_while_its_older_process_hangs(self) -> None:
        hangs = Replies(older={"b": tuple(status("b", {2, 3}).values())})
        waits = {"b": ConsumerStatus("b", "new", {}, epochs=True)}
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, waits, heard=hangs))
        assert done.state.to_start == {"b": {2, 3}}
        assert step(topic(HALVES), members("a", "b"), HALVES, {}, heard=hangs) is None, (
            "the newer one is silent"
        )
        closed = Replies(older={"b": tuple(status("b", {2}).values())})
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, {}, heard=closed))
        assert done.state.to_start == {"b": {3}}

    def test_balance_waits_for_what_does_not_run(self) -> None:
        done = expect(step(topic(HALVES), members("a", "b"), dict.fromkeys(range(4), "a"), status("b", {2})))
        assert done.assignment == topic(HALVES).assignment


class TestClosing:
    def closing(self) -> TopicSnapshot:
        """2 and 3 move from a to b; a keeps 0 and 1."""
        return topic({0: "a", 1: "a"}, State.CLOSING, to_start={"b": {2, 3}}, to_close={"a": {2, 3}})

    def test_closed_partition_is_given_at_once(self) -> None:
        done = expect(step(self.closing(), members("a", "b"), HALVES, status("a", {0, 1}, closing={3})))
        assert done.state.state is State.CLOSING
        assert done.assignment.owners == {0: "a", 1: "a", 2: "b"}
        assert done.state.to_close == {"a": {3}}
        assert done.state.to_start == {"b": {2, 3}}

    def test_topic_is_starting_once_all_is_closed(self) -> None:
        done = expect(step(self.closing(), members("a", "b"), HALVES, status("a", {0, 1})))
        assert done.state.state is State.STARTING
        assert done.assignment.owners == HALVES
        assert done.state.to_close == {}
        assert done.state.to_start == {"b": {2, 3}}
        assert done.state.since == 4_900.0

    @pytest.mark.parametrize(
        "statuses",
        [
            {},
            status("a", {0, 1, 2, 3}),
            status("a", {0, 1}, {2, 3}),
            status("a", {0, 1}, epoch=2),
            {"a": ConsumerStatus("a", "i", {}, epochs=True)},
        ],
        ids=["no answer", "still running", "still starting", "answer from before", "topic not read yet"],
    )
    def test_partition_that_is_not_confirmed_closed_is_not_given(
        self, statuses: Mapping[str, ConsumerStatus]
    ) -> None:
        assert step(self.closing(), members("a", "b"), HALVES, statuses) is None

    def test_foreign_consumer_that_reports_nothing_has_closed(self) -> None:
        statuses = {"a": ConsumerStatus("a", "i", {})}
        assert expect(step(self.closing(), members("a", "b"), HALVES, statuses)).assignment.owners == HALVES

    @pytest.mark.parametrize("isolated", [(), ("a",)], ids=["left", "isolated"])
    def test_owner_gone_counts_as_closed(self, isolated: tuple[str, ...]) -> None:
        there, all_to_b = members("b", isolated=isolated), dict.fromkeys(range(4), "b")
        first = expect(step(self.closing(), there, all_to_b))
        assert first.assignment.owners == {2: "b", 3: "b"}, "what it was closing is given at once"
        done = expect(step(after(first), there, all_to_b))
        assert done.assignment.owners == dict.fromkeys(range(4), "b")
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"b": {0, 1, 2, 3}}

    def test_new_owner_gone_is_planned_again_and_still_waits(self) -> None:
        targets = {0: "a", 1: "a", 2: "c", 3: "a"}
        done = expect(step(self.closing(), members("a", "c"), targets, status("a", {0, 1, 2, 3})))
        assert done.state.state is State.CLOSING
        assert done.assignment.owners == {0: "a", 1: "a"}
        assert done.state.to_close == {"a": {2, 3}}
        assert done.state.to_start == {"c": {2}, "a": {3}}, "given back, but only after it was closed"

    def test_leaving_consumer_is_not_given_what_was_on_its_way_to_it(self) -> None:
        leaving = replace(
            members("a", "b", "c"),
            live={
                "a": Consumer("a"),
                "b": Consumer("b", leaving=True),
                "c": Consumer("c"),
            },
        )
        done = expect(
            step(self.closing(), leaving, {**HALVES, 2: "c", 3: "c"}, status("a", {0, 1}, closing={3}))
        )
        assert done.assignment.owners == {0: "a", 1: "a", 2: "c"}
        assert done.state.to_start == {"c": {2, 3}}
        assert done.state.to_close == {"a": {3}}

    def test_stuck_consumer_holds_up_only_its_own(self) -> None:
        snapshot = topic(
            {0: "a", 1: "b"}, State.CLOSING, to_start={"c": {2, 3}}, to_close={"a": {2}, "b": {3}}
        )
        done = expect(step(snapshot, members("a", "b", "c"), {}, status("b", {1})))
        assert done.assignment.owners == {0: "a", 1: "b", 3: "c"}
        assert done.state.to_close == {"a": {2}}

    def test_joined_consumer_waits_for_stable(self) -> None:
        assert step(self.closing(), members("a", "b", "c"), {0: "c", 1: "a", 2: "b", 3: "b"}) is None

    def test_vanished_partition_is_given_to_no_consumer(self) -> None:
        snapshot = replace(self.closing(), partitions=frozenset({0, 1, 2}))
        done = expect(step(snapshot, members("a", "b"), HALVES, status("a", {0, 1})))
        assert done.assignment.owners == {0: "a", 1: "a", 2: "b"}
        assert done.state.to_start == {"b": {2}}

    def test_next_owner_that_is_back_gets_its_partition(self) -> None:
        """It was away when its partitions were closed, and no other consumer subscribes to the topic."""
        free = topic({0: "a", 1: "a"}, State.STARTING, to_start={"b": {2, 3}})
        assert step(free, members("a")) is None
        done = expect(step(free, members("a", "b")))
        assert done.assignment.owners == HALVES
        assert done.state.to_start == {"b": {2, 3}}

    def test_report_from_before_a_partition_was_given_starts_nothing(self) -> None:
        """The next owner runs by its report what it is given by this write: that was by an earlier epoch."""
        answers = status("a", {0, 1}) | status("b", {2, 3})
        done = expect(step(self.closing(), members("a", "b"), HALVES, answers))
        assert done.assignment.owners == HALVES
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"b": {2, 3}}

    def test_written_progress_drops_what_already_runs(self) -> None:
        snapshot = topic({0: "a", 1: "a", 2: "b"}, State.CLOSING, to_start={"b": {2, 3}}, to_close={"a": {3}})
        statuses = status("a", {0, 1}) | status("b", {2})
        done = expect(step(snapshot, members("a", "b"), HALVES, statuses))
        assert done.state.state is State.STARTING
        assert done.state.to_start == {"b": {3}}


class TestHoldStill:
    @pytest.mark.parametrize("snapshot", [topic(HALVES), TestClosing().closing(), topic({}, None)])
    def test_no_live_consumer_is_the_status_quo(self, snapshot: TopicSnapshot) -> None:
        assert step(snapshot, members(), {}) is None
        assert step(snapshot, members(isolated=("a", "b")), {}) is None

    def test_step_asks_only_owners_and_those_that_close(self) -> None:
        snapshots = [topic(HALVES), TestClosing().closing()]
        assert consumers_to_ask(snapshots, members("a", "b", "c")) == {"a": {"t"}, "b": {"t"}}
        assert consumers_to_ask(snapshots, members("b", "c")) == {"b": {"t"}}


class TestRebalanceDelay:
    def test_missing_owner_keeps_its_partitions_while_the_delay_runs(self) -> None:
        first = expect(step(topic(HALVES), members("a"), dict.fromkeys(range(4), "a"), delay=30))
        assert first.assignment == topic(HALVES).assignment
        assert first.state.state is State.STABLE
        assert first.state.missing == {"b": NOW}
        later = topic(HALVES, missing={"b": NOW})
        assert step(later, members("a"), dict.fromkeys(range(4), "a"), delay=30, now=NOW + 29) is None
        assert Patience(Policy(30), members("a"), Replies()).next_change([later], NOW + 1) == NOW + 30

    def test_back_in_time_nothing_moves(self) -> None:
        done = expect(
            step(
                topic(HALVES, missing={"b": NOW}),
                members("a", "b"),
                HALVES,
                status("b", {2, 3}),
                delay=30,
                now=NOW + 10,
            )
        )
        assert done.state.missing == {}
        assert done.state.returned == {"b": Return(NOW + 10, 10)}
        assert done.state.state is State.STABLE
        assert done.assignment == topic(HALVES).assignment
        assert done.moves == ()

    def test_consumer_that_runs_for_a_moment_and_dies_again_is_not_held_for_without_an_end(self) -> None:
        snapshot, both, all_to_a = topic(HALVES), members("a", "b"), dict.fromkeys(range(4), "a")
        for round_ in range(3):
            dies = NOW + 12 * round_
            away = expect(step(snapshot, members("a"), all_to_a, delay=30, now=dies))
            assert away.state.missing == {"b": dies - 10 * round_}
            assert away.assignment.owners == HALVES
            back = step(after(away), both, HALVES, status("b", {2, 3}), delay=30, now=dies + 10)
            snapshot = after(expect(back))
        gone = expect(step(snapshot, members("a"), all_to_a, delay=30, now=NOW + 36))
        assert gone.state.to_close == {"b": {2, 3}}

    def test_consumer_that_has_run_for_the_delay_is_held_for_in_full(self) -> None:
        done = expect(step(self.returned(), members("a"), HALVES, delay=30, now=NOW + 30))
        assert done.state.missing == {"b": NOW + 30}
        assert done.state.returned == {}

    @pytest.mark.parametrize(
        ("membership", "heard"),
        [
            pytest.param(members("a"), Replies(doubted=frozenset({"b"})), id="its absence is doubted"),
            pytest.param(members("a"), Replies(status("b", {2, 3})), id="it answers"),
        ],
    )
    def test_earlier_absence_does_not_shorten_other_waits(
        self, membership: Membership, heard: Replies
    ) -> None:
        done = expect(step(self.returned(), membership, HALVES, heard.statuses, 30, NOW + 1, heard))
        assert done.state.missing == {"b": NOW + 1}

    @staticmethod
    def returned() -> TopicSnapshot:
        """A topic whose consumer b came back now from an absence of 29 s."""
        snapshot = topic(HALVES)
        assert snapshot.state is not None
        return replace(snapshot, state=replace(snapshot.state, returned={"b": Return(NOW, 29)}))

    def test_owner_missing_for_longer_than_the_delay_is_planned_away(self) -> None:
        all_to_a = dict.fromkeys(range(4), "a")
        first = expect(
            step(topic(HALVES, missing={"b": NOW}), members("a"), all_to_a, delay=30, now=NOW + 30)
        )
        assert first.state.to_close == {"b": {2, 3}}
        done = expect(step(after(first), members("a"), all_to_a, delay=30, now=NOW + 30.1))
        assert done.assignment.owners == dict.fromkeys(range(4), "a")
        assert done.state.missing == {}

    def test_isolation_does_not_wait(self) -> None:
        there, all_to_a = members("a", isolated=("b",)), dict.fromkeys(range(4), "a")
        first = expect(step(topic(HALVES), there, all_to_a, delay=30))
        done = expect(step(after(first), there, all_to_a, delay=30))
        assert done.assignment.owners == dict.fromkeys(range(4), "a")

    def test_delay_lets_new_partitions_start_and_nothing_else_move(self) -> None:
        targets = {0: "a", 1: "c", 2: "c", 3: "c", 4: "c"}
        snapshot = topic(HALVES, partitions=5, missing={"b": NOW})
        done = expect(step(snapshot, members("a", "c"), targets, delay=30, now=NOW + 1))
        assert done.assignment.owners == {**HALVES, 4: "c"}
        assert done.state.to_close == {}

    def test_missing_old_owner_is_not_taken_for_closed(self) -> None:
        snapshot = replace(
            TestClosing().closing(),
            state=replace(TestClosing().closing().state or TopicState(State.CLOSING), missing={"a": NOW}),
        )
        assert step(snapshot, members("b"), dict.fromkeys(range(4), "b"), delay=30, now=NOW + 5) is None
        first = expect(step(snapshot, members("b"), dict.fromkeys(range(4), "b"), delay=30, now=NOW + 31))
        assert first.assignment.owners == {2: "b", 3: "b"}
        done = expect(step(after(first), members("b"), dict.fromkeys(range(4), "b"), delay=30, now=NOW + 32))
        assert done.assignment.owners == dict.fromkeys(range(4), "b")


def test_nodes_may_be_removed_once_they_name_no_consumer() -> None:
    assert may_be_removed(replace(topic({}), assignment=None))
    assert may_be_removed(topic({}, None))
    assert may_be_removed(topic({}))
    for named in (
        topic({0: "a"}, None),
        topic({0: "a"}),
        topic({}, to_start={"a": {0}}),
        topic({}, to_close={"a": {0}}),
    ):
        assert not may_be_removed(named)
