"""How many partitions each of several consumers gets when all of them may take all partitions."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace

from muster.core.assignors.balance import cost_of_next


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
