"""Whose turn it is, when a consumer of weight 2 has two turns where one of weight 1 has one.

A consumer's turns stand at even distances on a line, turn n at `(2n + 1) / weight`
(`muster.core.assignors.load`), and come in that order, those of the lower id first. With equal weights that
is a circle in order of id, entered again by all after the last; with different ones, the turns of each are
spread as evenly as they can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace

from muster.core.assignors.load import cost_of_next

_Turn = tuple[int, str]
"""Where on the line, and whose."""


class WeightedTurns:
    """Turns dealt out one after the other to some of the consumers at a time; the others' turns are lost."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        """`weights` are whole numbers of at least 1."""
        self._weights = weights
        self._last: _Turn = (-1, "")
        self._takers: tuple[str, ...] = ()
        self._next: list[_Turn] = []
        self._number: dict[str, int] = {}

    def deal(self, takers: tuple[str, ...], turns: int) -> list[str]:
        """Give the next `turns` turns to `takers`, one or more; others are passed over."""
        if takers != self._takers:
            self._enter(takers)
        dealt = []
        for _ in range(turns):
            self._last = self._next[0]
            consumer = self._last[1]
            dealt.append(consumer)
            self._number[consumer] += 1
            heapreplace(self._next, self._turn(consumer))
        return dealt

    def _enter(self, takers: Iterable[str]) -> None:
        """Find each taker's first turn after the last one that was dealt."""
        self._takers = tuple(takers)
        self._number = {}
        for consumer in self._takers:
            number = self._guess(consumer)
            self._number[consumer] = number
            while self._turn(consumer) <= self._last:
                self._number[consumer] += 1
        self._next = [self._turn(consumer) for consumer in self._takers]
        heapify(self._next)

    def _guess(self, consumer: str) -> int:
        """A turn of `consumer` that is not after its next one, and one or two before it at most."""
        distance = cost_of_next(0, self._weights[consumer])
        return max(0, (self._last[0] // distance - 1) // 2 - 1)

    def _turn(self, consumer: str) -> _Turn:
        return cost_of_next(self._number[consumer], self._weights[consumer]), consumer
