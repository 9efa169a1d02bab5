"""What it costs a consumer to carry one partition more: the measure of balance under weights.

Balance is the least sum over all consumers of `partitions² / weight`. With equal weights that means that no two
consumers differ by more than one where subscriptions allow it, and with different subscriptions that no chain of
hand-overs could make two consumers more equal. With different weights it is the apportionment of Webster and
Sainte-Laguë: each partition goes where `(2n + 1) / weight` is least, n being what the consumer has already.

Costs are whole numbers, so that ties are ties: with floating point, a rounding error would cost a needless move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from heapq import heapreplace
from typing import Any, TypeVar

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


def cheapest(heap: list[tuple[_Cost, _Taker]], cost: Callable[[_Taker], _Cost]) -> tuple[_Cost, _Taker]:
    """Return the entry of `heap` whose taker costs least now.

    Entries are brought up to date when they come to the top. So costs may grow at any time; a taker whose cost falls
    has to be pushed again.
    """
    while heap[0][0] != (now := cost(heap[0][1])):
        heapreplace(heap, (now, heap[0][1]))
    return heap[0]
