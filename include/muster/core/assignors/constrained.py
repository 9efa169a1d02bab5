"""Sticky where persons fixed partitions to consumers, or where it matters in which zone a partition is read.

A pinned partition is one that only its consumer could take. With that, what `muster.core.assignors.mixed` finds for
mixed subscriptions holds for pins as well; and where all consumers subscribe to the same topics, it is enough to know
how many partitions each of them has for sure (`shares_above`), which is exact at any size.

Zones come last (`muster.core.assignors.zone_deal`): they use the freedom that balance and few moves leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from muster.core.assignors.load import weight_of
from muster.core.assignors.mixed import mixed_shares
from muster.core.assignors.pins import Pins, with_pinned, without_pinned
from muster.core.assignors.pool import Pool
from muster.core.assignors.shares import fair_shares
from muster.core.assignors.subscriptions import Audience, audiences
from muster.core.assignors.zone_deal import ZoneDeal, ZoneRule
from muster.core.assignors.zones import Racks
from muster.core.model import Assignment, Consumer


def constrained_assignment(
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    previous: Assignment,
    pins: Pins,
    racks: Racks,
    zone_rule: ZoneRule,
) -> Assignment:
    """Return what sticky assigns under `pins`, all of which can be obeyed, and `racks`."""
    free = without_pinned(topics, pins)
    groups = audiences(free, consumers)
    pools = [Pool.of(audience, free, previous) for audience in groups]
    weights = {consumer: weight_of(consumers[consumer]) for consumer in sorted(consumers)}
    pinned = Counter(consumer for owners in pins.values() for consumer in owners.values())
    shares = _shares(pools, weights, pins, pinned)
    assignment: dict[str, dict[int, str]] = {}
    if racks:
        deal = ZoneDeal(consumers, racks, zone_rule, shares, pinned)
        for audience, share in zip(groups, shares, strict=True):
            assignment.update(deal.dealt(audience, free, previous, share))
        deal.swap(assignment, groups, previous)
    else:
        for pool, share in zip(pools, shares, strict=True):
            assignment.update(pool.dealt(share))
    return with_pinned(assignment, pins)


def shares_above(
    least: Mapping[str, int], total: int, weights: Mapping[str, int], held: Mapping[str, int]
) -> dict[str, int]:
    """`fair_shares` in which each consumer gets its `least` at least; `total` is not smaller than their sum.

    Who has more for sure than a fair share would be gets just that, and the others share the rest fairly, until
    no consumer is below its least. That is the best there is: what those take too much makes the others' shares only
    smaller, so that none that was set aside would get more than its least in the end.
    """
    shares: dict[str, int] = {}
    sharing = dict(weights)
    while sharing:
        found = fair_shares(total - sum(shares.values()), sharing, held)
        above = {c: least[c] for c in sharing if least.get(c, 0) > found[c]}
        if not above:
            return shares | found
        shares |= above
        sharing = {c: weight for c, weight in sharing.items() if c not in above}
    return shares


def _shares(
    pools: list[Pool], weights: Mapping[str, int], pins: Pins, pinned: Counter[str]
) -> list[dict[str, int]]:
    """Each consumer's number of partitions of each pool, those that are pinned not counted."""
    if len(pools) == 1:
        own = {consumer: weights[consumer] for consumer in pools[0].audience.consumers}
        found = shares_above(pinned, pools[0].total + pinned.total(), own, pools[0].held + pinned)
        return [{consumer: share - pinned[consumer] for consumer, share in found.items()}]
    return mixed_shares([*pools, *_pools_of_one(pins)], weights)[: len(pools)]


def _pools_of_one(pins: Pins) -> list[Pool]:
    """The pinned partitions as pools that only one consumer may take from, and that stay where they are."""
    of: dict[str, dict[str, dict[int, str]]] = {}
    for topic in sorted(pins):
        for partition, consumer in sorted(pins[topic].items()):
            of.setdefault(consumer, {}).setdefault(topic, {})[partition] = consumer
    return [
        Pool.of(
            Audience(tuple(owners), (consumer,)),
            {topic: frozenset(partitions) for topic, partitions in owners.items()},
            owners,
        )
        for consumer, owners in sorted(of.items())
    ]
