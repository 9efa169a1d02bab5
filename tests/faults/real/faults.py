"""What a fault is: a name for the matrix, and what is done. When it returns, the fault is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.real.world import World


@dataclass(frozen=True)
class Fault:
    """`planned`: what moves, moves in order, so that no record may come twice.

    `inject` may return how often it did the fault, if that is not once. Without `mended` the next fault begins as
    soon as all flows again, while this one is still being mended. `slow` ones are not part of `make test`.
    """

    name: str
    inject: Callable[[World], int | None]
    planned: bool = False
    mended: bool = True
    slow: bool = False
