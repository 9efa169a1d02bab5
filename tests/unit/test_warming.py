"""The gate after every assignor, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from pydantic import ValidationError

from muster.core.assignors import AssignorError, PlanningContext
from muster.core.assignors.co_partitioned import CoPartitioned
from muster.core.assignors.load_aware import LoadAware
from muster.core.assignors.sticky import Sticky
from muster.core.copies import Copies, ShardCopy
from muster.core.model import Consumer, Owners, State, TopicAssignment, TopicSnapshot, TopicState
from muster.core.planner import Plan, propose
from muster.core.warming import Gate
from muster.settings.assignor_choice import load_chosen
from tests.support.runs import cluster

WARM, COLD = ShardCopy(100_000, 100_000), ShardCopy(10, 100_000, followed=True)


class To:
    """An assignor that wants all partitions with one consumer."""

    name = "to"

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer

    def assign(self, topics: Mapping[str, frozenset[int]], *_: object) -> dict[str, dict[int, str]]:
        return {topic: dict.fromkeys(partitions, self.consumer) for topic, partitions in topics.items()}


def topic(
    owners: Owners,
    warm_ups: Owners | None = None,
    standbys: Mapping[int, tuple[str, ...]] | None = None,
    name: str = "t",
) -> TopicSnapshot:
    node = TopicAssignment("k:1", "g", owners, 5, standbys or {}, warm_ups=warm_ups or {})
    return TopicSnapshot(name, frozenset(owners), node, 1, TopicState(State.STABLE, epoch=5), 1)


def planned(
    assignor: object,
    snapshots: list[TopicSnapshot],
    copies: Mapping[str, Copies | None],
    live: str = "abc",
    context: PlanningContext | None = None,
    **more: object,
) -> Plan:
    consumers = {c: Consumer(c) for c in live}
    context = context or PlanningContext()
    found = propose(snapshots, consumers, assignor, context, lambda name: name != "v")  # type: ignore[arg-type]
    settings = {"copies": copies, "now": 1000.0, **more}
    return found.plan(Gate(**settings))  # type: ignore[arg-type]


def test_cold_target_warms_up_first() -> None:
    found = planned(To("b"), [topic(dict.fromkeys(range(4), "a"))], {"b": {"t": {3: WARM, 0: COLD}}})
    assert found.owners == {"t": {0: "a", 1: "a", 2: "a", 3: "b"}}
    assert found.warm_ups == {"t": {0: "b", 1: "b"}}, "two at once"
    assert found.wanted == {"t": dict.fromkeys(range(4), "b")}


def test_topic_without_state_moves_at_once() -> None:
    found = planned(To("b"), [topic({0: "a"}, name="v")], {})
    assert (found.owners, found.warm_ups) == ({"v": {0: "b"}}, {})


def test_target_that_reports_no_stores_is_moved_to() -> None:
    assert planned(To("b"), [topic({0: "a"})], {"b": None}).owners == {"t": {0: "b"}}


def test_target_that_does_not_answer_counts_as_cold() -> None:
    found = planned(To("b"), [topic({0: "a"})], {})
    assert (found.owners, found.warm_ups) == ({"t": {0: "a"}}, {"t": {0: "b"}})


@pytest.mark.parametrize("other", ["a", "c"])
def test_warm_up_under_way_stays(other: str) -> None:
    there = topic({0: "a", 1: "a"}, {0: "b"})
    found = planned(To(other), [there], {"b": {"t": {0: COLD}}, "c": {"t": {0: WARM, 1: WARM}}})
    assert found.owners["t"][0] == "a"
    assert found.warm_ups["t"][0] == "b"
    assert found.owners["t"][1] == other


@pytest.mark.parametrize(("still", "begun"), [(599.0, {0: "b"}), (600.0, {0: "b", 1: "b"})])
def test_stalled_warm_up_stays_and_gives_its_place(still: float, begun: Owners) -> None:
    there = topic({0: "a", 1: "a", 2: "a"}, {0: "b"})
    copies: Mapping[str, Copies] = {"b": {"t": {0: replace(COLD, still=still)}}}
    found = planned(To("b"), [there], copies, most=1)
    assert found.warm_ups == {"t": begun}
    assert found.owners == {"t": dict.fromkeys(range(3), "a")}
    assert [(each.tp, each.consumer) for each in found.stalled] == [(("t", 0), "b")] * (len(begun) - 1)


def test_warm_store_is_never_stalled() -> None:
    there = topic({0: "a"}, {0: "b"})
    copy = ShardCopy(99_000, 100_000, followed=True, still=900.0)
    found = planned(To("b"), [there], {"b": {"t": {0: copy}}})
    assert (found.owners, found.stalled) == ({"t": {0: "b"}}, ())


def test_finished_warm_up_moves_or_goes() -> None:
    there = topic({0: "a"}, {0: "b"})
    copies: Mapping[str, Copies] = {"b": {"t": {0: WARM}}}
    assert planned(To("b"), [there], copies).owners == {"t": {0: "b"}}
    found = planned(To("a"), [there], copies)
    assert (found.owners, found.warm_ups) == ({"t": {0: "a"}}, {})


def test_death_waits_for_nothing_and_prefers_a_warm_standby() -> None:
    there = topic({0: "dead", 1: "dead"}, standbys={0: ("b", "c"), 1: ("b", "c")})
    found = planned(To("a"), [there], {"c": {"t": {0: WARM}}, "b": {"t": {0: COLD}}})
    assert found.owners == {"t": {0: "c", 1: "a"}}


def test_consumer_that_leaves_waits_for_nothing() -> None:
    consumers = {"a": Consumer("a", leaving=True), "b": Consumer("b")}
    found = propose([topic({0: "a"})], consumers, To("b"), has_state=lambda _: True).plan()
    assert found.owners == {"t": {0: "b"}}


@pytest.mark.parametrize(("at", "owner"), [(500.0, "a"), (400.0, "b")])
def test_drain_waits_until_the_time_is_over(at: float, owner: str) -> None:
    found = planned(
        To("b"),
        [topic({0: "a"}, {0: "b"})],
        {"b": {"t": {0: COLD}}},
        context=PlanningContext(drained=frozenset("a")),
        asked_at=lambda _tp, source, _target: at if source == "a" else None,
    )
    assert found.owners == {"t": {0: owner}}


def test_drain_goes_before_balance() -> None:
    found = planned(
        To("c"),
        [topic({0: "a", 1: "a", 2: "b"})],
        {},
        most=1,
        asked_at=lambda _tp, source, _target: 900.0 if source == "b" else None,
    )
    assert found.warm_ups == {"t": {2: "c"}}


def test_partitions_of_a_task_wait_for_each_other() -> None:
    both = [topic({0: "a"}), topic({0: "a"}, name="u")]
    copies: Mapping[str, Copies] = {"b": {"t": {0: WARM}}}
    co_partitioned = CoPartitioned(groups=[["t", "u"]])
    found = planned(co_partitioned, both, copies, context=PlanningContext(drained=frozenset("ac")))
    assert found.owners == {"t": {0: "a"}, "u": {0: "a"}}
    assert found.warm_ups == {"t": {0: "b"}, "u": {0: "b"}}
    copies = {"b": {"t": {0: WARM}, "u": {0: WARM}}}
    found = planned(co_partitioned, both, copies, context=PlanningContext(drained=frozenset("ac")))
    assert found.owners == {"t": {0: "b"}, "u": {0: "b"}}


def test_topic_on_its_way_keeps_its_warm_ups() -> None:
    there = topic({0: "a", 1: "a"}, {0: "b"})
    there = replace(there, state=TopicState(State.STARTING, {"a": frozenset({1})}, epoch=5))
    found = planned(To("b"), [there], {"b": {"t": {0: COLD}}})
    assert found.warm_ups == {"t": {0: "b"}}, "and none begins"


def test_consumers_are_asked_where_it_matters() -> None:
    consumers = {c: Consumer(c) for c in "abcd"}
    snapshots = [topic({0: "a", 1: "b"}, {1: "c"}), topic({0: "a"}, name="v")]
    found = propose(snapshots, consumers, To("a"), has_state=lambda name: name == "t")
    assert found.concerned() == {"a", "c"}
    orphan = [topic({0: "gone"}, standbys={0: ("d",)})]
    assert propose(orphan, consumers, To("a"), has_state=lambda _: True).concerned() == {"a", "d"}


@pytest.mark.parametrize("assignor", [Sticky(standbys=1), LoadAware(standbys=1)])
def test_standby_is_promoted_though_it_has_more(assignor: Sticky | LoadAware) -> None:
    consumers = {c: Consumer(c) for c in "bc"}
    there = topic({0: "gone", 1: "b", 2: "b", 3: "c"}, standbys={0: ("b",)}, name="v")
    found = propose([there], consumers, assignor).plan()
    assert found.owners["v"][0] == "b"
    assert found.standbys["v"].keys() == {0, 1, 2, 3}
    assert found.standbys["v"][3] == ("b",)


@pytest.mark.parametrize("setting", [{"max_warm_ups": 0}, {"warm_up_timeout": 0}, {"warm_up_timeout": "0s"}])
def test_settings_that_cannot_work_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="greater than"):
        cluster(setting)


def test_standbys_without_room_are_refused() -> None:
    crowded = {"assignor": {"name": "sticky", "options": {"standbys": 2}}}
    with pytest.raises(ValidationError, match="'standbys: 2' has no room"):
        cluster({**crowded, "consumers": {"handler": "a.b", "state": ["t"], "count": 2}})
    there = cluster({"consumers": {"handler": "a.b", "state": ["t"], "count": 2}})
    with pytest.raises(AssignorError, match="'standbys: 2' has no room"):
        load_chosen(there, "sticky", {"standbys": 2})
    assert load_chosen(there, "sticky", {"standbys": 1}).name == "sticky"
