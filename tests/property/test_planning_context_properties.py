"""What holds for every assignor under pins, exclusions, racks and loads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.assignors import (
    BUILT_IN,
    PlanningContext,
    impossible_pins,
    load_assignor,
    run_assignor,
)
from muster.core.model import Assignment, Consumer
from tests.property.planning_context_cases import Situation, reordered, situations
from tests.support.assignor_cases import Case, large_cases, small_cases, tangled_cases
from tests.support.examples import examples

EVERY = pytest.mark.parametrize("name", sorted(BUILT_IN))
CASES = small_cases() | tangled_cases() | large_cases()

some = examples(60)


class FirstCome:
    """An assignor of a user, which knows no planning context."""

    name = "first-come"

    def assign(self, topics: Any, consumers: Any, previous: Any) -> Any:
        takers = {t: [c for c in sorted(consumers) if consumers[c].subscribes(t)] for t in topics}
        return {t: dict.fromkeys(topics[t], takers[t][0]) for t in topics if takers[t]}


def assign(name: str, situation: Situation) -> Assignment:
    case = situation.case
    assignor = FirstCome() if name == "first-come" else load_assignor(name)
    return run_assignor(assignor, case.topics, case.consumers, case.previous, situation.context)


def plain(case: Case) -> Situation:
    return Situation(case, PlanningContext())


@pytest.mark.parametrize("name", [*sorted(BUILT_IN), "first-come"])
@some
@given(situation=situations(CASES))
def test_partitions_are_with_eligible_consumers_and_pins_are_obeyed(name: str, situation: Situation) -> None:
    assignment = assign(name, situation)
    for topic, partitions in situation.case.topics.items():
        takers = situation.takers(topic)
        assert assignment.get(topic, {}).keys() == (partitions if takers else set())
        assert set(assignment.get(topic, {}).values()) <= takers
    assert assignment.keys() <= situation.case.topics.keys()
    pins = situation.obeyable_pins()
    assert {place: assignment[place[0]][place[1]] for place in pins} == pins


@EVERY
@some
@given(situation=situations(CASES), seed=st.integers(0, 2**32))
def test_order_of_mappings_plays_no_part(name: str, situation: Situation, seed: int) -> None:
    assert assign(name, situation) == assign(name, reordered(situation, seed))


@EVERY
@some
@given(situation=situations(CASES, loads=False))
def test_a_second_look_changes_nothing(name: str, situation: Situation) -> None:
    first = assign(name, situation)
    again = replace(situation, case=replace(situation.case, previous=first))
    assert assign(name, again) == first


@EVERY
@some
@given(case=CASES)
def test_irrelevant_planning_context_changes_nothing(name: str, case: Case) -> None:
    consumers = {c: replace(v, zone="r1") for c, v in case.consumers.items()}
    case = replace(case, consumers=consumers)
    nothing = PlanningContext(
        pins={t: dict.fromkeys(partitions, "nobody") for t, partitions in case.topics.items()}
        | {"x": {0: "c0"}},
        exclusions={"nobody": frozenset(case.topics), "c0": frozenset({"x"})},
        racks={t: dict.fromkeys(partitions, "r9") for t, partitions in case.topics.items()},
        loads={"x": {0: 1.0}},
    )
    assert assign(name, Situation(case, nothing)) == assign(name, plain(case))


@EVERY
@some
@given(case=CASES, exclude=st.integers(0, 2**32))
def test_exclusion_equals_no_subscription(name: str, case: Case, exclude: int) -> None:
    chosen = sorted(case.consumers)[exclude % len(case.consumers)]
    kept_from = frozenset(t for n, t in enumerate(sorted(case.topics)) if exclude >> n & 1)
    wanted = (
        frozenset(case.topics) if case.consumers[chosen].topics is None else case.consumers[chosen].topics
    )
    unsubscribed = case.joined_by(replace(case.consumers[chosen], topics=wanted - kept_from))
    situation = Situation(case, PlanningContext(exclusions={chosen: kept_from}))
    assert assign(name, situation) == assign(name, plain(unsubscribed))


@some
@given(situation=situations(CASES))
def test_each_pin_is_obeyed_or_reported(situation: Situation) -> None:
    case, context = situation.case, situation.context
    told = impossible_pins(context.pins, case.topics, case.consumers, context.exclusions)
    places = [(pin.topic, pin.partition) for pin in told]
    assert places == sorted(places)
    assert all(pin.consumer == context.pins[pin.topic][pin.partition] for pin in told)
    every = {(t, p) for t, owners in context.pins.items() for p in owners}
    assert set(places) == every - situation.obeyable_pins().keys()


@EVERY
@some
@given(case=large_cases(mixed=False, weighted=False))
def test_pins_of_every_partition_leave_nothing_to_decide(name: str, case: Case) -> None:
    names = sorted(case.consumers)
    pins = {t: {p: names[p % len(names)] for p in partitions} for t, partitions in case.topics.items()}
    assignment = assign(name, Situation(case, PlanningContext(pins=pins)))
    assert {t: dict(owners) for t, owners in assignment.items() if owners} == {
        t: owners for t, owners in pins.items() if owners
    }


@EVERY
def test_1024_consumers_and_256_partitions_under_everything_at_once(name: str) -> None:
    topics = {f"t{i}": frozenset(range(256)) for i in range(4)}
    zones = ("r1", "r2", "r3")
    names = [f"c{i:04}" for i in range(1024)]
    consumers = {c: Consumer(c, zone=zones[i % 3], weight=1 + i % 2) for i, c in enumerate(names)}
    context = PlanningContext(
        pins={"t0": {p: names[p * 3] for p in range(0, 256, 5)}},
        exclusions={names[1]: frozenset({"t1"}), names[2]: frozenset(topics)},
        racks={t: {p: zones[p % 3] for p in range(256)} for t in topics},
        loads={t: {p: float(p % 7) for p in range(256)} for t in topics},
    )
    situation = Situation(Case(topics, consumers, {}), context)
    assignment = assign(name, situation)
    owners = Counter(owner for of_topic in assignment.values() for owner in of_topic.values())
    assert owners.total() == 1024
    assert owners[names[2]] == 0
    assert names[1] not in assignment["t1"].values()
    assert all(assignment["t0"][p] == names[p * 3] for p in range(0, 256, 5) if p * 3 != 2)
