"""Whose turn it is where topics have different handlers: a batch holds records of one handler's topics only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.core.model import TopicPartition


class Turns:
    """Gives the handlers turns, of those that have something to read. `handler_of` numbers a topic's handler."""

    def __init__(self, handler_of: Callable[[str], int]) -> None:
        self._handler_of = handler_of
        self._last = -1

    def ends(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Up to where the next batch may read: to the ends of those whose turn it is."""
        of = {tp: self._handler_of(tp[0]) for tp in positions}
        waiting = sorted({of[tp] for tp, at in positions.items() if ends.get(tp, at) > at})
        if waiting:
            self._last = next((number for number in waiting if number > self._last), waiting[0])
        return {tp: ends[tp] for tp in positions.keys() & ends.keys() if of[tp] == self._last}
