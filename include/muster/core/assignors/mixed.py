"""How many partitions of each pool each consumer gets when consumers subscribe to different topics.

Each pool holds the partitions that the same consumers may take, so within a pool only numbers matter. Looked for
are the numbers with the least sum of costs (`muster.core.assignors.load`) and, among those, with the fewest moves.

1. What has no owner goes, pool by pool, to the consumers that carry least; pools with few consumers first.
2. While a consumer can make the sum smaller by handing one partition directly to another, the one that carries
   most does.
3. Chains: A hands to B from one pool, B to C from another, and so on (`muster.core.assignors.chains`). When there is
   none left, nothing is better balanced.
4. A chain that ends where it began leaves all loads as they are and can still save moves. In the graph of hand-overs
   each improvement is a cycle of negative length, and when there is none left, nothing better exists (the theorem
   behind min-cost flow).

The searches of 3 and 4 look at every pair of pool and subscriber several times over, so each has a budget. If it does
not suffice, the result of the step before stands: half of a search would be better, but the next planning would go on
from there and move more partitions, and so on, though nothing has happened to the cluster. Where the result is
already as good as if every consumer subscribed to everything, there is no search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from muster.core.assignors.chains import Chains
from muster.core.assignors.load import cost_of_next
from muster.core.assignors.pool import Pool
from muster.core.assignors.shares import fair_shares

BUDGET = 2_000_000
"""How many hand-overs are looked at in each search: some 0.4 seconds at the most."""


def mixed_shares(
    pools: Sequence[Pool],
    weights: Mapping[str, int],
    *,
    chain_budget: int = BUDGET,
    circle_budget: int = BUDGET,
) -> list[dict[str, int]]:
    """Return each consumer's number of partitions of each pool, in the order of `pools`."""
    if not pools:
        return []
    exchange = _Exchange(pools, weights)
    exchange.place_unowned()
    exchange.hand_over_directly()
    balanced = exchange.is_even() or exchange.hand_over_in_chains(chain_budget)
    if balanced and not exchange.is_provably_best():
        exchange.hand_over_in_circles(circle_budget)
    return exchange.shares()


