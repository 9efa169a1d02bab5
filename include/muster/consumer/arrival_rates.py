"""How many records arrive in each partition a second, over about the last minute, from where partitions end.

What arrives is the partition's own load: it does not depend on how fast this consumer is, as what was processed
would, and it is the same before and after the partition moves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from muster.core.ownership import TopicPartition

OVER = 60.0
"""Seconds after which what was seen counts for 1/e of what is seen now."""
SHORTEST = 10.0
"""Seconds that a partition is watched for before a rate is told: one burst says little."""


@dataclass(slots=True)
class _Watched:
    end: int
    at: float
    since: float
    records: float = 0.0
    seconds: float = 0.0


class ArrivalRates:
    """The rates of the partitions whose ends are `seen`. Not thread-safe; times are seconds of any steady clock.

    Records and the time they took to arrive fade with the same factor, and the rate is one divided by the other. So
    it is right from the first seconds on, and looks may come at irregular times.
    """

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    def seen(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Partitions ended at these offsets just `now`. One that ends earlier than before was made again."""
        for key, end in ends.items():
            known = self._watched.get(key)
            if known is None or end < known.end:
                self._watched[key] = _Watched(end, now, now)
                continue
            passed = now - known.at
            if passed <= 0:
                continue
            fade = math.exp(-passed / OVER)
            counted = OVER * (1 - fade)
            known.records = known.records * fade + (end - known.end) * counted / passed
            known.seconds = known.seconds * fade + counted
            known.end, known.at = end, now

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the others."""
        self._watched = {key: known for key, known in self._watched.items() if key in partitions}

    def rates(self) -> dict[TopicPartition, float]:
        """Records a second of each partition that was watched for long enough."""
        return {
            key: known.records / known.seconds
            for key, known in self._watched.items()
            if known.at - known.since >= SHORTEST
        }
