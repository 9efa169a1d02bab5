"""What each partition counts when measured load is balanced: thousandths of a record, in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from muster.core.assignors.api import Loads

_PER_RECORD = 1000
_LEAST, _MOST = 1.0, 1e12


@dataclass(frozen=True, slots=True)
class PartitionLoads:
    """What each partition counts, by topic, and on average; `estimated` are those whose load is not known."""

    counts: Mapping[str, Mapping[int, int]]
    estimated: Mapping[str, frozenset[int]]
    average: int


def partition_loads(loads: Loads, topics: Mapping[str, Collection[int]]) -> PartitionLoads | None:
    """Return what each partition of `topics` counts, or None if the load of none of them is known.

    What a partition of known load counts depends on nothing but that load, and so is the same whatever else is known.
    A partition whose load is not known (or is negative or no finite number) counts as the mean of those of its topic
    that are, else of all. An idle partition counts as one record: it costs its consumer something, too.
    """
    known: dict[str, dict[int, int]] = {}
    for topic, numbers in topics.items():
        of_topic = loads.get(topic, {})
        found = {p: load for p in numbers if (load := of_topic.get(p, -1.0)) >= 0 and math.isfinite(load)}
        if found:
            known[topic] = {
                p: round(min(max(_LEAST, load), _MOST) * _PER_RECORD) for p, load in found.items()
            }
    every = [count for of_topic in known.values() for count in of_topic.values()]
    if not every:
        return None
    average = _mean(every)
    return PartitionLoads(
        {topic: _of_topic(numbers, known.get(topic, {}), average) for topic, numbers in topics.items()},
        {
            topic: frozenset(numbers).difference(known.get(topic, ()))
            for topic, numbers in topics.items()
            if len(known.get(topic, ())) < len(numbers)
        },
        average,
    )


def _of_topic(partitions: Collection[int], known: Mapping[int, int], average: int) -> dict[int, int]:
    unknown = _mean(known.values()) if known else average
    return {p: known.get(p, unknown) for p in partitions}


def _mean(counts: Collection[int]) -> int:
    return round(sum(counts) / len(counts))
