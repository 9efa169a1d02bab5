"""Failover by example."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.assignors import AssignorError, PlanningContext, load_assignor, run_assignor
from muster.core.model import Assignment, Consumer

FOUR = {"t": frozenset(range(4))}


def live(**priorities: int) -> dict[str, Consumer]:
    return {name: Consumer(name, priority=priority) for name, priority in priorities.items()}


def assign(
    consumers: dict[str, Consumer], previous: Assignment | None = None, **options: bool
) -> dict[int, str]:
    assignment = run_assignor(load_assignor("failover", options), FOUR, consumers, previous or {})
    return dict(assignment["t"])


def test_highest_priority_gets_everything() -> None:
    assert assign(live(a=1, b=5, c=3)) == dict.fromkeys(range(4), "b")


def test_a_priority_below_the_normal_one_is_a_reserve() -> None:
    assert assign(live(a=-1, b=0)) == dict.fromkeys(range(4), "b")


def test_equals_share_by_weight_and_the_next_level_gets_nothing() -> None:
    consumers = live(a=2, b=2, c=1)
    assert sorted(assign(consumers).values()) == ["a", "a", "b", "b"]
    consumers["a"] = replace(consumers["a"], weight=3.0)
    assert sorted(assign(consumers).values()) == ["a", "a", "a", "b"]


def test_level_is_served_by_any_one_of_its_consumers() -> None:
    before = assign(live(a=2, b=2, c=1))
    after = assign(live(b=2, c=1), {"t": before})
    assert set(after.values()) == {"b"}


def test_next_level_takes_over_and_gives_back() -> None:
    without = assign(live(b=1, c=0), {"t": dict.fromkeys(range(4), "a")})
    assert set(without.values()) == {"b"}
    assert set(assign(live(a=2, b=1, c=0), {"t": without}).values()) == {"a"}


def test_returning_consumer_gets_back_no_more_than_it_has_to() -> None:
    """Who was in the level all the time keeps what it had."""
    before = {"t": {0: "a", 1: "a", 2: "b", 3: "low"}}
    assert assign(live(a=1, b=1, low=0), before) == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_partition_stays_until_its_holder_leaves_without_give_back() -> None:
    taken_over = {"t": dict.fromkeys(range(4), "b")}
    assert assign(live(a=2, b=1, c=1), taken_over, give_back=False) == taken_over["t"]
    assert set(assign(live(a=2, c=1), taken_over, give_back=False).values()) == {"a"}


def test_new_and_orphaned_partitions_go_to_the_highest_level_without_give_back() -> None:
    before = {"t": {0: "b", 1: "gone"}}
    assert assign(live(a=2, b=1), before, give_back=False) == {0: "b", 1: "a", 2: "a", 3: "a"}


def test_the_level_counts_among_the_subscribers_of_each_topic() -> None:
    consumers = {
        "a": Consumer("a", priority=9, topics=frozenset({"t"})),
        "b": Consumer("b", priority=1),
    }
    topics = {"t": frozenset({0, 1}), "u": frozenset({0})}
    assert run_assignor(load_assignor("failover"), topics, consumers, {}) == {
        "t": {0: "a", 1: "a"},
        "u": {0: "b"},
    }


@pytest.mark.parametrize("wrong", ["no", 0, None])
def test_wrong_option_is_refused(wrong: object) -> None:
    with pytest.raises(AssignorError, match=r"'failover': options .* give_back must be true or false"):
        load_assignor("failover", {"give_back": wrong})


def test_unknown_option_is_refused() -> None:
    with pytest.raises(AssignorError, match="it takes the options give_back"):
        load_assignor("failover", {"giveback": True})


def test_failover_ignores_what_it_does_not_know() -> None:
    context = PlanningContext(standbys={"t": {0: ("b",)}}, unsettled=frozenset({"t"}))
    assignment = run_assignor(load_assignor("failover"), FOUR, live(a=1, b=0), {}, context)
    assert set(assignment["t"].values()) == {"a"}


def test_a_pin_counts_in_its_level_and_is_obeyed_below_it() -> None:
    pins = {"t": {0: "b", 1: "low"}}
    found = run_assignor(
        load_assignor("failover"), FOUR, live(a=1, b=1, low=0), {}, PlanningContext(pins=pins)
    )
    assert found["t"][0] == "b"
    assert found["t"][1] == "low"
    assert sorted(found["t"].values()) in (["a", "a", "b", "low"], ["a", "b", "b", "low"])


def test_a_pin_wins_over_not_giving_back() -> None:
    before = {"t": dict.fromkeys(range(4), "low")}
    found = run_assignor(
        load_assignor("failover", {"give_back": False}),
        FOUR,
        live(a=1, low=0),
        before,
        PlanningContext(pins={"t": {2: "a"}}),
    )
    assert found["t"] == {0: "low", 1: "low", 2: "a", 3: "low"}


def test_zones_play_their_part_within_the_level() -> None:
    consumers = {
        name: replace(consumer, zone=zone)
        for (name, consumer), zone in zip(live(a=1, b=1, low=0).items(), "xyx", strict=True)
    }
    racks = {"t": {0: "y", 1: "y", 2: "x", 3: "x"}}
    found = run_assignor(load_assignor("failover"), FOUR, consumers, {}, PlanningContext(racks=racks))
    assert found["t"] == {0: "b", 1: "b", 2: "a", 3: "a"}
