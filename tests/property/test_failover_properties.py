"""What holds for failover whatever it is given."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from muster.core.assignors import load_assignor, validate
from muster.core.model import Assignment, Consumer
from tests.support.assignor_cases import Case, changed, large_cases, loads, shuffled, small_cases
from tests.support.examples import examples

some = examples(60)


@st.composite
def with_levels(draw: st.DrawFn, cases: st.SearchStrategy[Case]) -> Case:
    case = draw(cases)
    random_ = random.Random(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([(0, 1), (-1, 0, 5), (1, 1, 1, 2)]))
    return replace(
        case,
        consumers={c: replace(v, priority=random_.choice(levels)) for c, v in sorted(case.consumers.items())},
    )


CASES = with_levels(small_cases() | large_cases())
EVEN_CASES = with_levels(small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False))


def assign(case: Case, give_back: bool = True) -> Assignment:
    assignor = load_assignor("failover", {"give_back": give_back})
    assignment = assignor.assign(case.topics, case.consumers, case.previous)
    validate(assignment, case.topics, case.consumers, assignor="failover")
    return assignment


def highest(topic: str, consumers: Mapping[str, Consumer]) -> set[str]:
    takers = [consumer for consumer in consumers.values() if consumer.subscribes(topic)]
    top = max(consumer.priority for consumer in takers)
    return {consumer.id for consumer in takers if consumer.priority == top}


@some
@given(case=CASES)
def test_only_the_highest_level_has_anything(case: Case) -> None:
    for topic, owners in assign(case).items():
        assert set(owners.values()) <= highest(topic, case.consumers)


@some
@given(case=CASES)
def test_lower_level_keeps_just_what_it_had_without_failback(case: Case) -> None:
    after = assign(case, give_back=False)
    for topic, owners in after.items():
        top = highest(topic, case.consumers)
        for partition, owner in owners.items():
            before = case.previous.get(topic, {}).get(partition)
            if owner not in top:
                assert owner == before
            elif before != owner and before in case.consumers and case.consumers[before].subscribes(topic):
                assert before in top


@some
@given(case=EVEN_CASES, give_back=st.booleans())
def test_balanced_within_one_among_equals(case: Case, give_back: bool) -> None:
    assignment = assign(replace(case, previous={}), give_back)
    assume(any(assignment.values()))
    load = loads(assignment, case.consumers)
    level = [load[consumer] for consumer in highest("a", case.consumers)]
    assert max(level) - min(level) <= 1


@some
@given(case=EVEN_CASES, data=st.data(), give_back=st.booleans())
def test_leaving_moves_only_the_leavers_partitions(case: Case, data: st.DataObject, give_back: bool) -> None:
    assume(len(case.consumers) > 1)
    rest = replace(case, previous=assign(case, give_back))
    gone = data.draw(st.sampled_from(sorted(case.consumers)))
    moved = changed(rest.previous, assign(rest.without(gone), give_back))
    assert {source for source, _ in moved.values()} <= {gone}


@some
@given(case=EVEN_CASES, data=st.data())
def test_return_of_a_levels_last_consumer_moves_everything_or_nothing(
    case: Case, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(case.consumers)))
    first = case.joined_by(replace(case.consumers[name], priority=99))
    assume(len(first.consumers) > 1)
    everything = assign(first)
    assert all(set(owners.values()) <= {name} for owners in everything.values())
    for give_back in (True, False):
        without = assign(replace(first, previous=everything).without(name), give_back)
        again = assign(replace(first, previous=without), give_back)
        assert again == (everything if give_back else without)


@some
@given(case=CASES, give_back=st.booleans(), seed=st.integers(0, 2**32))
def test_deterministic_and_at_rest_after_one_plan(case: Case, give_back: bool, seed: int) -> None:
    first = assign(case, give_back)
    assert assign(shuffled(case, seed), give_back) == first
    assert assign(replace(case, previous=first), give_back) == first
