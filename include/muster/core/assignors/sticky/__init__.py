"""Sticky: as balanced as possible, then as few moves as possible. The default.

What Kafka's `StickyAssignor` and `CooperativeStickyAssignor` aim at. In this order:

1. As balanced as possible over all topics together, in proportion to each consumer's `weight`, within what
   subscriptions allow (`muster.core.assignors.balance` defines it).
2. As few partitions as possible move away from a consumer that is still live and subscribed.
3. Where neither is at stake, partitions that move or are new go to consumers in the zone of their leader, and
   consumers that have to give partitions away give those that are out of their zone.
4. Where none of that is at stake, each topic is spread over the consumers.

1 and 2 are exact where all consumers subscribe to the same topics, whatever the size (`balance`), and with mixed
subscriptions up to a size at which searching on would take too long (`mixed`). Pinned partitions count in both. 3
and 4 are done as far as one pass through the moving partitions goes (`zones`, `pool`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from muster.core.assignors.api import NOTHING, Pins, Racks, Standbys
from muster.core.assignors.balance import shares_above, weights_of
from muster.core.assignors.pins import with_pinned, without_pinned
from muster.core.assignors.standing_by import StandingBy
from muster.core.assignors.sticky.mixed import mixed_shares
from muster.core.assignors.sticky.pool import Pool
from muster.core.assignors.sticky.zones import ZoneDeal, swap_for_zones
from muster.core.assignors.subscriptions import Audience, audiences
from muster.core.assignors.zones import zones_that_matter
from muster.core.model import Assignment, Consumer


class Sticky(StandingBy):
    """Assigns by the rule of this module.

    Options, both of which only matter where leaders' racks are known and match consumers' zones:

    - `rack_tolerance`: by what part of its balanced share a consumer may have more or less for the sake of zones;
      0.1 is a tenth, rounded down to whole partitions. By default 0: too much to do delays every record of a
      consumer, while reading from another zone costs a little time or money, so that is for a person to decide.
    - `rack_moves`: how many partitions that could stay may be moved in one planning for the sake of their zone.
      By default 0: leaders change with every restart of a broker, and a partition that moves stands still meanwhile.

    And `standbys`: how many consumers stand by for each partition, by default 0. When its owner is gone, the first of
    them that is there takes it over, whatever that does to the balance; the next plan evens that out.
    """

    name = "sticky"

    def __init__(self, rack_tolerance: float = 0.0, rack_moves: int = 0, standbys: int = 0) -> None:
        if not 0 <= rack_tolerance < 1:
            raise ValueError(f"rack_tolerance must be from 0 to less than 1, found {rack_tolerance!r}")
        if rack_moves < 0 or rack_moves != int(rack_moves):
            raise ValueError(f"rack_moves must be a whole number of at least 0, found {rack_moves!r}")
        self._rack_tolerance = rack_tolerance
        self._rack_moves = int(rack_moves)
        super().__init__(standbys)

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        /,
        pins: Pins = NOTHING,
        racks: Racks = NOTHING,
        standbys: Standbys = NOTHING,
    ) -> Assignment:
        """See `Assignor.assign`; `pins` are those that can be obeyed, the rest is as in `PlanningContext`."""
        pins = self._promoted(topics, consumers, previous, standbys, pins)
        free = without_pinned(topics, pins)
        pools = [Pool.of(audience, free, previous) for audience in audiences(free, consumers)]
        weights = weights_of(consumers)
        pinned = Counter(consumer for owners in pins.values() for consumer in owners.values())
        shares = _shares(pools, weights, pins, pinned)
        assignment: dict[str, dict[int, str]] = {}
        if zones := zones_that_matter(racks, topics, consumers):
            deal = ZoneDeal(zones, weights, self._rack_tolerance, shares, pinned)
            for pool, share in zip(pools, shares, strict=True):
                assignment.update(deal.dealt(pool, share))
            if self._rack_moves:
                groups = [pool.audience for pool in pools]
                swap_for_zones(zones, self._rack_moves, assignment, groups, previous)
        else:
            for pool, share in zip(pools, shares, strict=True):
                assignment.update(pool.dealt(share))
        return with_pinned(assignment, pins)


def _shares(
    pools: list[Pool], weights: Mapping[str, int], pins: Pins, pinned: Counter[str]
) -> list[dict[str, int]]:
    """Return each consumer's number of partitions of each pool, those that are pinned not counted.

    A pinned partition is one that only its consumer could take. With that, what holds for mixed subscriptions holds
    for pins as well; and where all consumers subscribe to the same topics, it is enough to know how many partitions
    each of them has for sure.
    """
    if len(pools) == 1:
        own = {consumer: weights[consumer] for consumer in pools[0].audience.consumers}
        found = shares_above(pinned, pools[0].total + pinned.total(), own, pools[0].held + pinned)
        return [{consumer: share - pinned[consumer] for consumer, share in found.items()}]
    return mixed_shares([*pools, *_pools_of_one(pins)], weights)[: len(pools)]


def _pools_of_one(pins: Pins) -> list[Pool]:
    """Return the pinned partitions as pools that only one consumer may take from, and that stay where they are."""
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
