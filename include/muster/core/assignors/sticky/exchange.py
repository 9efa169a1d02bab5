"""How many partitions of each pool each consumer has, while it is worked out for mixed subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.assignors.balance import cost_of_next
from muster.core.assignors.sticky.pool import Pool


class Exchange:
    """The numbers while they are being worked out. Consumers and pools go by their position.

    `count[pool][consumer]` partitions are given; of them `home[pool][consumer]` at most need not move. `load` is the
    sum of a consumer over the pools.
    """

    def __init__(self, pools: Sequence[Pool], weights: Mapping[str, int]) -> None:
        self.names = sorted({consumer for pool in pools for consumer in pool.audience.consumers})
        position = {consumer: index for index, consumer in enumerate(self.names)}
        self.weight = [weights[consumer] for consumer in self.names]
        self.takers = [[position[c] for c in pool.audience.consumers] for pool in pools]
        self.home = [{position[c]: held for c, held in pool.held.items()} for pool in pools]
        self.count = [dict(home) for home in self.home]
        self.unowned = [pool.unowned for pool in pools]
        self.load = [0] * len(self.names)
        self.pools_of: list[list[int]] = [[] for _ in self.names]
        for pool, takers in enumerate(self.takers):
            for consumer in takers:
                self.pools_of[consumer].append(pool)
                self.load[consumer] += self.count[pool].get(consumer, 0)

    def shares(self) -> list[dict[str, int]]:
        """Return each consumer's number of partitions of each pool."""
        return [{self.names[c]: n for c, n in count.items() if n} for count in self.count]

    def numbers(self) -> tuple[list[dict[int, int]], list[int]]:
        """Return a copy of the present numbers, for `restore`."""
        return [dict(count) for count in self.count], list(self.load)

    def restore(self, numbers: tuple[list[dict[int, int]], list[int]]) -> None:
        """Take back everything since `numbers`."""
        self.count, self.load = numbers

    def cost_up(self, consumer: int) -> int:
        """Return what one partition more would cost at `consumer`."""
        return cost_of_next(self.load[consumer], self.weight[consumer])

    def cost_down(self, consumer: int) -> int:
        """Return what one partition less would save at `consumer`, which must have one."""
        return cost_of_next(self.load[consumer] - 1, self.weight[consumer])

    def give(self, pool: int, consumer: int, partitions: int) -> None:
        """Add to the partitions of `pool` at `consumer`; the load is left to the caller."""
        self.count[pool][consumer] = self.count[pool].get(consumer, 0) + partitions

    def hand_over(self, pool: int, source: int, target: int) -> None:
        """Hand one partition of `pool` over; the loads are left to the caller."""
        self.give(pool, source, -1)
        self.give(pool, target, 1)

    def strays(self, pool: int, consumer: int) -> bool:
        """Report whether some partition of `pool` at `consumer` is not one that it had before."""
        return self.count[pool].get(consumer, 0) > self.home[pool].get(consumer, 0)

    def takes_new(self, pool: int, consumer: int) -> bool:
        """Report whether one partition of `pool` more at `consumer` would be one that it did not have before."""
        return self.count[pool].get(consumer, 0) >= self.home[pool].get(consumer, 0)

    def is_even(self) -> bool:
        """Report whether even consumers that subscribe to everything could be balanced no better."""
        dearest = max((self.cost_down(c) for c, load in enumerate(self.load) if load), default=0)
        return dearest <= min(map(self.cost_up, range(len(self.names))))
