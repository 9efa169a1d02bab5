"""What holds for the assignors whatever they are given."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import cycle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.core.assignors import BUILT_IN, load_assignor, validate
from muster.core.assignors.balance import cost_of_next, fair_shares, weight_of
from muster.core.assignors.sticky.mixed import mixed_shares
from muster.core.assignors.sticky.pool import Pool
from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer
from tests.property.assignor_optimum import optimum, optimum_by_trying, value
from tests.support.assignor_cases import (
    Case,
    changed,
    equally_weighted,
    large_cases,
    loads,
    may_stay,
    moves,
    shuffled,
    small_cases,
    tangled_cases,
)
from tests.support.examples import examples

EVERY = pytest.mark.parametrize("name", sorted(BUILT_IN))
CASES = small_cases() | tangled_cases() | large_cases()
EVEN_CASES = small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False)

some = examples(80)
many = examples(400)


def assign(name: str, case: Case) -> Assignment:
    assignment = load_assignor(name).assign(case.topics, case.consumers, case.previous)
    validate(assignment, case.topics, case.consumers, assignor=name)
    return assignment


# Every assignor


@EVERY
@some
@given(case=CASES)
def test_each_partition_goes_to_exactly_one_live_subscriber(name: str, case: Case) -> None:
    assignment = load_assignor(name).assign(case.topics, case.consumers, case.previous)
    for topic, partitions in case.topics.items():
        subscribers = {c for c, consumer in case.consumers.items() if consumer.subscribes(topic)}
        assert assignment.get(topic, {}).keys() == (partitions if subscribers else set())
        assert set(assignment.get(topic, {}).values()) <= subscribers
    assert assignment.keys() <= case.topics.keys()
    validate(assignment, case.topics, case.consumers, assignor=name)


@EVERY
@some
@given(case=CASES, seed=st.integers(0, 2**32))
def test_order_of_mappings_plays_no_part(name: str, case: Case, seed: int) -> None:
    assert assign(name, case) == assign(name, shuffled(case, seed))


@many
@given(case=tangled_cases(), seed=st.integers(0, 2**32))
def test_order_of_mappings_plays_no_part_in_chains_of_hand_overs(case: Case, seed: int) -> None:
    assert assign("sticky", case) == assign("sticky", shuffled(case, seed))


@EVERY
@some
@given(case=CASES)
def test_arguments_are_left_as_they_are(name: str, case: Case) -> None:
    before = {topic: dict(owners) for topic, owners in case.previous.items()}
    assign(name, case)
    assert case.previous == before


@EVERY
@some
@given(case=CASES)
def test_a_second_look_changes_nothing(name: str, case: Case) -> None:
    first = assign(name, case)
    assert assign(name, replace(case, previous=first)) == first


@pytest.mark.parametrize("name", ["range", "round-robin"])
@some
@given(case=CASES)
def test_range_and_round_robin_have_no_memory(name: str, case: Case) -> None:
    assert assign(name, case) == assign(name, replace(case, previous={}))


# Range and round-robin: the rules as Kafka's documentation tells them, in the plainest words


@some
@given(case=CASES.map(equally_weighted))
def test_range_gives_contiguous_blocks_and_the_longer_ones_first(case: Case) -> None:
    assignment = assign("range", case)
    for topic, owners in assignment.items():
        subscribers = sorted(c for c, consumer in case.consumers.items() if consumer.subscribes(topic))
        in_order = [owners[partition] for partition in sorted(owners)]
        assert in_order == sorted(in_order)
        sizes = [Counter(in_order)[consumer] for consumer in subscribers]
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes) - min(sizes) <= 1


@some
@given(case=CASES.map(equally_weighted))
def test_round_robin_deals_in_a_circle_and_passes_over_who_does_not_subscribe(case: Case) -> None:
    expected: dict[str, dict[int, str]] = {}
    circle = cycle(sorted(case.consumers))
    for topic in sorted(case.topics):
        if not any(consumer.subscribes(topic) for consumer in case.consumers.values()):
            continue
        expected[topic] = {}
        for partition in sorted(case.topics[topic]):
            taker = next(circle)
            while not case.consumers[taker].subscribes(topic):
                taker = next(circle)
            expected[topic][partition] = taker
    assert assign("round-robin", case) == expected


@some
@given(case=EVEN_CASES)
def test_round_robin_is_balanced_with_equal_subscriptions(case: Case) -> None:
    load = loads(assign("round-robin", case), case.consumers)
    assert max(load.values()) - min(load.values()) <= 1


# Sticky: the optimum


@some
@given(case=small_cases())
def test_the_optimum_itself_is_right(case: Case) -> None:
    choices = math.prod(
        max(1, sum(c.subscribes(topic) for c in case.consumers.values())) ** len(partitions)
        for topic, partitions in case.topics.items()
    )
    assume(choices <= 3000)
    assert optimum(case) == optimum_by_trying(case)


@many
@given(case=small_cases(mixed=False, weighted=False))
def test_sticky_is_optimal(case: Case) -> None:
    assert value(case, assign("sticky", case)) == optimum(case)


@many
@given(case=small_cases(mixed=False))
def test_sticky_is_optimal_with_weights(case: Case) -> None:
    assert value(case, assign("sticky", case)) == optimum(case)


@many
@given(case=small_cases())
def test_sticky_is_optimal_with_mixed_subscriptions_and_weights(case: Case) -> None:
    assert value(case, assign("sticky", case)) == optimum(case)


@some
@given(case=EVEN_CASES)
def test_sticky_balances_within_one_and_moves_no_more_than_that_takes(case: Case) -> None:
    assignment = assign("sticky", case)
    load = loads(assignment, case.consumers)
    assert max(load.values()) - min(load.values()) <= 1
    # Every consumer may keep `least` partitions, and as many as there are extra ones may keep one more.
    least, extra = divmod(load.total(), len(load))
    held = Counter(may_stay(case).values())
    staying = sum(min(count, least) for count in held.values())
    staying += min(extra, sum(count > least for count in held.values()))
    assert moves(case, assignment) == held.total() - staying


@some
@given(case=large_cases(mixed=False))
def test_no_hand_over_makes_weighted_loads_more_even(case: Case) -> None:
    load = loads(assign("sticky", case), case.consumers)
    weight = {name: Fraction(consumer.weight) for name, consumer in case.consumers.items()}
    least_gain = min((2 * load[c] + 1) / weight[c] for c in load)
    assert all((2 * load[c] - 1) / weight[c] <= least_gain for c in load if load[c])


@examples(25)
@given(case=large_cases())
def test_no_single_hand_over_makes_mixed_loads_more_even(case: Case) -> None:
    assignment = assign("sticky", case)
    load = loads(assignment, case.consumers)
    weight = {name: Fraction(consumer.weight) for name, consumer in case.consumers.items()}
    for topic, owners in assignment.items():
        takers = [c for c, consumer in case.consumers.items() if consumer.subscribes(topic)]
        least_gain = min(((2 * load[c] + 1) / weight[c] for c in takers), default=Fraction(0))
        assert all((2 * load[c] - 1) / weight[c] <= least_gain for c in set(owners.values()))


@many
@given(case=tangled_cases())
def test_sticky_is_optimal_where_it_takes_chains_of_hand_overs(case: Case) -> None:
    assert value(case, assign("sticky", case)) == optimum(case)


@some
@given(
    total=st.integers(0, 5000),
    weights=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**9), min_size=1),
    held=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3000)),
)
def test_shares_add_up(total: int, weights: dict[str, int], held: dict[str, int]) -> None:
    shares = fair_shares(total, weights, held)
    assert sum(shares.values()) == total
    assert min(shares.values()) >= 0


@many
@given(case=tangled_cases(), budget=st.integers(0, 400_000))
def test_a_search_cut_short_changes_nothing_by_halves(case: Case, budget: int) -> None:
    pools = [
        Pool.of(audience, case.topics, case.previous) for audience in audiences(case.topics, case.consumers)
    ]
    weights = {name: weight_of(consumer) for name, consumer in case.consumers.items()}
    without = mixed_shares(pools, weights, budget=0)
    assert mixed_shares(pools, weights, budget=budget) in (without, mixed_shares(pools, weights))
    load: Counter[str] = Counter()
    for pool, share in zip(pools, without, strict=True):
        assert sum(share.values()) == pool.total
        load.update(share)
    for pool, share in zip(pools, without, strict=True):
        cheapest = min(cost_of_next(load[c], weights[c]) for c in pool.audience.consumers)
        assert all(cost_of_next(load[c] - 1, weights[c]) <= cheapest for c in share)


# Sticky: what users see when something happens to a cluster at rest


def at_rest(case: Case) -> Case:
    """The case after sticky has run."""
    return replace(case, previous=assign("sticky", case))


@some
@given(case=EVEN_CASES)
def test_joining_moves_partitions_only_to_the_newcomer_and_no_more_than_its_share(case: Case) -> None:
    before = at_rest(case)
    after = assign("sticky", before.joined_by(Consumer("newcomer")))
    moved = changed(before.previous, after)
    assert {target for _, target in moved.values()} <= {"newcomer"}
    assert len(moved) == sum(map(len, after.values())) // (len(case.consumers) + 1)


@some
@given(case=EVEN_CASES, data=st.data())
def test_leaving_moves_only_the_partitions_of_the_leaver(case: Case, data: st.DataObject) -> None:
    assume(len(case.consumers) > 1)
    before = at_rest(case)
    gone = data.draw(st.sampled_from(sorted(case.consumers)))
    moved = changed(before.previous, assign("sticky", before.without(gone)))
    assert {source for source, _ in moved.values()} <= {gone}
    assert len(moved) == loads(before.previous, case.consumers)[gone]


@some
@given(case=EVEN_CASES, data=st.data())
def test_returning_consumer_takes_no_more_than_it_gave(case: Case, data: st.DataObject) -> None:
    assume(len(case.consumers) > 1)
    before = at_rest(case)
    gone = data.draw(st.sampled_from(sorted(case.consumers)))
    without = assign("sticky", before.without(gone))
    again = assign("sticky", replace(before, previous=without))
    moved = changed(without, again)
    assert {target for _, target in moved.values()} <= {gone}
    assert len(moved) <= loads(before.previous, case.consumers)[gone]


@some
@given(case=EVEN_CASES, grown=st.integers(1, 300))
def test_new_partitions_and_topics_move_nothing(case: Case, grown: int) -> None:
    before = at_rest(case)
    topics = {topic: p | frozenset(range(grown)) for topic, p in case.topics.items()}
    after = assign("sticky", replace(before, topics={**topics, "new": frozenset(range(grown))}))
    assert not changed(before.previous, after)


@some
@given(case=small_cases(), data=st.data())
def test_changed_subscriptions_move_as_little_as_balance_allows(case: Case, data: st.DataObject) -> None:
    before = at_rest(case)
    name = data.draw(st.sampled_from(sorted(case.consumers)))
    wanted = data.draw(st.none() | st.frozensets(st.sampled_from("abc")))
    after = before.joined_by(replace(case.consumers[name], topics=wanted))
    assert value(after, assign("sticky", after)) == optimum(after)


@examples(25)
@given(case=large_cases(weighted=False), data=st.data())
def test_consumer_that_drops_a_topic_gets_at_most_what_it_lost(case: Case, data: st.DataObject) -> None:
    assume(case.topics)
    before = at_rest(case)
    name = data.draw(st.sampled_from(sorted(case.consumers)))
    topic = data.draw(st.sampled_from(sorted(case.topics)))
    wanted = frozenset(case.topics) if case.consumers[name].topics is None else case.consumers[name].topics
    after = assign("sticky", before.joined_by(replace(case.consumers[name], topics=wanted - {topic})))
    lost = [p for p, owner in before.previous.get(topic, {}).items() if owner == name]
    old, new = loads(before.previous, case.consumers), loads(after, case.consumers)
    assert old[name] - len(lost) <= new[name] <= old[name]
    if not lost:
        assert not changed(before.previous, after)


@some
@given(case=EVEN_CASES)
def test_first_plan_spreads_each_topic_evenly(case: Case) -> None:
    assignment = assign("sticky", replace(case, previous={}))
    for owners in assignment.values():
        counts = Counter(dict.fromkeys(case.consumers, 0))
        counts.update(owners.values())
        assert max(counts.values()) - min(counts.values()) <= 1
