"""What a fault is: a name for the table, and what is done. When it returns, the fault is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.hosts.world import World


@dataclass(frozen=True)
class Fault:
    """`planned`: what moves, moves in order, so that no record may come twice. `short`: it is in the short form, too.

    `inject` may return how often it did the fault, if that is not once.
    """

    name: str
    inject: Callable[[World], int | None]
    planned: bool = False
    short: bool = False
