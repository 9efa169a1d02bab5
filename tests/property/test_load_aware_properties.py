"""What load-aware promises: measured load within the tolerance as far as the budget goes, and otherwise sticky."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.core.assignors import PlanningContext, load_assignor, run_assignor
from muster.core.assignors.load_aware import partition_loads
from muster.core.model import Assignment, Consumer
from tests.property.planning_context_cases import Situation, situations, with_any_weight
from tests.support.assignor_cases import (
    Case,
    changed,
    large_cases,
    loads,
    may_stay,
    moves,
    small_cases,
)
from tests.support.examples import examples

some = examples(50)
many = examples(200)

CASES = small_cases() | large_cases()
EVEN = small_cases(mixed=False) | large_cases(mixed=False)
ENOUGH = 10**6


def load_aware(situation: Situation, **options: Any) -> Assignment:
    case = situation.case
    assignor = load_assignor("load-aware", options)
    return run_assignor(assignor, case.topics, case.consumers, case.previous, situation.context)


def measured(cases: st.SearchStrategy[Case], **further: bool) -> st.SearchStrategy[Situation]:
    """Every partition's load is known: most carry little, a few very much."""

    @st.composite
    def with_loads(draw: st.DrawFn) -> Situation:
        situation = draw(situations(cases, **{"pins": False, "exclusions": False, "racks": False, **further}))
        random_ = random.Random(draw(st.integers(0, 2**32)))
        loads = {
            t: {p: random_.choice([0.0, random_.random(), random_.paretovariate(1.2)]) for p in sorted(ps)}
            for t, ps in situation.case.topics.items()
        }
        return replace(situation, context=replace(situation.context, loads=loads))

    return with_loads()


def counts_of(situation: Situation) -> Mapping[str, Mapping[int, int]]:
    topics = {t: p for t, p in situation.case.topics.items() if situation.takers(t)}
    found = partition_loads(situation.context.loads, topics)
    assert found is not None
    return found.counts


def carried(situation: Situation, assignment: Assignment) -> tuple[dict[str, float], float]:
    """What each consumer carries for its weight, and the average over those that may take anything."""
    counts = counts_of(situation)
    weights = with_any_weight(situation.case)
    load = dict.fromkeys(situation.case.consumers, 0)
    for topic, owners in assignment.items():
        for partition, consumer in owners.items():
            load[consumer] += counts[topic][partition]
    taking = set[str]().union(*map(situation.takers, situation.case.topics))
    return {c: load[c] / weights[c] for c in load}, sum(load.values()) / sum(weights[c] for c in taking)


def known(situation: Situation) -> bool:
    """Whether there is load on a partition that a consumer may take; every partition is measured."""
    loads = situation.context.loads
    return any(any(of_topic.values()) for topic, of_topic in loads.items() if situation.takers(topic))


def settled(situation: Situation, **options: Any) -> Situation:
    return replace(situation, case=replace(situation.case, previous=load_aware(situation, **options)))


# Sticky otherwise


@some
@given(situation=situations(CASES, loads=False), data=st.data())
def test_load_aware_is_sticky_when_nothing_is_known(situation: Situation, data: st.DataObject) -> None:
    case = situation.case
    useless = {
        t: dict.fromkeys(p, data.draw(st.sampled_from([-1.0, float("nan")]))) for t, p in case.topics.items()
    }
    unknown = replace(situation, context=replace(situation.context, loads=useless))
    sticky = run_assignor(
        load_assignor("sticky"), case.topics, case.consumers, case.previous, situation.context
    )
    assert load_aware(situation) == load_aware(unknown) == sticky


@some
@given(case=EVEN)
def test_idle_partitions_are_evened_out_by_number_within_the_tolerance(case: Case) -> None:
    assume(any(case.topics.values()))
    idle = PlanningContext(loads={t: dict.fromkeys(p, 0.0) for t, p in case.topics.items()})
    found = load_aware(Situation(case, idle), budget=ENOUGH)
    weights = with_any_weight(case)
    mean = sum(map(len, case.topics.values())) / sum(weights.values())
    load = loads(found, case.consumers)
    off = [c for c in load if abs(load[c] / weights[c] - mean) > 0.2 * mean * (1 + 1e-9)]
    for consumer in off:  # one partition more or less would make it no better
        gain = max((2 * load[c] - 1) / weights[c] for c in load if load[c])
        assert (
            load[consumer] / weights[consumer] > mean or (2 * load[consumer] + 1) / weights[consumer] >= gain
        )


