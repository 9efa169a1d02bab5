"""What load-aware promises: measured load within the tolerance as far as the budget goes, and otherwise sticky."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.core.assignors import Circumstances, load_assignor, run_assignor
from muster.core.assignors.measured import AVERAGE, counted
from muster.core.model import Assignment, Consumer
from tests.property.assignor_cases import Case, changed, large_cases, may_stay, moves, small_cases
from tests.property.circumstance_cases import Situation, situations, with_any_weight

some = settings(max_examples=50, deadline=None)

CASES = small_cases() | large_cases()
EVEN = small_cases(mixed=False) | large_cases(mixed=False)
ENOUGH = 10**6


def load_aware(situation: Situation, **options: Any) -> Assignment:
    case = situation.case
    assignor = load_assignor("load-aware", options)
    return run_assignor(assignor, case.topics, case.consumers, case.previous, situation.circumstances)


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
        return replace(situation, circumstances=replace(situation.circumstances, loads=loads))

    return with_loads()


def counts_of(situation: Situation) -> Mapping[str, Mapping[int, int]]:
    topics = {t: p for t, p in situation.case.topics.items() if situation.takers(t)}
    found = counted(situation.circumstances.loads, topics)
    assert found is not None
    return found.counts


def carried(situation: Situation, assignment: Assignment) -> tuple[dict[str, float], float]:
    """What each consumer carries for its weight, and the average."""
    counts = counts_of(situation)
    weights = with_any_weight(situation.case)
    load = dict.fromkeys(situation.case.consumers, 0)
    for topic, owners in assignment.items():
        for partition, consumer in owners.items():
            load[consumer] += counts[topic][partition]
    return {c: load[c] / weights[c] for c in load}, sum(load.values()) / sum(weights.values())


def known(situation: Situation) -> bool:
    """Whether there is load on something that somebody may take; every partition is measured."""
    loads = situation.circumstances.loads
    return any(any(of_topic.values()) for topic, of_topic in loads.items() if situation.takers(topic))


def settled(situation: Situation, **options: Any) -> Situation:
    return replace(situation, case=replace(situation.case, previous=load_aware(situation, **options)))


# Sticky otherwise


@some
@given(situation=situations(CASES, loads=False), kept=st.floats(0, 0.49))
def test_with_too_little_known_it_is_sticky(situation: Situation, kept: float) -> None:
    case = situation.case
    places = [(t, p) for t in sorted(case.topics) for p in sorted(case.topics[t]) if situation.takers(t)]
    few: dict[str, dict[int, float]] = {}
    for topic, partition in places[: int(len(places) * kept)]:
        few.setdefault(topic, {})[partition] = 5.0
    unknown = replace(situation, circumstances=replace(situation.circumstances, loads=few))
    sticky = run_assignor(
        load_assignor("sticky"), case.topics, case.consumers, case.previous, situation.circumstances
    )
    assert load_aware(unknown) == sticky


@some
@given(case=CASES)
def test_with_no_load_at_all_it_is_sticky(case: Case) -> None:
    idle = Circumstances(loads={t: dict.fromkeys(p, 0.0) for t, p in case.topics.items()})
    sticky = run_assignor(load_assignor("sticky"), case.topics, case.consumers, case.previous)
    assert load_aware(Situation(case, idle)) == sticky


@some
@given(
    loads=st.dictionaries(
        st.sampled_from("ab"),
        st.dictionaries(st.integers(0, 5), st.floats(-1, 1e9) | st.just(float("nan"))),
    )
)
def test_what_is_not_known_counts_as_the_mean_of_its_topic(loads: Mapping[str, Mapping[int, float]]) -> None:
    topics = {"a": range(5), "b": range(4)}
    good = {t: {p: v for p, v in of.items() if v >= 0 and p in topics[t]} for t, of in loads.items()}
    every = [v for of in good.values() for v in of.values()]
    found = counted(loads, topics)
    if len(every) < 4.5 or not sum(every):
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
            assert found.counts[topic][partition] == pytest.approx(
                max(AVERAGE / 10, expected / mean * AVERAGE), abs=1
            )


# Load


@some
@given(situation=measured(CASES), data=st.data())
def test_who_reads_what_is_not_measured_neither_gives_nor_takes(
    situation: Situation, data: st.DataObject
) -> None:
    assume(known(situation))
    random_ = random.Random(data.draw(st.integers(0, 2**32)))
    part = data.draw(st.sampled_from([0.05, 0.3]))
    loads = {
        t: {p: load for p, load in of.items() if random_.random() > part}
        for t, of in situation.circumstances.loads.items()
    }
    places = [(t, p) for t in situation.case.topics if situation.takers(t) for p in situation.case.topics[t]]
    unknown = [(t, p) for t, p in places if p not in loads[t]]
    assume(len(unknown) * 2 < len(places) and any(loads[t].get(p) for t, p in places))
    later = replace(situation, circumstances=replace(situation.circumstances, loads=loads))
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


@some
@given(situation=measured(EVEN), tolerance=st.sampled_from([0.05, 0.2, 0.5]))
def test_who_is_out_of_tolerance_could_not_be_helped_by_any_move(
    situation: Situation, tolerance: float
) -> None:
    assume(known(situation))
    after = load_aware(situation, tolerance=tolerance, budget=ENOUGH)
    load, mean = carried(situation, after)
    weights = with_any_weight(situation.case)
    lightest = min(load, key=lambda c: (load[c], c))
    counts = counts_of(situation)
    for topic, owners in after.items():
        for partition, owner in owners.items():
            if load[owner] <= mean * (1 + tolerance) * (1 + 1e-6):
                continue
            count = counts[topic][partition]
            before = load[owner] ** 2 * weights[owner] + load[lightest] ** 2 * weights[lightest]
            then = (load[owner] - count / weights[owner]) ** 2 * weights[owner]
            then += (load[lightest] + count / weights[lightest]) ** 2 * weights[lightest]
            assert then >= before * (1 - 1e-9)


@some
@given(
    situation=measured(small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False))
)
def test_from_nothing_nobody_exceeds_the_average_by_more_than_one_partition(situation: Situation) -> None:
    assume(known(situation))
    situation = replace(situation, case=replace(situation.case, previous={}))
    load, mean = carried(situation, load_aware(situation, budget=0))
    counts = counts_of(situation)
    largest = max(count for of_topic in counts.values() for count in of_topic.values())
    weight = next(iter(with_any_weight(situation.case).values()))
    assert max(load.values()) <= mean + largest / weight * (1 + 1e-9)


@some
@given(situation=measured(CASES, pins=True, racks=True))
def test_a_second_look_changes_nothing_once_the_budget_sufficed(situation: Situation) -> None:
    assume(known(situation))
    at_rest = settled(situation, budget=ENOUGH)
    assert load_aware(at_rest, budget=ENOUGH) == at_rest.case.previous


@some
@given(situation=measured(EVEN), data=st.data())
def test_within_the_tolerance_nothing_moves_however_load_goes_up_and_down(
    situation: Situation, data: st.DataObject
) -> None:
    assume(known(situation))
    at_rest = settled(situation, tolerance=0.1, budget=ENOUGH)
    random_ = random.Random(data.draw(st.integers(0, 2**32)))
    loads = {
        t: {p: load * random_.uniform(0.9, 1.1) for p, load in of.items()}
        for t, of in situation.circumstances.loads.items()
    }
    later = replace(at_rest, circumstances=Circumstances(loads=loads))
    load, mean = carried(later, at_rest.case.previous)
    assume(all(abs(of_one - mean) <= 0.3 * mean * (1 - 1e-6) for of_one in load.values()))
    assert load_aware(later, tolerance=0.3) == at_rest.case.previous


@some
@given(situation=measured(EVEN), data=st.data())
def test_on_leave_only_what_it_had_and_the_budget_moves(situation: Situation, data: st.DataObject) -> None:
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
def test_who_joins_gets_its_part_within_the_tolerance_planning_by_planning(situation: Situation) -> None:
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
    most = max(load, key=lambda c: load[c])
    counts = counts_of(situation)
    weight = next(iter(with_any_weight(situation.case).values()))
    of_most = [counts[t][p] for t, owners in after.items() for p, c in owners.items() if c == most]
    # Either it has its part, or the smallest partition of who carries most would be too much for it.
    assert load["newcomer"] >= 0.8 * mean * (1 - 1e-6) or load[most] - load["newcomer"] <= max(
        0.2 * mean, min(of_most) / weight
    ) * (1 + 1e-6)


@some
@given(situation=measured(CASES), data=st.data())
def test_new_partitions_move_no_other_without_budget(situation: Situation, data: st.DataObject) -> None:
    """As long as at least half of the partitions are measured: otherwise it is sticky."""
    assume(known(situation))
    taken = [t for t in situation.case.topics if situation.takers(t)]
    measured_of_each = sum(len(situation.case.topics[t]) for t in taken) // len(taken)
    assume(measured_of_each)
    grown = data.draw(st.integers(1, measured_of_each))
    at_rest = settled(situation, budget=ENOUGH)
    topics = {t: p | frozenset(range(300, 300 + grown)) for t, p in situation.case.topics.items()}
    more = replace(at_rest, case=replace(at_rest.case, topics=topics))
    # With less than half of the loads known it plans by numbers, as sticky does.
    assume(counted(more.circumstances.loads, topics) is not None)
    assert not changed(at_rest.case.previous, load_aware(more, budget=0))
