"""What each partition counts when measured load is evened out: whole numbers, a thousand for an average partition."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Loads = Mapping[str, Mapping[int, float]]
"""Topic to partition to measured load, in records a second or records of lag; what is not known is absent."""

NO_LOADS: Loads = {}

AVERAGE = 1000
"""What a partition of average load counts."""
_LEAST = AVERAGE // 10
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Counted:
    """What each partition counts, by topic; `estimated` are those whose load is not known."""

    counts: Mapping[str, Mapping[int, int]]
    estimated: Mapping[str, frozenset[int]]


def counted(loads: Loads, topics: Mapping[str, Collection[int]]) -> Counted | None:
    """Return what each partition of `topics` counts, or None if too little is known to say.

    Too little is less than half of the partitions, or no load at all on any of them. A partition whose load is not
    known (or is negative or no finite number) counts as the mean of those of its topic that are, else of all. An
    idle partition counts a tenth of the average: it costs its consumer something, too, and may wake up.
    """
    known: dict[str, dict[int, float]] = {}
    partitions = 0
    for topic, numbers in topics.items():
        of_topic = loads.get(topic, {})
        found = {p: load for p in numbers if (load := of_topic.get(p, -1.0)) >= 0 and math.isfinite(load)}
        partitions += len(numbers)
        if found:
            known[topic] = found
    every = [load for of_topic in known.values() for load in of_topic.values()]
    mean = math.fsum(every) / len(every) if every else 0.0
    if len(every) < _ENOUGH * partitions or not mean or not math.isfinite(mean):
        return None
    return Counted(
        {topic: _of_topic(numbers, known.get(topic, {}), mean) for topic, numbers in topics.items()},
        {
            topic: frozenset(numbers).difference(known.get(topic, ()))
            for topic, numbers in topics.items()
            if len(known.get(topic, ())) < len(numbers)
        },
    )


def _of_topic(partitions: Collection[int], known: Mapping[int, float], mean: float) -> dict[int, int]:
    unknown = _count(math.fsum(known.values()) / len(known) if known else mean, mean)
    return {p: _count(known[p], mean) if p in known else unknown for p in partitions}


def _count(load: float, mean: float) -> int:
    return max(_LEAST, round(load / mean * AVERAGE))
