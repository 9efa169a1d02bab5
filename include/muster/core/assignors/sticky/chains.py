"""Chains of hand-overs that make loads more even: A hands to B from one pool, B to C from another, and so on.

Only A has one partition less at the end and only C one more, so a chain is worth it if C bears it more cheaply than A
did. Consumers that may take from the same pools are of one *kind*; a chain is looked for from pool to pool by way of
kinds, breadth first, so the shortest is found.

Givers go in order of what they save, the dearest first. What such a search has reached without finding a receiver is
closed: one that saves less will not find any there either, and no later chain gets in there. So one pass is exact:
when it is through, no chain is left, and then nothing is more even.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from muster.core.assignors.balance import CheapestFirst
from muster.core.assignors.sticky.exchange import Exchange


def hand_over_in_chains(exchange: Exchange, budget: int) -> bool:
    """Balance as well as can be; False, and nothing is changed, if that takes more than `budget` steps."""
    before = exchange.numbers()
    if _Chains(exchange).carry_out(budget):
        return True
    exchange.restore(before)
    return False


class _Chains:
    """The search; `looked_at` counts its steps."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.looked_at = 0
        numbers: dict[tuple[int, ...], int] = {}
        self.kind_of = [numbers.setdefault(tuple(pools), len(numbers)) for pools in exchange.pools_of]
        self.pools_of_kind = list(numbers)
        # Which consumers of a kind have partitions of a pool.
        self.holders: list[dict[int, set[int]]] = [{pool: set() for pool in pools} for pools in numbers]
        self.kinds_of_pool: list[list[int]] = [[] for _ in exchange.takers]
        for kind, pools in enumerate(numbers):
            for pool in pools:
                self.kinds_of_pool[pool].append(kind)
        for pool, count in enumerate(exchange.count):
            for consumer, partitions in count.items():
                if partitions:
                    self.holders[self.kind_of[consumer]][pool].add(consumer)
        self.receivers = [CheapestFirst(takers, exchange.cost_up) for takers in exchange.takers]
        self.closed: set[int] = set()

    def carry_out(self, budget: int) -> bool:
        """Carry out chains until there is none left; False, half done, if that takes more than `budget` steps."""
        exchange = self.exchange
        givers = [(-exchange.cost_down(c), c) for c, load in enumerate(exchange.load) if load]
        heapify(givers)
        while givers:
            saving, giver = heappop(givers)
            if not exchange.load[giver] or -saving != exchange.cost_down(giver):
                continue  # an entry of before; there is a newer one
            chain = self._chain(giver)
            if self.looked_at > budget:
                return False
            if chain is None:
                continue
            receiver = self._pass_on(giver, chain)
            for consumer in (giver, receiver):
                if exchange.load[consumer]:
                    heappush(givers, (-exchange.cost_down(consumer), consumer))
            for pool in exchange.pools_of[giver]:
                self.receivers[pool].push(giver)
        return True

    def _chain(self, giver: int) -> list[tuple[int, int]] | None:
        """Return the pools of the shortest chain, each with the kind that hands over from it (-1: the giver)."""
        exchange = self.exchange
        saving = exchange.cost_down(giver)
        own = [p for p in exchange.pools_of[giver] if exchange.count[p].get(giver) and p not in self.closed]
        own.sort(key=lambda pool: (not exchange.strays(pool, giver), pool))
        came_from: dict[int, tuple[int, int]] = dict.fromkeys(own, (-1, -1))  # the kind, and its pool
        kinds: set[int] = set()
        waiting = deque(own)
        while waiting:
            pool = waiting.popleft()
            self.looked_at += 1
            if self.receivers[pool].first()[0] < saving:
                chain = []
                while pool >= 0:
                    kind, before = came_from[pool]
                    chain.append((pool, kind))
                    pool = before
                return chain[::-1]
            for kind in self.kinds_of_pool[pool]:
                self.looked_at += 1
                if kind in kinds:
                    continue
                kinds.add(kind)
                for further in self.pools_of_kind[kind]:
                    self.looked_at += 1
                    if (
                        further not in came_from
                        and further not in self.closed
                        and self.holders[kind][further]
                    ):
                        came_from[further] = (kind, pool)
                        waiting.append(further)
        self.closed.update(came_from)
        return None

    def _pass_on(self, giver: int, chain: Sequence[tuple[int, int]]) -> int:
        """Carry out one chain, and return the consumer that has one partition more in the end."""
        source = giver
        for (pool, _), (further, kind) in pairwise(chain):
            middle = min(self.holders[kind][further], key=lambda c: (self._moves(pool, c, further), c))
            self._hand_over(pool, source, middle)
            source = middle
        last = chain[-1][0]
        receiver = self.receivers[last].first()[1]
        self._hand_over(last, source, receiver)
        self.exchange.load[giver] -= 1
        self.exchange.load[receiver] += 1
        return receiver

    def _moves(self, taken: int, consumer: int, handed_on: int) -> int:
        """Return how many moves more it makes if `consumer` takes from one pool and hands on from another."""
        return self.exchange.takes_new(taken, consumer) - self.exchange.strays(handed_on, consumer)

    def _hand_over(self, pool: int, source: int, target: int) -> None:
        self.exchange.hand_over(pool, source, target)
        if not self.exchange.count[pool][source]:
            self.holders[self.kind_of[source]][pool].discard(source)
        self.holders[self.kind_of[target]][pool].add(target)