@some
@given(
    loads=st.dictionaries(
        st.sampled_from("ab"),
        st.dictionaries(st.integers(0, 5), st.floats(-1, 1e9) | st.just(float("nan"))),
    )
)
def test_unknown_load_counts_as_the_mean_of_its_topic(loads: Mapping[str, Mapping[int, float]]) -> None:
    topics = {"a": range(5), "b": range(4)}
    good = {
        t: {p: max(v, 1) * 1000 for p, v in of.items() if v >= 0 and p in topics[t]}
        for t, of in loads.items()
    }
    every = [v for of in good.values() for v in of.values()]
    found = partition_loads(loads, topics)
    if not every:
        assert found is None
        return
    assert found is not None
    mean = sum(every) / len(every)
    for topic, partitions in topics.items():
        of_topic = list(good.get(topic, {}).values())
        for partition in partitions:
            unknown = partition not in good.get(topic, {})
            assert (partition in found.estimated.get(topic, ())) == unknown
            expected = good.get(topic, {}).get(partition, sum(of_topic) / len(of_topic) if of_topic else mean)
            assert found.counts[topic][partition] == pytest.approx(expected, abs=1)


# Load


@some
@given(situation=measured(CASES), data=st.data())
def test_consumer_with_unmeasured_partitions_neither_gives_nor_takes(
    situation: Situation, data: st.DataObject
) -> None:
    assume(known(situation))
    random_ = random.Random(data.draw(st.integers(0, 2**32)))
    part = data.draw(st.sampled_from([0.05, 0.3]))
    loads = {
        t: {p: load for p, load in of.items() if random_.random() > part}
        for t, of in situation.context.loads.items()
    }
    places = [(t, p) for t in situation.case.topics if situation.takers(t) for p in situation.case.topics[t]]
    unknown = [(t, p) for t, p in places if p not in loads[t]]
    assume(len(unknown) * 2 < len(places) and any(loads[t].get(p) for t, p in places))
    later = replace(situation, context=replace(situation.context, loads=loads))
    after = load_aware(later, budget=ENOUGH)
    unmeasured = {after[t][p] for t, p in unknown}
    moved = {
        place: owner for place, owner in may_stay(later.case).items() if after[place[0]][place[1]] != owner
    }
    assert not unmeasured.intersection(moved.values())
    assert not unmeasured.intersection(after[t][p] for t, p in moved)


@some
@given(situation=measured(CASES, pins=True, exclusions=True, racks=True), budget=st.integers(0, 30))
def test_no_more_moves_than_the_budget(situation: Situation, budget: int) -> None:
    assume(known(situation))
    pins, case = situation.obeyable_pins(), situation.case
    after = load_aware(situation, budget=budget)
    moved = [
        place
        for place, owner in may_stay(case).items()
        if situation.may_take(owner, place[0]) and place not in pins and after[place[0]][place[1]] != owner
    ]
    assert len(moved) <= budget


def helpful(situation: Situation, assignment: Assignment, tolerance: float) -> list[tuple[str, int, str]]:
    """The partitions, and to which consumer, whose move would make one out of tolerance and a consumer that differs
    from it by more than the tolerance more even."""
    load, mean = carried(situation, assignment)
    counts, weights = counts_of(situation), with_any_weight(situation.case)
    pins, beyond = situation.obeyable_pins(), tolerance * mean * (1 + 1e-6)
    least: dict[tuple[str, str], tuple[int, int]] = {}
    for topic, owners in assignment.items():
        for partition, owner in owners.items():
            if (topic, partition) not in pins:
                found = (counts[topic][partition], partition)
                least[topic, owner] = min(least.get((topic, owner), found), found)
    return [
        (topic, partition, taker)
        for (topic, owner), (count, partition) in least.items()
        for taker in situation.takers(topic)
        if max(abs(load[owner] - mean), abs(load[taker] - mean)) > beyond < load[owner] - load[taker]
        and count / weights[owner] + count / weights[taker] < 2 * (load[owner] - load[taker]) * (1 - 1e-6)
    ]


