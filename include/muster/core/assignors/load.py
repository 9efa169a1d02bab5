"""What it costs a consumer to carry one partition more: the measure of balance under weights.

Balance is the least sum over all consumers of `partitions² / weight`. With equal weights that means that no two
consumers differ by more than one where subscriptions allow it, and with different subscriptions that no chain of
hand-overs could make two consumers more equal. With different weights it is the apportionment of Webster and
Sainte-Laguë: each partition goes where `(2n + 1) / weight` is least, n being what the consumer has already.

Costs are whole numbers, so that ties are ties: with floating point, a rounding error would cost a needless move.
"""

from __future__ import annotations

import math

from muster.core.model import Consumer

_PER_ONE = 10**6
"""Weights count in millionths."""
_SCALE = 10**24
"""Large enough that different quotients stay different when they are rounded down."""


def weight_of(consumer: Consumer) -> int:
    """The consumer's weight in millionths, at least 1.

    A weight that is zero, negative or not a finite number counts as the least there is: such a consumer gets
    partitions without other subscribers, and otherwise none.
    """
    if not math.isfinite(consumer.weight):
        return 1
    return max(1, round(consumer.weight * _PER_ONE))


def cost_of_next(load: int, weight: int) -> int:
    """The cost of one partition more for a consumer that has `load` of them. Grows with `load`."""
    return (2 * load + 1) * _SCALE // weight
