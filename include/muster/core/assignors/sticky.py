"""Sticky: as balanced as possible, then as few moves as possible. The default."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.assignors.load import weight_of
from muster.core.assignors.mixed import mixed_shares
from muster.core.assignors.pool import Pool
from muster.core.assignors.shares import fair_shares
from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer


class Sticky:
    """What Kafka's `StickyAssignor` and `CooperativeStickyAssignor` aim at.

    In this order:

    1. as balanced as possible over all topics together, in proportion to each consumer's `weight`, within what
       subscriptions allow (`muster.core.assignors.load` says what that means);
    2. as few partitions as possible move away from a consumer that is still live and subscribed;
    3. where neither is at stake, each topic is spread over the consumers.

    1 and 2 are exact where all consumers subscribe to the same topics, whatever the size
    (`muster.core.assignors.shares`), and with mixed subscriptions up to a size at which searching on would take
    too long (`muster.core.assignors.mixed`). 3 is done as far as one pass through the moving partitions goes.
    """

    name = "sticky"

    def assign(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], previous: Assignment, /
    ) -> Assignment:
        """See `Assignor.assign`."""
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
