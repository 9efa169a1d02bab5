"""Cases with a planning context: pins, exclusions, racks and loads, sensible and nonsensical, grown from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from muster.core.assignors import PlanningContext
from muster.core.assignors.api import Racks
from muster.core.assignors.balance import weight_of
from muster.core.model import Assignment, Consumer
from tests.support.assignor_cases import Case, shuffled

RACKS = ("r1", "r2", "r3", "nobody's")
ZONES = ("r1", "r1", "r2", "r3", None, "elsewhere")


@dataclass(frozen=True)
class Situation:
    """What `run_assignor` is called with."""

    case: Case
    context: PlanningContext

    def may_take(self, consumer: str, topic: str) -> bool:
        """Whether a live consumer subscribes to the topic and is not excluded from it."""
        excluded = self.context.exclusions.get(consumer, frozenset())
        return self.case.consumers[consumer].subscribes(topic) and topic not in excluded

    def takers(self, topic: str) -> set[str]:
        return {c for c in self.case.consumers if self.may_take(c, topic)}

    def obeyable_pins(self) -> dict[tuple[str, int], str]:
        return {
            (topic, partition): consumer
            for topic, owners in self.context.pins.items()
            for partition, consumer in owners.items()
            if topic in self.case.topics
            and partition in self.case.topics[topic]
            and consumer in self.case.consumers
            and self.may_take(consumer, topic)
        }


@st.composite
def situations(
    draw: st.DrawFn,
    cases: st.SearchStrategy[Case],
    *,
    pins: bool = True,
    exclusions: bool = True,
    racks: bool = True,
    loads: bool = True,
) -> Situation:
    """`cases` with as much of each part of the context as asked for; each may also be absent."""
    case = draw(cases)
    random_ = random.Random(draw(st.integers(0, 2**32)))
    some = st.sampled_from([0.0, 0.1, 0.5, 1.0])
    names = [*case.consumers, "nobody"]
    places = [(t, p) for t in sorted(case.topics) for p in sorted(case.topics[t])]
    part = {what: draw(some) for what in ("pins", "exclusions", "racks", "loads")}
    consumers = {c: replace(v, zone=random_.choice(ZONES)) for c, v in case.consumers.items()}
    pinned = {
        place: random_.choice(names)
        for place in [*places, ("gone", 0), *((t, 999) for t in sorted(case.topics))]
        if pins and random_.random() < part["pins"]
    }
    excluded = {
        c: frozenset(t for t in [*sorted(case.topics), "gone"] if random_.random() < 0.3)
        for c in names
        if exclusions and random_.random() < part["exclusions"]
    }
    in_rack = {p: random_.choice(RACKS) for p in places if racks and random_.random() < part["racks"]}
    load = {
        p: random_.choice([0.0, 1.0, random_.random() * 10, random_.paretovariate(1.0), -1.0, float("nan")])
        for p in places
        if loads and random_.random() < part["loads"]
    }
    return Situation(
        replace(case, consumers=consumers),
        PlanningContext(
            pins=_by_topic(pinned), exclusions=excluded, racks=_by_topic(in_rack), loads=_by_topic(load)
        ),
    )


def matches(assignment: Assignment, racks: Racks, consumers: Mapping[str, Consumer]) -> int:
    """How many partitions are read in the zone of their leader."""
    return sum(
        owners[partition] in consumers and consumers[owners[partition]].zone == rack
        for topic, owners in assignment.items()
        for partition, rack in racks.get(topic, {}).items()
        if partition in owners
    )


def reordered(situation: Situation, seed: int) -> Situation:
    """The same situation with every mapping built in another order."""
    random_ = random.Random(seed)

    def other_order(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
        items = [(k, other_order(v) if isinstance(v, Mapping) else v) for k, v in mapping.items()]
        random_.shuffle(items)
        return dict(items)

    old = situation.context
    return Situation(
        shuffled(situation.case, seed),
        PlanningContext(
            pins=other_order(old.pins),
            exclusions=other_order(old.exclusions),
            racks=other_order(old.racks),
            loads=other_order(old.loads),
        ),
    )


def with_any_weight(case: Case) -> dict[str, int]:
    """Each consumer's weight as the assignors count it."""
    return {c: weight_of(consumer) for c, consumer in case.consumers.items()}


def _by_topic(values: Mapping[tuple[str, int], Any]) -> dict[str, dict[int, Any]]:
    result: dict[str, dict[int, Any]] = {}
    for (topic, partition), value in values.items():
        result.setdefault(topic, {})[partition] = value
    return result
