"""Find chains of hand-overs that make loads more even or save moves: A hands to B from one pool, B to C, and so on.

The graph is that of what one partition more or less means. Its nodes are consumers, pools and one hub. An arc from a
consumer to a pool is giving up a partition of that pool, an arc from a pool to a consumer is taking one; an arc from
a consumer to the hub is carrying one partition more than before, one from the hub to a consumer is carrying one less.
So each chain of hand-overs is a cycle: one from A to C, with one more at C and one less at A, leads through the hub.
An arc is as long as its cost: a move counts as one, and the cost of load so much more that no number of moves
outweighs it. What makes the result better is a cycle of negative length, and when there is none left, nothing better
exists (the theorem behind min-cost flow).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from muster.core.assignors.balance import cost_of_next
from muster.core.assignors.sticky.mixed import Exchange

_Numbers = NDArray[np.int64]
_Chain = list[tuple[int, int]]
"""Pairs, each with how many partitions more (1 or -1) its consumer then has of its pool."""
_FAR = 10**12
"""The length of an arc that does not exist: longer than any chain."""
_MOST_PAIRS = 10**6
"""With more pairs there is no search: it would take too long, and lengths would outgrow the numbers."""
_ROUND = 5_000
"""How many arcs could be looked at in the time that a round takes beside its arcs."""
_NOWHERE, _HUB = -1, -2


def improve(exchange: Exchange, budget: int) -> None:
    """Make all hand-overs that improve the result; none at all if that takes looking at more than `budget` arcs."""
    search = _Search(exchange)
    if len(search.count) > _MOST_PAIRS:
        return
    while search.carry_out_some(budget):
        pass
    if search.looked_at <= budget:
        of_pools = np.split(search.count, np.cumsum([len(takers) for takers in exchange.takers]))
        for pool, takers in enumerate(exchange.takers):
            exchange.count[pool] = dict(zip(takers, of_pools[pool].tolist(), strict=True))


class _Search:
    """The numbers of an exchange as arrays, with one place for each *pair* of a pool and a consumer that may take.

    Pairs stand in order of pool, then consumer. The hub is the last pool: each consumer has as many partitions of it,
    below zero, as it carries. `giving` and `taking` are the lengths of each pair's arcs, from its consumer to its
    pool and back.
    """

    def __init__(self, exchange: Exchange) -> None:
        takers: list[Sequence[int]] = [*exchange.takers, range(len(exchange.names))]
        counts = [*exchange.count, {consumer: -load for consumer, load in enumerate(exchange.load)}]
        self.weight = exchange.weight
        self.pool = np.repeat(np.arange(len(takers)), [len(of_pool) for of_pool in takers])
        self.consumer = np.concatenate(takers)
        self.count = _in_order(takers, counts)
        self.home = _in_order(takers, [*exchange.home, {}])
        self.hub = len(self.count) - len(exchange.names)  # its first pair
        self.pools, self.consumers = _Nodes(self.pool), _Nodes(self.consumer)
        self.giving, self.taking = np.zeros_like(self.count), np.zeros_like(self.count)
        self.measure_loads()
        self.looked_at = 0

    def carry_out_some(self, budget: int) -> bool:
        """Carry out some chains that improve the result; False if there is none, or `looked_at` exceeds the budget.

        Bellman-Ford from all nodes at once. A cycle of negative length shows in the ways by which nodes are reached
        before the distances have settled; the ways are looked at after 1, 2, 4, 8 ... rounds.
        """
        count, home = self.count[: self.hub], self.home[: self.hub]
        self.giving[: self.hub] = np.where(count > home, -1, np.where(count > 0, 0, _FAR))
        self.taking[: self.hub] = np.where(count >= home, 1, 0)
        self.pools.forget()
        self.consumers.forget()
        rounds = 0
        while self.looked_at <= budget:
            self.looked_at += 2 * len(self.count) + _ROUND
            nearer = self.pools.reach(self.consumers.distance[self.consumer] + self.giving)
            if not self.consumers.reach(self.pools.distance[self.pool] + self.taking) | nearer:
                return False
            rounds += 1
            if rounds & (rounds - 1) == 0:
                loads = self.count[self.hub :].copy()
                if sum(map(self._carry_out, self._chains())):
                    if not np.array_equal(loads, self.count[self.hub :]):
                        self.measure_loads()
                    return True
        return False

    def measure_loads(self) -> None:
        """Bring the lengths of the arcs to and from the hub up to date."""
        loads = (-self.count[self.hub :]).tolist()
        up = [cost_of_next(load, weight) for load, weight in zip(loads, self.weight, strict=True)]
        down = [cost_of_next(load - 1, weight) for load, weight in zip(loads, self.weight, strict=True)]
        rank = {cost: number for number, cost in enumerate(sorted({*up, *down}))}
        unit = 4 * (len(self.pools.via) + len(up))  # a cycle visits each node once, and so has fewer moves
        self.giving[self.hub :] = [unit * rank[cost] for cost in up]
        self.taking[self.hub :] = [
            -unit * rank[cost] if load else _FAR for load, cost in zip(loads, down, strict=True)
        ]

    def _chains(self) -> Iterator[_Chain]:
        """Yield the cycles that ways lead into, and the ways from the hub to each consumer to which it is worth it.

        Of the latter, those to consumers near the hub come first. All ways by a pool come from the same giver, so
        each is followed by one that comes from the next of the pool's givers, the nearest to the hub first.
        """
        steps, worth_it = self._ways()
        givers: dict[int, Iterator[int]] = {}
        for end in worth_it:
            chain: _Chain = []
            seen: set[int] = set()
            consumer = end
            while consumer >= 0 and consumer not in seen:
                seen.add(consumer)
                taken, given, consumer = steps[consumer]
                chain += [(taken, 1), (given, -1)]
            if consumer == end:
                yield chain
            elif consumer == _HUB and len(seen) > 1:
                yield [*chain[:-1], (self.hub + end, -1)]
                pool = int(self.pool[chain[-3][0]])
                if pool not in givers:
                    givers[pool] = self._givers(pool)
                pair = next((pair for pair in givers[pool] if self.consumer[pair] not in seen), None)
                if pair is not None:
                    giver = self.hub + int(self.consumer[pair])
                    yield [*chain[:-3], (pair, -1), (giver, 1), (self.hub + end, -1)]

    def _ways(self) -> tuple[list[tuple[int, int, int]], list[int]]:
        """Return how each consumer is reached: by which pair it takes, by which pair which consumer gives.

        With those that stand on a cycle, or near which the hub would be, the nearest to it first.
        """
        taken = self.consumers.via
        given = self.pools.via[self.pool[taken]]
        giver = np.where(given < 0, _NOWHERE, self.consumer[given])
        giver[taken >= self.hub] = _HUB
        giver[taken < 0] = _NOWHERE
        end = len(giver)
        far_back = np.append(np.where(giver < 0, end, giver), end)
        for _ in range(end.bit_length()):
            far_back = far_back[far_back]
        to_hub = self.giving[self.hub :]
        worth_it = self.consumers.distance + to_hub < 0
        worth_it[far_back[far_back < end]] = True
        nearest = np.argsort(to_hub, kind="stable")
        steps = list(zip(taken.tolist(), given.tolist(), giver.tolist(), strict=True))
        return steps, nearest[worth_it[nearest]].tolist()

    def _givers(self, pool: int) -> Iterator[int]:
        """Return the pairs by which a partition of `pool` can be given, first those that are nearest to the hub."""
        pairs = np.flatnonzero((self.pool == pool) & (self.giving < _FAR))
        distance = self.giving[pairs] + self.taking[self.hub + self.consumer[pairs]]
        return iter(pairs[np.argsort(distance, kind="stable")].tolist())

    def _carry_out(self, chain: _Chain) -> bool:
        """Make the hand-overs of `chain` if it improves the result, and report whether it does.

        What was carried out since it was found may have used up its gain.
        """
        cost = moves = 0
        for pair, change in chain:
            before = int(self.count[pair])
            after = before + change
            if pair >= self.hub:
                if after > 0:
                    return False
                cost -= change * cost_of_next(min(-before, -after), self.weight[pair - self.hub])
            elif after < 0:
                return False
            else:
                home = int(self.home[pair])
                moves += max(after, home) - max(before, home)
        if (cost, moves) >= (0, 0):
            return False
        for pair, change in chain:
            self.count[pair] += change
        return True


class _Nodes:
    """How near some nodes are: at first all are at distance 0; later each is reached by way of one of its pairs."""

    def __init__(self, of_pair: _Numbers) -> None:
        """Take as `of_pair` the node of each pair; each of 0, 1, 2 ... has some."""
        self._pairs = np.argsort(of_pair, kind="stable")
        self._starts = np.flatnonzero(np.diff(of_pair[self._pairs], prepend=-1))
        self.distance = np.zeros(len(self._starts), dtype=np.int64)
        self.via = np.full(len(self._starts), -1)

    def forget(self) -> None:
        """Set out from the beginning."""
        self.distance[:] = 0
        self.via[:] = -1

    def reach(self, lengths: _Numbers) -> bool:
        """Reach nodes by pairs, given how far the node is by way of each one, and report whether any is nearer."""
        total = len(lengths)
        # Length and pair in one number, so that the least one names both.
        best = np.minimum.reduceat(lengths[self._pairs] * total + np.arange(total), self._starts)
        distance, place = np.divmod(best, total)
        nearer = distance < self.distance
        self.distance[nearer] = distance[nearer]
        self.via[nearer] = self._pairs[place[nearer]]
        return bool(nearer.any())


def _in_order(takers: Sequence[Sequence[int]], numbers: Sequence[Mapping[int, int]]) -> _Numbers:
    """Return the number of each pair, 0 if there is none."""
    return np.array([of.get(c, 0) for of_pool, of in zip(takers, numbers, strict=True) for c in of_pool])
