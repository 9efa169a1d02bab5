"""How many partitions of each pool each consumer gets when consumers subscribe to different topics.

Each pool holds the partitions that the same consumers may take, so within a pool only numbers matter. Looked for
are the numbers with the least sum of costs (`muster.core.assignors.balance`) and, among those, with the fewest moves.

1. What has no owner goes, pool by pool, to the consumers that carry least; pools with few consumers first.
2. While a consumer can make the sum smaller by handing one partition directly to another, the one that carries
   most does.
3. Chains: A hands to B from one pool, B to C from another, and so on (`sticky.chains`). When there is none left,
   nothing is better balanced.
4. Cycles: a chain that ends where it began saves moves (`sticky.cycles`). When there is none left, no result that is
   as balanced has fewer moves.

The searches of 3 and 4 look at every pair of pool and subscriber several times over, so each has a budget. If it does
not suffice, the result of the step before stands: half of a search would be better, but the next planning would go on
from there and move more partitions, and so on, though nothing has happened to the cluster. Where the result is
already as good as if every consumer subscribed to everything, there is no search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heapreplace

from muster.core.assignors.balance import CheapestFirst, hand_over_in_turn
from muster.core.assignors.sticky.chains import hand_over_in_chains
from muster.core.assignors.sticky.cycles import hand_over_in_cycles, is_provably_best
from muster.core.assignors.sticky.exchange import Exchange
from muster.core.assignors.sticky.pool import Pool

BUDGET = 2_000_000
"""How many hand-overs are looked at in each search: some 0.4 seconds at the most."""


def mixed_shares(
    pools: Sequence[Pool],
    weights: Mapping[str, int],
    *,
    chain_budget: int = BUDGET,
    cycle_budget: int = BUDGET,
) -> list[dict[str, int]]:
    """Return each consumer's number of partitions of each pool, in the order of `pools`."""
    if not pools:
        return []
    exchange = Exchange(pools, weights)
    _place_unowned(exchange)
    _hand_over_directly(exchange)
    balanced = exchange.is_even() or hand_over_in_chains(exchange, chain_budget)
    if balanced and not is_provably_best(exchange):
        hand_over_in_cycles(exchange, cycle_budget)
    return exchange.shares()


def _place_unowned(exchange: Exchange) -> None:
    """Give what has no owner to the consumers that carry least (step 1)."""
    for pool in sorted(range(len(exchange.takers)), key=lambda pool: (len(exchange.takers[pool]), pool)):
        if not exchange.unowned[pool]:
            continue
        cheapest = [(exchange.cost_up(consumer), consumer) for consumer in exchange.takers[pool]]
        heapify(cheapest)
        for _ in range(exchange.unowned[pool]):
            consumer = cheapest[0][1]
            exchange.give(pool, consumer, 1)
            exchange.load[consumer] += 1
            heapreplace(cheapest, (exchange.cost_up(consumer), consumer))


def _hand_over_directly(exchange: Exchange) -> None:
    """Hand over single partitions while that makes the sum smaller (step 2)."""
    handed_over = True
    while handed_over:
        receivers = [CheapestFirst(takers, exchange.cost_up) for takers in exchange.takers]
        givers = [consumer for consumer, load in enumerate(exchange.load) if load]
        handed_over = hand_over_in_turn(givers, exchange.cost_down, partial(_hand_over, exchange, receivers))


def _hand_over(exchange: Exchange, receivers: Sequence[CheapestFirst[int, int]], giver: int) -> int | None:
    best = min(_offers(exchange, giver, receivers), default=None)
    if best is None or best[0] >= exchange.cost_down(giver):
        return None
    *_, receiver, pool = best
    exchange.hand_over(pool, giver, receiver)
    exchange.load[giver] -= 1
    exchange.load[receiver] += 1
    return receiver


def _offers(
    exchange: Exchange, giver: int, receivers: Sequence[CheapestFirst[int, int]]
) -> Iterator[tuple[int, bool, int, int, int]]:
    """Yield the consumers that could take a partition from `giver`.

    Each with the cost there, whether that is a move more, then what spreads the pools (least where it goes, most
    where it comes from), the receiver and the pool.
    """
    for pool in exchange.pools_of[giver]:
        count = exchange.count[pool]
        if count.get(giver):
            cost, receiver = receivers[pool].first()
            spread = count.get(receiver, 0) - count[giver]
            yield cost, not exchange.strays(pool, giver), spread, receiver, pool
