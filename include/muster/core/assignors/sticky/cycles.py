"""Save moves where balance can be no better: the last step for mixed subscriptions.

A chain of hand-overs that ends where it began leaves all loads as they are and can still save moves. In the graph of
hand-overs each improvement is a cycle of negative length, and when there is none left, nothing better exists (the
theorem behind min-cost flow).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from muster.core.assignors.sticky.exchange import Exchange
from muster.core.assignors.sticky.shares import fair_shares


def is_provably_best(exchange: Exchange) -> bool:
    """Report whether balance and moves are as good as if every consumer subscribed to everything.

    Then there is nothing to search for.
    """
    if not exchange.is_even():
        return False
    held: Counter[str] = Counter()
    for home in exchange.home:
        for consumer, partitions in home.items():
            held[exchange.names[consumer]] += partitions
    weights = dict(zip(exchange.names, exchange.weight, strict=True))
    shares = fair_shares(sum(exchange.load), weights, held)
    staying = sum(
        min(partitions, home.get(consumer, 0))
        for home, count in zip(exchange.home, exchange.count, strict=True)
        for consumer, partitions in count.items()
    )
    return staying == sum(min(held[consumer], share) for consumer, share in shares.items())


def hand_over_in_cycles(exchange: Exchange, budget: int) -> None:
    """Save all moves that can be saved; nothing is changed if that takes more than `budget` steps."""
    before = exchange.numbers()
    graph = _Graph(exchange)
    while cycles := graph.negative_cycles(budget):
        for cycle in cycles:
            graph.carry_out(cycle)
    if graph.looked_at > budget:
        exchange.restore(before)


class _Graph:
    """The graph of what one partition more or less means, in which a cycle is a chain of hand-overs.

    Nodes are the consumers, then the pools, then one hub. An arc from a consumer to a pool is giving up a partition
    of that pool, an arc from a pool to a consumer is taking one; an arc from a consumer to the hub is carrying one
    partition more than before, one from the hub to a consumer is carrying one less. So a chain from A to C with one
    more at C and one less at A is a cycle through the hub. An arc is as long as its cost; a move counts as one,
    and the cost of load so much more that no number of moves outweighs it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.consumers = len(exchange.names)
        self.hub = self.consumers + len(exchange.takers)
        # A cycle visits each node once, so it holds fewer moves than this.
        self.load_unit = 4 * (self.hub + 1)
        self.looked_at = 0

    def arcs(self, node: int) -> Iterable[tuple[int, int]]:
        """Yield the arcs from `node`: where to, and how long."""
        exchange = self.exchange
        if node == self.hub:
            for consumer, load in enumerate(exchange.load):
                if load:
                    yield consumer, -exchange.cost_down(consumer) * self.load_unit
        elif node < self.consumers:
            for pool in exchange.pools_of[node]:
                if exchange.count[pool].get(node):
                    yield self.consumers + pool, -1 if exchange.strays(pool, node) else 0
            yield self.hub, exchange.cost_up(node) * self.load_unit
        else:
            pool = node - self.consumers
            for consumer in exchange.takers[pool]:
                yield consumer, 1 if exchange.takes_new(pool, consumer) else 0

    def negative_cycles(self, budget: int) -> list[list[int]]:
        """Return some cycles of negative length that have no node in common; none only if there is none.

        Bellman-Ford from all nodes at once. A cycle among the predecessors is of negative length, and it shows
        before the distances have settled. Gives up, with none, as soon as `looked_at` exceeds the budget.
        """
        distance = [0] * (self.hub + 1)
        predecessor = [-1] * (self.hub + 1)
        changed: Iterable[int] = range(self.hub + 1)
        while changed:
            reached: set[int] = set()
            for node in changed:
                start = distance[node]
                for target, length in self.arcs(node):
                    self.looked_at += 1
                    if start + length < distance[target]:
                        distance[target] = start + length
                        predecessor[target] = node
                        reached.add(target)
            if self.looked_at > budget:
                return []
            if cycles := _cycles(predecessor):
                return cycles
            changed = sorted(reached)
        return []

    def carry_out(self, cycle: list[int]) -> None:
        """Make the hand-overs of `cycle`, whose nodes stand in order."""
        exchange = self.exchange
        for node, target in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if target == self.hub:
                exchange.load[node] += 1
            elif node == self.hub:
                exchange.load[target] -= 1
            elif node < self.consumers:
                exchange.give(target - self.consumers, node, -1)
            else:
                exchange.give(node - self.consumers, target, 1)


def _cycles(predecessor: list[int]) -> list[list[int]]:
    """Return the cycles in a graph in which each node has one predecessor at most (-1: none), in forward order."""
    seen = [0] * len(predecessor)
    cycles = []
    for start in range(len(predecessor)):
        node = start
        while node >= 0 and not seen[node]:
            seen[node] = start + 1
            node = predecessor[node]
        if node >= 0 and seen[node] == start + 1:
            cycle = [node]
            while (node := predecessor[node]) != cycle[0]:
                cycle.append(node)
            cycles.append(cycle[::-1])
    return cycles