@many
@given(situation=measured(CASES, pins=True), tolerance=st.sampled_from([0.05, 0.2, 0.5]))
def test_consumer_out_of_tolerance_cannot_be_helped_by_any_move(
    situation: Situation, tolerance: float
) -> None:
    assume(known(situation))
    after = load_aware(situation, tolerance=tolerance, budget=ENOUGH)
    assert not helpful(situation, after, tolerance)


@some
@given(
    situation=measured(small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False))
)
def test_first_plan_exceeds_the_average_by_at_most_a_tenth_and_one_partition(
    situation: Situation,
) -> None:
    assume(known(situation))
    situation = replace(situation, case=replace(situation.case, previous={}))
    load, mean = carried(situation, load_aware(situation, budget=0))
    counts = counts_of(situation)
    largest = max(count for of_topic in counts.values() for count in of_topic.values())
    weight = next(iter(with_any_weight(situation.case).values()))
    assert max(load.values()) <= (1.1 * mean + largest / weight) * (1 + 1e-9)


@some
@given(situation=measured(CASES, pins=True, racks=True))
def test_a_second_look_changes_nothing_once_the_budget_sufficed(situation: Situation) -> None:
    assume(known(situation))
    at_rest = settled(situation, budget=ENOUGH)
    assert load_aware(at_rest, budget=ENOUGH) == at_rest.case.previous


@some
@given(situation=measured(EVEN), data=st.data())
def test_loads_within_the_tolerance_move_nothing_however_they_go_up_and_down(
    situation: Situation, data: st.DataObject
) -> None:
    assume(known(situation))
    at_rest = settled(situation, tolerance=0.1, budget=ENOUGH)
    random_ = random.Random(data.draw(st.integers(0, 2**32)))
    loads = {
        t: {p: load * random_.uniform(0.9, 1.1) for p, load in of.items()}
        for t, of in situation.context.loads.items()
    }
    later = replace(at_rest, context=PlanningContext(loads=loads))
    load, mean = carried(later, at_rest.case.previous)
    assume(all(abs(of_one - mean) <= 0.3 * mean * (1 - 1e-6) for of_one in load.values()))
    assert load_aware(later, tolerance=0.3) == at_rest.case.previous


@some
@given(situation=measured(EVEN), data=st.data())
def test_leaving_moves_the_leavers_partitions_and_the_budget(
    situation: Situation, data: st.DataObject
) -> None:
    assume(known(situation) and len(situation.case.consumers) > 1)
    at_rest = settled(situation, budget=ENOUGH)
    gone = data.draw(st.sampled_from(sorted(situation.case.consumers)))
    after = load_aware(replace(at_rest, case=at_rest.case.without(gone)), budget=3)
    elsewhere = [s for s, _ in changed(at_rest.case.previous, after).values() if s != gone]
    assert len(elsewhere) <= 3


@some
@given(
    situation=measured(small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False))
)
def test_newcomer_gets_its_part_within_the_tolerance_plan_by_plan(situation: Situation) -> None:
    assume(known(situation))
    at_rest = settled(situation, budget=ENOUGH)
    joined = replace(at_rest, case=at_rest.case.joined_by(Consumer("newcomer")))
    for _ in range(2000):
        after = load_aware(joined, budget=50)
        if after == joined.case.previous:
            break
        assert moves(joined.case, after) <= 50
        joined = replace(joined, case=replace(joined.case, previous=after))
    else:
        pytest.fail("it never comes to rest")
    load, mean = carried(joined, after)
    assert load["newcomer"] >= 0.8 * mean * (1 - 1e-6) or not helpful(joined, after, 0.2)


@dataclass(frozen=True)
class Replay:
    """Plan after plan under constant load, where what has moved is not measured for `delay` plans."""

    situation: Situation
    delay: int
    options: Mapping[str, float]

    def comes_to_rest(self, plans: int) -> bool:
        now, since = self.situation, dict[tuple[str, int], int]()
        loads, quiet = now.context.loads, 0
        for number in range(plans):
            seen = {
                t: {p: load for p, load in of.items() if number - since.get((t, p), -ENOUGH) > self.delay}
                for t, of in loads.items()
            }
            now = replace(now, context=replace(now.context, loads=seen))
            after = load_aware(now, **self.options)
            moved = changed(now.case.previous, after)
            since |= dict.fromkeys(moved, number)
            quiet = 0 if moved else quiet + 1
            if quiet > self.delay + 1:
                return True
            now = replace(now, case=replace(now.case, previous=after))
        return False


