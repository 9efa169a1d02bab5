"""How many records of a topic may be read a second, whichever consumers have its partitions.

Each partition has its share of the topic's rate: the rate by the number of its partitions. So the rate holds for all
consumers together, without any of them knowing of the others, and a partition that moves takes its share along. What
a partition without records does not use is not given to others.

What a partition may give adds up from one planning to the next, and what it was not able to use is kept for `BURST`
seconds' worth, or a single record. It begins with nothing, so a partition that moves, or a query that is started
again, gives no more. Records that are read again because a batch failed count again: the limit is for what the
handler is given.

Pure; times are in seconds, of the caller's clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster.core.model import TopicPartition

BURST = 1.0


@dataclass(slots=True)
class _Allowance:
    """What a partition may give, in records, as of a moment."""

    records: float
    at: float


class Rates:
    """Rates in records a second, by regular expressions of whole topic names; the first that matches counts."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = [(re.compile(pattern), rate) for pattern, rate in rates.items()]
        self._allowed: dict[TopicPartition, _Allowance] = {}

    def of(self, topic: str) -> float | None:
        """Return the rate of a topic, None if it has no limit."""
        return next((rate for pattern, rate in self._rates if pattern.fullmatch(topic)), None)

    def allow(self, partitions: Mapping[TopicPartition, int], now: float) -> dict[TopicPartition, int]:
        """Return how many records each partition may give now that is read here and has a limit; `partitions` says
        how many its topic has."""
        self._allowed = {tp: allowed for tp, allowed in self._allowed.items() if tp in partitions}
        for tp, number in partitions.items():
            rate = self.of(tp[0])
            if rate is None:
                continue
            share = rate / max(1, number)
            before = self._allowed.get(tp, _Allowance(0.0, now))
            kept = min(before.records, max(1.0, share * BURST))
            self._allowed[tp] = _Allowance(kept + share * (now - before.at), now)
        return {tp: int(allowed.records + 1e-6) for tp, allowed in self._allowed.items()}

    def taken(self, records: Mapping[TopicPartition, int]) -> None:
        """Take note of how many records a batch holds of each partition."""
        for tp, number in records.items():
            if tp in self._allowed:
                self._allowed[tp].records -= number
