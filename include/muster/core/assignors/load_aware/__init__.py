"""Load-aware: evens out measured load within a tolerance and a budget of moves; sticky where no load is known.

Known from Brooklin's load-based strategy and from lag-based assignors. In this order:

1. A partition stays with a consumer that is live and subscribed, and a pinned one goes to its consumer.
2. Partitions without an owner go, the one with most load first, each to the consumer that carries least for its
   `weight`: within the zone of its leader as long as that keeps the consumer within the tolerance.
3. As long as some consumer carries more or less than its proportional part of all load by more than `tolerance`,
   partitions move between it and a consumer that carries less or more than it by more than that, each time the one
   (or the swap of two) that makes these two most even. That ends when all are within the tolerance, when no move
   (with any consumer) and no swap (with one of the few that differ most) makes it better, or when `budget`
   partitions have moved that could have stayed. The rest follows with the next planning.

So within the tolerance nothing moves, however load goes up and down. How many partitions a consumer has follows
from their load; one that is idle counts as one record (a second, or of lag). In 2 each partition costs a tenth of
an average one beside its load, so that idle ones are spread as well.

Where the load of no partition is known, it is sticky (`muster.core.assignors.sticky`). Otherwise a partition of
unknown load counts as the mean of those known of its topic, else of all (`partition_loads`), and its consumer is
left out of 3 until it is known what it carries: so what has just moved is measured in its new place before anything
else moves on its account, and no plan undoes what the one before did because it knows less. Under constant load it
comes to rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from muster.core.assignors.api import NOTHING, Loads, Pins, Racks, Standbys
from muster.core.assignors.pins import with_pinned
from muster.core.assignors.standing_by import StandingBy
from muster.core.assignors.sticky import Sticky
from muster.core.assignors.subscriptions import audiences
from muster.core.assignors.zones import zones_that_matter
from muster.core.model import Assignment, Consumer

Measure = Literal["rate", "lag"]
"""What load is: records a second, or records of lag."""
_PER_RECORD = 1000
"""Loads count in thousandths of a record, in whole numbers."""
_LEAST, _MOST = 1.0, 1e12


class LoadAware(StandingBy):
    """Assigns by the rule of this module.

    Options: `measure` says what the consumers are asked for, "rate" (records a second, the default) or "lag"
    (records); `tolerance` is a fraction, by default 0.2 (a fifth); `budget` is a number of partitions a planning, by
    default 20; `standbys` is how many consumers stand by for each partition, by default 0, as with sticky.
    """

    name = "load-aware"

    def __init__(
        self, measure: Measure = "rate", tolerance: float = 0.2, budget: int = 20, standbys: int = 0
    ) -> None:
        if measure not in get_args(Measure):
            raise ValueError(f"measure must be one of {', '.join(get_args(Measure))}, found {measure!r}")
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be from 0 to less than 1 (0.2 is a fifth), found {tolerance!r}")
        if budget < 0 or budget != int(budget):
            raise ValueError(f"budget must be a whole number of partitions, at least 0, found {budget!r}")
        self.measure: Measure = measure
        self.tolerance = float(tolerance)
        self.budget = int(budget)
        super().__init__(standbys)

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        /,
        pins: Pins = NOTHING,
        racks: Racks = NOTHING,
        loads: Loads = NOTHING,
        standbys: Standbys = NOTHING,
    ) -> Assignment:
        """See `Assignor.assign`; `pins` are those that can be obeyed, the rest is as in `PlanningContext`."""
        pins = self._promoted(topics, consumers, previous, standbys, pins)
        groups = audiences(topics, consumers)
        taken = {topic: topics[topic] for audience in groups for topic in audience.topics}
        known = partition_loads(loads, taken) if loads else None
        if known is None:
            return Sticky().assign(topics, consumers, previous, pins=pins, racks=racks)
        # With it comes numpy, and DAG files that only want the assignors' names stay light.
        from muster.core.assignors.load_aware.load_balancer import LoadBalancer  # noqa: PLC0415

        balancer = LoadBalancer(groups, consumers, known, self.tolerance)
        balancer.place(taken, with_pinned(previous, pins), pins, zones_that_matter(racks, topics, consumers))
        balancer.even_out(self.budget)
        return balancer.owners


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
