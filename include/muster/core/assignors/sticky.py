"""Sticky: as balanced as possible, then as few moves as possible. The default."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.assignors.constrained import constrained_assignment
from muster.core.assignors.load import weight_of
from muster.core.assignors.mixed import mixed_shares
from muster.core.assignors.pins import NO_PINS, Pins
from muster.core.assignors.pool import Pool
from muster.core.assignors.shares import fair_shares
from muster.core.assignors.subscriptions import audiences
from muster.core.assignors.zone_deal import ZoneRule
from muster.core.assignors.zones import NO_RACKS, Racks, useful_racks
from muster.core.model import Assignment, Consumer


class Sticky:
    """What Kafka's `StickyAssignor` and `CooperativeStickyAssignor` aim at.

    In this order:

    1. as balanced as possible over all topics together, in proportion to each consumer's `weight`, within what
       subscriptions allow (`muster.core.assignors.load` says what that means);
    2. as few partitions as possible move away from a consumer that is still live and subscribed;
    3. where neither is at stake, partitions that move or are new go to consumers in the zone of their leader,
       and consumers that have to give partitions away give those that are out of their zone;
    4. where none of that is at stake, each topic is spread over the consumers.

    1 and 2 are exact where all consumers subscribe to the same topics, whatever the size
    (`muster.core.assignors.shares`), and with mixed subscriptions up to a size at which searching on would take
    too long (`muster.core.assignors.mixed`). Pinned partitions count in both
    (`muster.core.assignors.constrained`). 3 and 4 are done as far as one pass through the moving partitions
    goes (`muster.core.assignors.zone_deal`, `muster.core.assignors.pool`).

    Options, both of which only matter where leaders' racks are known and match consumers' zones:

    - `rack_tolerance`: by what part of its balanced share a consumer may have more or less for the sake of zones;
      0.1 is a tenth, rounded down to whole partitions. At first 0: too much to do delays every record of a
      consumer, while reading from another zone costs a little time or money, so that is for a person to decide.
    - `rack_moves`: how many partitions that could stay may be moved in one planning for the sake of their zone.
      At first 0: leaders change with every restart of a broker, and a partition that moves stands still meanwhile.
    """

    name = "sticky"

    def __init__(self, rack_tolerance: float = 0.0, rack_moves: int = 0) -> None:
        if not 0 <= rack_tolerance < 1:
            raise ValueError(f"rack_tolerance must be from 0 to less than 1, found {rack_tolerance!r}")
        if rack_moves < 0 or rack_moves != int(rack_moves):
            raise ValueError(f"rack_moves must be a whole number of at least 0, found {rack_moves!r}")
        self._zone_rule = ZoneRule(rack_tolerance, int(rack_moves))

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        /,
        pins: Pins = NO_PINS,
        racks: Racks = NO_RACKS,
    ) -> Assignment:
        """See `Assignor.assign`; `racks` as in `Circumstances`, `pins` those that can be obeyed."""
        known = useful_racks(racks, topics, consumers)
        if pins or known:
            return constrained_assignment(topics, consumers, previous, pins, known, self._zone_rule)
        pools = [Pool.of(audience, topics, previous) for audience in audiences(topics, consumers)]
        weights = {consumer: weight_of(consumers[consumer]) for consumer in sorted(consumers)}
        if len(pools) == 1:
            shares = [fair_shares(pools[0].total, weights_of(pools[0], weights), pools[0].held)]
        else:
            shares = mixed_shares(pools, weights)
        return {
            topic: owners
            for pool, share in zip(pools, shares, strict=True)
            for topic, owners in pool.dealt(share).items()
        }


def weights_of(pool: Pool, weights: Mapping[str, int]) -> dict[str, int]:
    """The weights of the consumers that may take from `pool`."""
    return {consumer: weights[consumer] for consumer in pool.audience.consumers}
