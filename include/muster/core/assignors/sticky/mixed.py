"""How many partitions of each pool each consumer gets when consumers subscribe to different topics.

Each pool holds the partitions that the same consumers may take, so within a pool only numbers matter. Looked for
are the numbers with the least sum of costs (`muster.core.assignors.balance`) and, among those, with the fewest moves.

1. What has no owner goes, pool by pool, to the consumers that carry least; pools with few consumers first.
2. While a consumer can make the sum smaller by handing one partition directly to another, the one that carries
   most does.
3. Chains of hand-overs through several consumers make loads more even where no single one does, and those that end
   where they began save moves (`sticky.search`). When there is none left, no result is better balanced, and none
   that is as balanced has fewer moves.

The search has a budget. If it does not suffice, the result of step 2 stands: half of a search would be better, but
the next planning would go on from there and move more partitions, and so on, though nothing has happened to the
cluster. Where the result is already as good as if every consumer subscribed to everything, there is no search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heapreplace

from muster.core.assignors.balance import CheapestFirst, cost_of_next, fair_shares, hand_over_in_turn
from muster.core.assignors.sticky.pool import Pool

BUDGET = 20_000_000
"""How many hand-overs the search looks at: some 0.5 seconds at the most."""


def mixed_shares(
    pools: Sequence[Pool], weights: Mapping[str, int], *, budget: int = BUDGET
) -> list[dict[str, int]]:
    """Return each consumer's number of partitions of each pool, in the order of `pools`."""
    if not pools:
        return []
    exchange = Exchange(pools, weights)
    exchange.place_unowned()
    exchange.hand_over_directly()
    if not exchange.is_provably_best():
        # With it comes numpy, which costs a process more than most plans, and most plans do without.
        from muster.core.assignors.sticky.search import improve  # noqa: PLC0415

        improve(exchange, budget)
    return [{exchange.names[c]: n for c, n in count.items() if n} for count in exchange.count]


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
        self.load = [0] * len(self.names)
        self._unowned = [pool.unowned for pool in pools]
        self._pools_of: list[list[int]] = [[] for _ in self.names]
        for pool, takers in enumerate(self.takers):
            for consumer in takers:
                self._pools_of[consumer].append(pool)
                self.load[consumer] += self.count[pool].get(consumer, 0)

    def place_unowned(self) -> None:
        """Give what has no owner to the consumers that carry least (step 1)."""
        for pool in sorted(range(len(self.takers)), key=lambda pool: (len(self.takers[pool]), pool)):
            if not self._unowned[pool]:
                continue
            cheapest = [(self._cost_up(consumer), consumer) for consumer in self.takers[pool]]
            heapify(cheapest)
            for _ in range(self._unowned[pool]):
                consumer = cheapest[0][1]
                self._give(pool, consumer, 1)
                heapreplace(cheapest, (self._cost_up(consumer), consumer))

    def hand_over_directly(self) -> None:
        """Hand over single partitions while that makes the sum smaller (step 2)."""
        handed_over = True
        while handed_over:
            receivers = [CheapestFirst(takers, self._cost_up) for takers in self.takers]
            givers = [consumer for consumer, load in enumerate(self.load) if load]
            handed_over = hand_over_in_turn(givers, self._cost_down, partial(self._hand_over, receivers))

    def is_provably_best(self) -> bool:
        """Report whether balance and moves are as good as if every consumer subscribed to everything."""
        dearest = max((self._cost_down(c) for c, load in enumerate(self.load) if load), default=0)
        if dearest > min(map(self._cost_up, range(len(self.names)))):
            return False
        held: Counter[str] = Counter()
        staying = 0
        for home, count in zip(self.home, self.count, strict=True):
            for consumer, partitions in home.items():
                held[self.names[consumer]] += partitions
                staying += min(partitions, count[consumer])
        shares = fair_shares(sum(self.load), dict(zip(self.names, self.weight, strict=True)), held)
        return staying == sum(min(held[consumer], share) for consumer, share in shares.items())

    def _hand_over(self, receivers: Sequence[CheapestFirst[int, int]], giver: int) -> int | None:
        best = min(self._offers(giver, receivers), default=None)
        if best is None or best[0] >= self._cost_down(giver):
            return None
        *_, receiver, pool = best
        self._give(pool, giver, -1)
        self._give(pool, receiver, 1)
        return receiver

    def _offers(
        self, giver: int, receivers: Sequence[CheapestFirst[int, int]]
    ) -> Iterator[tuple[int, bool, int, int, int]]:
        """Yield the consumers that could take a partition from `giver`.

        Each with the cost there, whether that is a move more, then what spreads the pools (least where it goes, most
        where it comes from), the receiver and the pool.
        """
        for pool in self._pools_of[giver]:
            count = self.count[pool]
            if held := count.get(giver):
                cost, receiver = receivers[pool].first()
                is_home = held <= self.home[pool].get(giver, 0)
                yield cost, is_home, count.get(receiver, 0) - held, receiver, pool

    def _give(self, pool: int, consumer: int, partitions: int) -> None:
        self.count[pool][consumer] = self.count[pool].get(consumer, 0) + partitions
        self.load[consumer] += partitions

    def _cost_up(self, consumer: int) -> int:
        """Return what one partition more would cost at `consumer`."""
        return cost_of_next(self.load[consumer], self.weight[consumer])

    def _cost_down(self, consumer: int) -> int:
        """Return what one partition less would save at `consumer`, which must have one."""
        return cost_of_next(self.load[consumer] - 1, self.weight[consumer])
