"""What it costs a consumer to carry one partition more: the measure of balance under weights.

Balance is the least sum over all consumers of `partitions² / weight`. With equal weights that means that no two
consumers differ by more than one where subscriptions allow it, and with different subscriptions that no chain of
hand-overs could make two consumers more equal. With different weights it is the apportionment of Webster and
Sainte-Laguë: each partition goes where `(2n + 1) / weight` is least, n being what the consumer has already.

Costs are whole numbers, so that ties are ties: with floating point, a rounding error would cost a needless move.

`fair_shares` divides what all consumers may take. `CheapestFirst` finds the consumer that bears one more most
cheaply; `hand_over_in_turn` makes a plan more balanced with single hand-overs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

from muster.core.model import Consumer

_PER_ONE = 10**6
"""Weights count in millionths."""
_SCALE = 10**24
"""Large enough that different quotients stay different when they are rounded down."""

_Cost = TypeVar("_Cost", bound=Any)
_Taker = TypeVar("_Taker", bound=Any)


def weight_of(consumer: Consumer) -> int:
    """Return the consumer's weight in millionths, at least 1.

    A weight that is zero, negative or not a finite number counts as the least there is: such a consumer gets
    partitions without other subscribers, and otherwise none.
    """
    if not math.isfinite(consumer.weight):
        return 1
    return max(1, round(consumer.weight * _PER_ONE))


def weights_of(consumers: Mapping[str, Consumer]) -> dict[str, int]:
    """Return the weight of each consumer, in order of id."""
    return {consumer: weight_of(consumers[consumer]) for consumer in sorted(consumers)}


def cost_of_next(load: int, weight: int, size: int = 1) -> int:
    """Return the cost of `size` partitions more for a consumer that has `load` of them. Grows with `load`."""
    return size * (2 * load + size) * _SCALE // weight


def for_weight(load: int, weight: int) -> int:
    """Return the load in proportion to weight, on the scale of the costs."""
    return load * _SCALE // weight


class CheapestFirst(Generic[_Taker, _Cost]):
    """Takers by what one more would cost them now.

    Costs may grow at any time. A taker whose cost falls is found at its old cost until it is pushed again.
    """

    def __init__(self, takers: Iterable[_Taker], cost: Callable[[_Taker], _Cost]) -> None:
        self._cost = cost
        self._heap = [(cost(taker), taker) for taker in takers]
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def first(self) -> tuple[_Cost, _Taker]:
        """Return the taker that costs least. Entries are brought up to date when they come to the top."""
        heap, cost = self._heap, self._cost
        while heap[0][0] != (now := cost(heap[0][1])):
            heapreplace(heap, (now, heap[0][1]))
        return heap[0]

    def first_but(self, passed_over: Collection[_Taker]) -> tuple[_Cost, _Taker] | None:
        """Return the taker that costs least and is not to be `passed_over`, None if there is none."""
        passed = []
        found = None
        while self._heap and (found := self.first())[1] in passed_over:
            passed.append(heappop(self._heap))
            found = None
        for entry in passed:
            heappush(self._heap, entry)
        return found

    def push(self, taker: _Taker) -> None:
        """Enter `taker` with what it costs now."""
        heappush(self._heap, (self._cost(taker), taker))

    def drop_first(self) -> None:
        """Remove the taker that `first` returned."""
        heappop(self._heap)


def hand_over_in_turn(
    givers: Iterable[_Taker], pressure: Callable[[_Taker], int], hand_over: Callable[[_Taker], _Taker | None]
) -> bool:
    """Let the giver under most `pressure` hand over first, and report whether any did.

    `hand_over` lets one giver hand over what improves the balance most, and returns the receiver, None if nothing
    does. Giver and receiver then have their turn again. A receiver that became cheaper meanwhile may be missed, so
    one round need not be the last.
    """
    handed_over = False
    heap = [(-pressure(giver), giver) for giver in givers]
    heapify(heap)
    while heap:
        entered, giver = heappop(heap)
        if entered != (now := -pressure(giver)):
            heappush(heap, (now, giver))
        elif (receiver := hand_over(giver)) is not None:
            handed_over = True
            for consumer in (giver, receiver):
                heappush(heap, (-pressure(consumer), consumer))
    return handed_over


def fair_shares(total: int, weights: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Divide `total` partitions among the consumers in `weights`: balanced first, then with the fewest moves.

    Picture every consumer's first, second, third ... partition as seats, each with its cost (`cost_of_next`).
    The answer is the `total` cheapest seats; among seats of equal cost those go first whose consumer `held` as
    many partitions before, because they cost no move, then those of the lower id. A consumer's seats grow dearer
    one by one, so the cheapest seats are the first so many of each consumer: no other division is as balanced,
    and among those that are, none lets more partitions stay.

    The work does not grow with `total`: all but at most one seat a consumer are known beforehand.
    """

    def seat(consumer: str, number: int) -> tuple[int, bool, str]:
        return (cost_of_next(number, weights[consumer]), number >= held.get(consumer, 0), consumer)

    # Seat n of a consumer costs (2n + 1) / weight. Taking all seats of at most (2 total - consumers) / everything
    # gives each consumer its proportional share, less half a seat, plus or minus half a seat: never too many.
    everything = sum(weights.values())
    sure = 2 * total - len(weights)
    shares = {c: max(0, (weight * sure + everything) // (2 * everything)) for c, weight in weights.items()}
    cheapest = [seat(consumer, share) for consumer, share in shares.items()]
    heapify(cheapest)
    for _ in range(total - sum(shares.values())):
        consumer = cheapest[0][-1]
        shares[consumer] += 1
        heapreplace(cheapest, seat(consumer, shares[consumer]))
    return shares


def shares_above(
    least: Mapping[str, int], total: int, weights: Mapping[str, int], held: Mapping[str, int]
) -> dict[str, int]:
    """Divide like `fair_shares`, but give each consumer its `least` at least; `total` is not smaller than their sum.

    A consumer whose least is more than its fair share gets just that, and the others share the rest fairly, until
    no consumer is below its least. That is the best there is: what those take too much makes the others' shares only
    smaller, so that none that was set aside would get more than its least in the end.
    """
    shares: dict[str, int] = {}
    sharing = dict(weights)
    while sharing:
        found = fair_shares(total - sum(shares.values()), sharing, held)
        above = {c: least[c] for c in sharing if least.get(c, 0) > found[c]}
        if not above:
            return shares | found
        shares |= above
        sharing = {c: weight for c, weight in sharing.items() if c not in above}
    return shares