@st.composite
def replays(draw: st.DrawFn) -> Replay:
    """Few partitions of very unequal load, so that a plan may move most of them."""
    random_ = random.Random(draw(st.integers(0, 2**32)))
    names = [f"c{i}" for i in range(random_.randint(2, 4))]
    topics = {f"t{i}": frozenset(range(random_.randint(1, 14))) for i in range(random_.choice([1, 1, 2]))}
    weights = random_.choice([(1.0, 2.0), (0.5, 1.0, 2.0, 3.0), (0.0, 1.0, 5.0)])
    subscriptions = random_.choice([[None], [None, frozenset(["t0"])]])
    consumers = {
        c: Consumer(c, weight=random_.choice(weights), topics=random_.choice(subscriptions)) for c in names
    }
    previous = {t: {p: random_.choice(names) for p in sorted(partitions)} for t, partitions in topics.items()}
    idle = random_.choice([0.0, 0.3, 0.8])
    loads = {
        t: {p: 0.0 if random_.random() < idle else random_.paretovariate(0.6) for p in sorted(partitions)}
        for t, partitions in topics.items()
    }
    options = {"tolerance": random_.choice([0.0, 0.2, 0.5]), "budget": random_.choice([1, 5, 20])}
    situation = Situation(Case(topics, consumers, previous), PlanningContext(loads=loads))
    return Replay(situation, random_.choice([1, 2, 6]), options)


@examples(500)
@given(replay=replays())
def test_load_aware_rests_under_constant_load_however_long_measuring_takes(replay: Replay) -> None:
    assert replay.comes_to_rest(plans=2000)


HOT = {0: 200.0, **dict.fromkeys(range(1, 9), 5.0)}


def test_a_plan_that_moves_most_partitions_is_not_undone_while_they_are_measured() -> None:
    consumers = {"big": Consumer("big", weight=2.0), "small": Consumer("small")}
    topics = {"t": frozenset(HOT)}
    previous = run_assignor(load_assignor("sticky"), topics, consumers, {})
    situation = Situation(Case(topics, consumers, previous), PlanningContext(loads={"t": HOT}))
    assert Replay(situation, 1, {}).comes_to_rest(plans=10)


def test_a_move_helps_though_the_busiest_consumer_cannot_give_any() -> None:
    consumers = {c: Consumer(c) for c in ("a", "b", "newcomer")}
    case = Case({"t": frozenset(range(3))}, consumers, {"t": {0: "a", 1: "b", 2: "b"}})
    after = load_aware(Situation(case, PlanningContext(loads={"t": {0: 10.0, 1: 3.0, 2: 3.0}})))
    assert sorted(after["t"].values()) == ["a", "b", "newcomer"]


def test_consumer_of_weight_0_gives_its_partition_away_though_another_one_is_idle() -> None:
    consumers = {c: Consumer(c, weight=float(c == "a")) for c in ("a", "idle", "zero")}
    case = Case({"t": frozenset(range(10))}, consumers, {"t": {**dict.fromkeys(range(9), "a"), 9: "zero"}})
    after = load_aware(Situation(case, PlanningContext(loads={"t": dict.fromkeys(range(10), 5.0)})))
    assert set(after["t"].values()) == {"a"}


@some
@given(situation=measured(CASES), data=st.data())
def test_new_partitions_move_no_other_without_budget(situation: Situation, data: st.DataObject) -> None:
    assume(known(situation))
    grown = data.draw(st.integers(1, 50))
    at_rest = settled(situation, budget=ENOUGH)
    topics = {t: p | frozenset(range(300, 300 + grown)) for t, p in situation.case.topics.items()}
    more = replace(at_rest, case=replace(at_rest.case, topics=topics))
    assert not changed(at_rest.case.previous, load_aware(more, budget=0))
