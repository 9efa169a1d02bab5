"""Range and round-robin with weights and zones, which Kafka's own know partly or not at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from muster.core.assignors import load_assignor, run_assignor
from muster.core.assignors.balance import fair_shares, weight_of
from muster.core.assignors.quota import Quota
from muster.core.model import Assignment
from tests.property.planning_context_cases import Situation, matches, situations, with_any_weight
from tests.support.assignor_cases import (
    Case,
    equally_weighted,
    large_cases,
    loads,
    small_cases,
    tangled_cases,
)
from tests.support.examples import examples

CASES = small_cases() | tangled_cases() | large_cases()
EVEN = small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False)

some = examples(60)


def assign(name: str, case: Case) -> Assignment:
    return load_assignor(name).assign(case.topics, case.consumers, {})


def assign_by_zone(name: str, situation: Situation) -> Assignment:
    case = situation.case
    return run_assignor(load_assignor(name), case.topics, case.consumers, {}, situation.context)


def zoned(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Situation]:
    return situations(cases, pins=False, exclusions=False, loads=False)


def subscribers(case: Case, topic: str) -> list[str]:
    return sorted(c for c, consumer in case.consumers.items() if consumer.subscribes(topic))


# Weights


@some
@given(case=CASES)
def test_range_blocks_are_in_proportion_to_weight_and_contiguous(case: Case) -> None:
    for topic, owners in assign("range", case).items():
        takers = subscribers(case, topic)
        everything = sum(weight_of(case.consumers[c]) for c in takers)
        exact = {c: Fraction(len(owners) * weight_of(case.consumers[c]), everything) for c in takers}
        size = Counter(dict.fromkeys(takers, 0))
        size.update(owners.values())
        assert all(int(exact[c]) <= size[c] <= int(exact[c]) + 1 for c in takers)
        # By largest remainder, ties to the lower id.
        longer = [c for c in takers if size[c] > int(exact[c])]
        ranked = sorted(takers, key=lambda c: (int(exact[c]) - exact[c], c))
        assert sorted(longer) == sorted(ranked[: len(longer)])
        in_order = [owners[p] for p in sorted(owners)]
        assert in_order == sorted(in_order)


@some
@given(case=small_cases(mixed=False) | large_cases(mixed=False))
def test_round_robin_is_as_balanced_as_sticky_with_weights_and_equal_subscriptions(case: Case) -> None:
    total = sum(map(len, case.topics.values()))
    assert loads(assign("round-robin", case), case.consumers) == fair_shares(total, with_any_weight(case), {})


@some
@given(case=small_cases() | tangled_cases())
def test_round_robin_deals_the_line_of_turns_and_passes_over_who_does_not_subscribe(case: Case) -> None:
    weights = with_any_weight(case)
    expected: dict[str, dict[int, str]] = {}
    last = (Fraction(-1), "")
    for topic in sorted(case.topics):
        if not (takers := subscribers(case, topic)):
            continue
        expected[topic] = {}
        for partition in sorted(case.topics[topic]):
            turns = [(Fraction(2 * n + 1, weights[c]), c) for c in takers for n in range(200)]
            last = min(turn for turn in turns if turn > last)
            expected[topic][partition] = last[1]
    assert assign("round-robin", case) == expected


@some
@given(
    total=st.integers(0, 300), weights=st.lists(st.integers(1, 50), min_size=1, max_size=9), data=st.data()
)
def test_quota_is_filled_exactly_in_any_order(total: int, weights: list[int], data: st.DataObject) -> None:
    by_name = {f"c{n}": weight for n, weight in enumerate(weights)}
    quota = Quota(total, by_name)
    taken: Counter[str] = Counter()
    for consumer in data.draw(st.lists(st.sampled_from(sorted(by_name)), max_size=20)):
        if quota.room(consumer):
            quota.take(consumer, 1)
            taken[consumer] += 1
    taken.update(dict(quota.blocks()))
    assert taken.total() == total
    for consumer, weight in by_name.items():
        assert abs(taken[consumer] - Fraction(total * weight, sum(weights))) < 1


# Zones


@some
@given(situation=zoned(CASES))
def test_range_by_zone_keeps_block_sizes_and_co_partitioning(situation: Situation) -> None:
    case = situation.case
    assignment = assign_by_zone("range", situation)
    for topic, owners in assignment.items():
        takers = subscribers(case, topic)
        everything = sum(weight_of(case.consumers[c]) for c in takers)
        for consumer in takers:
            exact = Fraction(len(owners) * weight_of(case.consumers[consumer]), everything)
            assert abs(list(owners.values()).count(consumer) - exact) < 1
        for other in assignment:
            if case.topics[other] == case.topics[topic] and subscribers(case, other) == takers:
                assert assignment[other] == owners


@some
@given(situation=zoned(EVEN), topic=st.sampled_from(["a", "t0"]))
def test_range_of_one_topic_displaces_no_consumer_elsewhere_without_need(
    situation: Situation, topic: str
) -> None:
    """With a zone for everyone no two consumers could swap partitions of the topic and both be at home."""
    case = situation.case
    zones = {c: v.zone or "r2" for c, v in case.consumers.items()}
    case = replace(
        case,
        topics={t: p for t, p in case.topics.items() if t == topic},
        consumers={c: replace(v, zone=zones[c]) for c, v in case.consumers.items()},
    )
    owners = assign_by_zone("range", replace(situation, case=case)).get(topic, {})
    rack = situation.context.racks.get(topic, {})
    away = {(rack[p], zones[c]) for p, c in owners.items() if p in rack and rack[p] != zones[c]}
    if len({rack.get(p) for p in owners}) > 1:
        assert not any((zone, wanted) in away for wanted, zone in away)


@some
@given(situation=zoned(CASES))
def test_round_robin_by_zone_swaps_within_rounds_only(situation: Situation) -> None:
    case = situation.case
    by_zone, plain = assign_by_zone("round-robin", situation), assign("round-robin", case)
    order = [(topic, p) for topic in sorted(plain) for p in sorted(plain[topic])]
    assert {(t, p) for t in by_zone for p in by_zone[t]} == set(order)
    for start in range(0, len(order), len(case.consumers)):
        one_round = order[start : start + len(case.consumers)]
        assert sorted(by_zone[t][p] for t, p in one_round) == sorted(plain[t][p] for t, p in one_round)
    racks = situation.context.racks
    assert matches(by_zone, racks, case.consumers) >= matches(plain, racks, case.consumers)


@some
@given(situation=zoned(EVEN))
def test_round_robin_by_zone_gains_all_there_is_in_a_round(situation: Situation) -> None:
    case, racks = situation.case, situation.context.racks
    assignment = assign_by_zone("round-robin", situation)
    order = [(topic, p) for topic in sorted(assignment) for p in sorted(assignment[topic])]
    for start in range(0, len(order), len(case.consumers)):
        one_round = order[start : start + len(case.consumers)]
        rack = Counter(racks.get(t, {}).get(p) for t, p in one_round)
        zone = Counter(case.consumers[assignment[t][p]].zone for t, p in one_round)
        best = sum(min(count, rack[z]) for z, count in zone.items() if z is not None)
        at_home = sum(
            case.consumers[assignment[t][p]].zone == racks.get(t, {}).get(p, "unknown") for t, p in one_round
        )
        assert at_home == best


@some
@given(situation=zoned(CASES.map(equally_weighted)))
def test_racks_that_are_all_the_same_leave_range_as_it_is(situation: Situation) -> None:
    racks = {t: dict.fromkeys(p, "r1") for t, p in situation.case.topics.items()}
    same = replace(situation, context=replace(situation.context, racks=racks))
    assert assign_by_zone("range", same) == assign("range", situation.case)