class _Exchange:
    """The numbers while they are being worked out. Consumers and pools go by their position.

    `count[pool][consumer]` partitions are given; of them `home[pool][consumer]` at most need not move.
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
        return [{self.names[c]: n for c, n in count.items() if n} for count in self.count]

    def cost_up(self, consumer: int) -> int:
        """What one partition more would cost at `consumer`."""
        return cost_of_next(self.load[consumer], self.weight[consumer])

    def cost_down(self, consumer: int) -> int:
        """What one partition less would save at `consumer`, which must have one."""
        return cost_of_next(self.load[consumer] - 1, self.weight[consumer])

    def give(self, pool: int, consumer: int, partitions: int) -> None:
        self.count[pool][consumer] = self.count[pool].get(consumer, 0) + partitions

    def strays(self, pool: int, consumer: int) -> bool:
        """Whether some partition of `pool` at `consumer` is not one that it had before."""
        return self.count[pool].get(consumer, 0) > self.home[pool].get(consumer, 0)

    def takes_new(self, pool: int, consumer: int) -> bool:
        """Whether one partition of `pool` more at `consumer` would be one that it did not have before."""
        return self.count[pool].get(consumer, 0) >= self.home[pool].get(consumer, 0)

    def place_unowned(self) -> None:
        for pool in sorted(range(len(self.takers)), key=lambda pool: (len(self.takers[pool]), pool)):
            if not self.unowned[pool]:
                continue
            cheapest = [(self.cost_up(consumer), consumer) for consumer in self.takers[pool]]
            heapify(cheapest)
            for _ in range(self.unowned[pool]):
                consumer = cheapest[0][1]
                self.give(pool, consumer, 1)
                self.load[consumer] += 1
                heapreplace(cheapest, (self.cost_up(consumer), consumer))

    def hand_over_directly(self) -> None:
        # Who gave may have become one that others can give to, so one round need not be the last.
        while self._hand_over_once_round():
            pass

    def _hand_over_once_round(self) -> bool:
        any_handed_over = False
        receivers = [[(self.cost_up(c), c) for c in takers] for takers in self.takers]
        for heap in receivers:
            heapify(heap)
        givers = [(-self.cost_down(c), c) for c, load in enumerate(self.load) if load]
        heapify(givers)
        while givers:
            saving, giver = heappop(givers)
            if not self.load[giver]:
                continue
            if -saving != self.cost_down(giver):
                heappush(givers, (-self.cost_down(giver), giver))
                continue
            cost, *_, receiver, pool = min(self._offers(giver, receivers))
            if cost >= -saving:
                continue
            any_handed_over = True
            self.give(pool, giver, -1)
            self.give(pool, receiver, 1)
            self.load[giver] -= 1
            self.load[receiver] += 1
            for consumer in (giver, receiver):
                if self.load[consumer]:
                    heappush(givers, (-self.cost_down(consumer), consumer))
        return any_handed_over

    def _offers(
        self, giver: int, receivers: list[list[tuple[int, int]]]
    ) -> Iterator[tuple[int, bool, int, int, int]]:
        """Who could take a partition from `giver`: cost there, whether that is a move more, then what spreads the
        pools (least where it goes, most where it comes from), the receiver and the pool."""
        for pool in self.pools_of[giver]:
            count = self.count[pool]
            if count.get(giver):
                cost, receiver = self._cheapest(receivers[pool])
                spread = count.get(receiver, 0) - count[giver]
                yield cost, not self.strays(pool, giver), spread, receiver, pool

    def _cheapest(self, heap: list[tuple[int, int]]) -> tuple[int, int]:
        """The receiver that carries least; entries are brought up to date only when they come to the top."""
        while heap[0][0] != (cost := self.cost_up(heap[0][1])):
            heapreplace(heap, (cost, heap[0][1]))
        return heap[0]

    def is_even(self) -> bool:
        """Whether even consumers that subscribe to everything could be balanced no better."""
        dearest = max((self.cost_down(c) for c, load in enumerate(self.load) if load), default=0)
        return dearest <= min(map(self.cost_up, range(len(self.names))))

    def hand_over_in_chains(self, budget: int) -> bool:
        """Balance as well as can be; False, and nothing is changed, if that takes more than the budget."""
        before, load = [dict(count) for count in self.count], list(self.load)
        if Chains(self).carry_out(budget):
            return True
        self.count, self.load = before, load
        return False

    def is_provably_best(self) -> bool:
        """Whether even consumers that subscribe to everything could do no better; then no search is needed."""
        if not self.is_even():
            return False
        held: Counter[str] = Counter()
        for home in self.home:
            for consumer, partitions in home.items():
                held[self.names[consumer]] += partitions
        weights = dict(zip(self.names, self.weight, strict=True))
        shares = fair_shares(sum(self.load), weights, held)
        staying = sum(
            min(partitions, home.get(consumer, 0))
            for home, count in zip(self.home, self.count, strict=True)
            for consumer, partitions in count.items()
        )
        return staying == sum(min(held[consumer], share) for consumer, share in shares.items())

    def hand_over_in_circles(self, budget: int) -> None:
        before = [dict(count) for count in self.count]
        graph = _HandOvers(self)
        while cycles := graph.negative_cycles(budget):
            for cycle in cycles:
                graph.carry_out(cycle)
        if graph.looked_at > budget:
            self.count = before


class _HandOvers:
    """The graph of what one partition more or less means, in which a cycle is a chain of hand-overs.

    Nodes are the consumers, then the pools, then one hub. An arc from a consumer to a pool is giving up a partition
    of that pool, an arc from a pool to a consumer is taking one; an arc from a consumer to the hub is carrying one
    partition more than before, one from the hub to a consumer is carrying one less. So a chain from A to C with one
    more at C and one less at A is a cycle through the hub. An arc is as long as its cost; a move counts as one,
    and the cost of load so much more that no number of moves outweighs it.
    """

    def __init__(self, exchange: _Exchange) -> None:
        self.exchange = exchange
        self.consumers = len(exchange.names)
        self.hub = self.consumers + len(exchange.takers)
        # A cycle visits each node once, so it holds fewer moves than this.
        self.load_unit = 4 * (self.hub + 1)
        self.looked_at = 0

    def arcs(self, node: int) -> Iterable[tuple[int, int]]:
        """The arcs from `node`: where to, and how long."""
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
        """Some cycles of negative length that have no node in common; none at all if there is none.

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
    """The cycles in a graph in which each node has at most one predecessor (-1: none), each in forward order."""
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
