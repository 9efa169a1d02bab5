"""Standbys from the plan to the topic node: state machine, planner, coordinator and a dying coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from muster.core import wire
from muster.core.assignors import PlanningContext, load_assignor
from muster.core.model import (
    Consumer,
    Membership,
    PartitionStandbys,
    State,
    TopicSnapshot,
    Transition,
)
from muster.core.patience import Patience, Policy, Replies
from muster.core.planner import plan
from muster.core.state_machine import advance
from tests.support.runs import CHANGES, Change, Topics, begin, coordinator, play, settle
from tests.support.simulated import SimulatedCluster, SimulatedStore
from tests.support.snapshots import HALVES, NOW, expect, members, status, topic
from tests.support.standing_by import ONE_STANDBY

STANDBYS = {0: ("b",), 1: ("b", "c"), 2: ("c",)}


def standing(snapshot: TopicSnapshot, standbys: Mapping[int, tuple[str, ...]]) -> TopicSnapshot:
    assert snapshot.assignment is not None
    return replace(snapshot, assignment=replace(snapshot.assignment, standbys=standbys))


def step(
    snapshot: TopicSnapshot,
    membership: Membership,
    targets: Mapping[int, str],
    standbys: PartitionStandbys,
    delay: float = 0.0,
    now: float = NOW,
    **statuses: Any,
) -> Transition | None:
    patience = Patience(Policy(delay), membership, Replies(statuses.get("statuses", {})))
    return advance(snapshot, patience, targets, now, standbys=standbys)


def written(done: Transition) -> TopicSnapshot:
    """The topic as the next coordinator run finds it."""
    return replace(done.before, assignment=done.assignment, state=done.state)


class TestStateMachine:
    def test_standbys_are_written_with_the_first_owners(self) -> None:
        nothing = {c: s for name in "abc" for c, s in status(name, epoch=0).items()}
        done = expect(
            step(topic({}, None, epoch=0), members("a", "b", "c"), HALVES, STANDBYS, statuses=nothing)
        )
        assert done.assignment.owners == HALVES
        assert done.assignment.standbys == STANDBYS

    def test_a_change_of_standbys_alone_leaves_state_and_epoch_as_they_are(self) -> None:
        before = topic(HALVES)
        done = expect(step(before, members("a", "b", "c"), HALVES, STANDBYS))
        assert done.assignment == replace(before.assignment, standbys=STANDBYS)
        assert done.state == before.state
        assert done.state.state is State.STABLE
        assert done.moves == ()
        assert done.reason == "standbys changed"

    def test_standbys_that_stay_are_not_written_again(self) -> None:
        before = standing(topic(HALVES), STANDBYS)
        assert step(before, members("a", "b", "c"), HALVES, STANDBYS) is None

    def test_standbys_are_taken_out_when_none_are_planned(self) -> None:
        done = expect(step(standing(topic(HALVES), STANDBYS), members("a", "b", "c"), HALVES, {}))
        assert done.assignment.standbys == {}
        assert done.reason == "standbys changed"

    @pytest.mark.parametrize("state", [State.STARTING, State.CLOSING])
    def test_standbys_are_written_in_mid_rebalance_without_touching_it(self, state: State) -> None:
        before = topic(
            {0: "a", 1: "a", 2: "b"},
            state,
            to_start={"c": {3}},
            to_close={"b": {3}} if state is State.CLOSING else {},
        )
        if state is State.STARTING:
            before = topic({0: "a", 1: "a", 2: "b", 3: "c"}, state, to_start={"c": {3}})
        targets = {0: "a", 1: "a", 2: "b", 3: "c"}
        done = expect(step(before, members("a", "b", "c"), targets, {0: ("b",), 3: ("c", "a")}))
        assert done.state == before.state
        assert done.assignment.owners == before.assignment.owners if before.assignment else False
        assert done.assignment.standbys == {0: ("b",), 3: ("a",)}, "c is to own 3 itself"

    def test_promotion_and_new_standbys_are_written_together(self) -> None:
        before = standing(topic(HALVES), {0: ("b",), 1: ("c",)})
        targets, standbys = {0: "b", 1: "c", 2: "b", 3: "b"}, {0: ("c",), 1: ("b",), 2: ("c",)}
        taken = expect(step(before, members("b", "c"), targets, standbys))
        assert taken.state.state is State.CLOSING
        assert taken.state.to_start == {"b": frozenset({0}), "c": frozenset({1})}
        assert taken.assignment.standbys == standbys
        assert {move.reason for move in taken.moves} == {"consumer a left, a standby takes over"}
        given = expect(step(written(taken), members("b", "c"), targets, standbys))
        assert given.state.state is State.STARTING
        assert given.assignment.owners == targets
        assert given.assignment.standbys == standbys

    def test_takeover_without_standing_by_is_no_promotion(self) -> None:
        done = expect(step(topic(HALVES), members("b", "c"), {0: "c", 1: "c", 2: "b", 3: "b"}, {0: ("b",)}))
        assert {move.reason for move in done.moves} == {"consumer a left"}

    def test_dead_unknown_and_owning_standbys_are_never_written(self) -> None:
        planned = {0: ("gone", "a", "b"), 1: ("gone",), 9: ("b",)}
        done = expect(step(topic(HALVES), members("a", "b"), HALVES, planned))
        assert done.assignment.standbys == {0: ("b",)}

    def test_isolated_standby_is_taken_out(self) -> None:
        before = standing(topic(HALVES), STANDBYS)
        done = expect(step(before, members("a", "b", isolated=("c",)), HALVES, STANDBYS))
        assert done.assignment.standbys == {0: ("b",), 1: ("b",)}

    def test_stay_while_a_missing_owner_is_waited_for(self) -> None:
        """The plan has promoted b already, so it no longer names it as a standby."""
        before = standing(topic(HALVES), STANDBYS)
        planned = {2: ("c",)}
        targets = {0: "b", 1: "b", 2: "b", 3: "b"}
        waiting = expect(step(before, members("b", "c"), targets, planned, delay=30.0))
        assert waiting.assignment.standbys == STANDBYS
        assert waiting.state.missing == {"a": NOW}
        later = topic(HALVES, missing={"a": NOW})
        taken = expect(step(standing(later, STANDBYS), members("b", "c"), targets, planned, 30.0, NOW + 31))
        assert taken.assignment.standbys == planned
        over = expect(step(written(taken), members("b", "c"), targets, planned, 30.0, NOW + 31))
        assert over.assignment.owners == targets
        assert over.assignment.standbys == planned

    def test_a_missing_standby_keeps_its_place_for_as_long(self) -> None:
        before = standing(topic(HALVES), STANDBYS)
        planned = {0: ("b",), 1: ("b",), 2: ("a",)}
        waiting = expect(step(before, members("a", "b"), HALVES, planned, delay=30.0))
        assert waiting.assignment == before.assignment
        assert waiting.state.missing == {"c": NOW}
        snapshot = standing(topic(HALVES, missing={"c": NOW}), STANDBYS)
        assert step(snapshot, members("a", "b"), HALVES, planned, 30.0, NOW + 1) is None
        back = expect(step(snapshot, members("a", "b", "c"), HALVES, STANDBYS, 30.0, NOW + 2))
        assert back.assignment == before.assignment
        assert back.state.missing == {}
        over = expect(step(snapshot, members("a", "b"), HALVES, planned, 30.0, NOW + 31))
        assert over.assignment.standbys == planned
        assert over.state.missing == {}

    def test_missing_standbys_are_each_waited_for_once(self) -> None:
        """One that was given up does not come back into force because another one is still waited for."""
        snapshot = standing(topic(HALVES, missing={"x": NOW - 31, "y": NOW}), {0: ("x", "y")})
        done = expect(step(snapshot, members("a", "b"), HALVES, {}, delay=30.0))
        assert done.assignment.standbys == {0: ("y",)}
        assert done.state.missing == {"y": NOW}

    def test_partition_that_vanished_has_none(self) -> None:
        before = standing(topic(HALVES, partitions=2), STANDBYS)
        done = expect(step(before, members("a", "b", "c"), {0: "a", 1: "a"}, {0: ("b",), 1: ("b",)}))
        assert done.assignment.standbys.keys() == {0, 1}

    def test_reason_of_a_step_that_moves_something_is_that_of_the_state(self) -> None:
        before = topic(HALVES, State.STARTING, to_start={"a": {0}})
        done = expect(
            step(before, members("a", "b", "c"), HALVES, STANDBYS, statuses=status("a", running={0, 1}))
        )
        assert done.state.state is State.STABLE
        assert done.reason == done.state.reason == "before"


class TestPlan:
    CONSUMERS: ClassVar[Mapping[str, Consumer]] = {name: Consumer(name) for name in "abc"}

    def test_plan_has_no_standbys_without_an_assignor_that_names_them(self) -> None:
        made = plan([topic(HALVES)], self.CONSUMERS, load_assignor("sticky"))
        assert made.owners.keys() == {"t"}
        assert made.owners["t"].keys() == HALVES.keys()
        assert made.standbys == {}

    def test_standbys_of_the_topic_nodes_are_promoted(self) -> None:
        """The planner itself hands on what stands in the snapshots, so every caller plans with it."""
        before = standing(topic(dict.fromkeys(range(4), "gone")), {0: ("c",), 1: ("b",), 2: ("c",)})
        made = plan([before], self.CONSUMERS, load_assignor("co-partitioned", {"standbys": 1}))
        assert [made.owners["t"][p] for p in range(3)] == ["c", "b", "c"]
        assert all(made.owners["t"][p] not in made.standbys["t"][p] for p in range(4))

    def test_excluded_consumer_neither_owns_nor_stands_by(self) -> None:
        context = PlanningContext(exclusions={"c": frozenset("t")})
        made = plan([topic({}, partitions=4)], self.CONSUMERS, load_assignor(ONE_STANDBY), context)
        assert set(made.owners["t"].values()) == {"a", "b"}
        assert {name for each in made.standbys["t"].values() for name in each} == {"a", "b"}

    def test_a_topic_in_mid_rebalance_holds_its_group_still(self) -> None:
        everything = dict.fromkeys(range(4), "a")
        other = replace(topic(everything, State.STARTING, to_start={"a": {0}}), topic="u")
        assignor = load_assignor("co-partitioned")
        assert plan([topic(everything), other], self.CONSUMERS, assignor).owners == {
            "t": everything,
            "u": everything,
        }
        settled = plan([topic(everything), replace(topic(everything), topic="u")], self.CONSUMERS, assignor)
        assert settled.owners["t"] == settled.owners["u"] != everything


def standbys(store: SimulatedStore, name: str) -> dict[int, tuple[str, ...]]:
    assignment = wire.parse_assignment(store.nodes[name].data, name)
    assert assignment is not None
    return dict(assignment.standbys)


class TestCoordinator:
    def test_standby_is_promoted_and_others_stand_by_again(self) -> None:
        world, topics = SimulatedCluster(), Topics()
        begin(world, topics)
        settle(world, topics, ONE_STANDBY)
        before, ready = world.owners("t"), standbys(world.store, "t")
        assert {n: world.owners("u")[n] for n in range(5)} == {n: before[n] for n in range(5)}
        world.consumers["b"].alive = False
        one = coordinator(world, topics, ONE_STANDBY)
        first = one.advance(120).changes[:2]
        assert {change.reason for change in first} == {"consumer b left, a standby takes over"}
        promoted = {m.partition: m.target for change in first for m in change.moves if change.topic == "t"}
        assert promoted == {n: ready[n][0] for n, owner in before.items() if owner == "b"}
        settle(world, topics, ONE_STANDBY)
        for number, names in standbys(world.store, "t").items():
            assert len(names) == 1
            assert set(names) <= {"a", "c"} - {world.owners("t")[number]}

    def test_change_of_standbys_alone_is_reported_as_such_and_written_once(self) -> None:
        world, topics = SimulatedCluster(), Topics()
        begin(world, topics)
        settle(world, topics, "sticky")
        epochs = {name: wire.parse_state(node.data, name).epoch for name, node in world.store.states.items()}
        states = {name: node.data for name, node in world.store.states.items()}
        owners = {name: world.owners(name) for name in "tu"}

        class KeepsOwners(type(load_assignor(ONE_STANDBY))):  # type: ignore[misc]
            def assign(self, *_: object, **__: object) -> dict[str, dict[int, str]]:
                return owners

        one = coordinator(world, topics, ONE_STANDBY)
        one.assignor = KeepsOwners()
        told = one.compute_assignment()
        assert told.needed
        assert told.moves == 0
        assert told.topics == dict.fromkeys("tu", "Stable -> Stable: standbys changed")
        writes = world.store.writes
        report = one.advance(120)
        assert world.store.writes == writes + 1
        assert [str(change) for change in report.changes] == [
            f"topic {name}: Stable -> Stable (standbys changed)" for name in "tu"
        ]
        assert {name: node.data for name, node in world.store.states.items()} == states
        assert {n: wire.parse_state(node.data, n).epoch for n, node in world.store.states.items()} == epochs
        assert standbys(world.store, "t")
        assert not one.compute_assignment().needed


def play_with_standbys(
    changes: list[Change], kill: Callable[[SimulatedCluster], None] | None
) -> tuple[dict[str, object], int, int]:
    store = SimulatedStore()
    owners, writes, died = play(changes, ONE_STANDBY, kill, store)
    return (
        {**owners, "standbys": [standbys(store, name) for name in "tu" if name in store.nodes]},
        writes,
        died,
    )


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_interrupted_write_leads_to_the_same_owners_and_standbys(changes: list[Change]) -> None:
    expected, writes, _ = play_with_standbys(changes, None)
    assert writes > 0
    for number in range(1, writes + 1):
        for moment in ("kill_before", "kill_after"):
            found, _, died = play_with_standbys(
                changes, lambda world, m=moment, n=number: setattr(world.store, m, n)
            )
            assert died == 1, f"the coordinator was to die at write {number}"
            assert found == expected, f"{moment} {number} of {writes}"


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_group_is_whole_again_where_a_step_does_not_fit_into_one_write(changes: list[Change]) -> None:
    _, writes, _ = play(changes, ONE_STANDBY, None, SimulatedStore(group=1))
    for number in range(1, writes + 1):
        owners, _, died = play(
            changes,
            ONE_STANDBY,
            lambda world, n=number: setattr(world.store, "kill_after", n),
            SimulatedStore(group=1),
        )
        assert died == 1
        if "u" in owners:  # it goes where it is unsubscribed
            assert {n: owners["t"][n] for n in owners["u"]} == owners["u"]
