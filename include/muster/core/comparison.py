"""How much a plan moves and how even it is, against what stands and against another plan.

Numbers for people: they judge a plan before it is carried out, and a candidate assignor beside the live one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.core.assignors.balance import weight_of
from muster.core.model import Assignment, Consumer

_PER_ONE = 10**6


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly partitions lie on the live consumers.

    `least` and `most` are partitions of one consumer; `least_per_weight` and `most_per_weight` are partitions per
    unit of `weight`, which is what an assignor that honours weights evens out. `unowned` counts the partitions
    that no live consumer has. Without live consumers everything else is 0.
    """

    consumers: int
    partitions: int
    least: int
    most: int
    least_per_weight: float
    most_per_weight: float
    unowned: int

    def __str__(self) -> str:
        """Write as in '3 to 4 partitions a consumer', with the weighted figures where weights make them differ."""
        text = f"{_span(self.least, self.most)} partitions a consumer"
        if (self.least_per_weight, self.most_per_weight) != (self.least, self.most):
            text += f" ({_span(self.least_per_weight, self.most_per_weight)} per unit of weight)"
        return text + (f", {self.unowned} without a live owner" if self.unowned else "")


def _span(least: float, most: float) -> str:
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def partitions_by_consumer(assignment: Assignment, consumers: Mapping[str, Consumer]) -> dict[str, int]:
    """Count the partitions that each live consumer has, those with none included, in order of id."""
    counts = dict.fromkeys(sorted(consumers), 0)
    for owners in assignment.values():
        for owner in owners.values():
            if owner in counts:
                counts[owner] += 1
    return counts


def balance_of(
    assignment: Assignment, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> Balance:
    """Measure `assignment` over `topics` (topic to its partitions) and the live `consumers`."""
    counts = partitions_by_consumer(assignment, consumers)
    owned = sum(counts.values())
    per_weight = [
        round(count * _PER_ONE / weight_of(consumers[consumer]), 3) for consumer, count in counts.items()
    ]
    return Balance(
        consumers=len(counts),
        partitions=owned,
        least=min(counts.values(), default=0),
        most=max(counts.values(), default=0),
        least_per_weight=min(per_weight, default=0.0),
        most_per_weight=max(per_weight, default=0.0),
        unowned=sum(len(partitions) for partitions in topics.values()) - owned,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A partition that two assignments place differently; None where one of them gives it no owner."""

    topic: str
    partition: int
    first: str | None
    second: str | None


def differences(first: Assignment, second: Assignment) -> list[Difference]:
    """Return the partitions whose owner is not the same in both, by topic and partition."""
    found: list[Difference] = []
    for topic in sorted(first.keys() | second.keys()):
        one, other = first.get(topic, {}), second.get(topic, {})
        found += [
            Difference(topic, partition, one.get(partition), other.get(partition))
            for partition in sorted(one.keys() | other.keys())
            if one.get(partition) != other.get(partition)
        ]
    return found


def resulting(standing: Assignment, planned: Assignment, topics: Mapping[str, frozenset[int]]) -> Assignment:
    """Return what stands once `planned` is carried out.

    A partition that the plan gives no owner (no live consumer subscribes to its topic) stays with the owner it
    has, gone or not, so that one that comes back finds it: that is the state machine's rule.
    """
    result: dict[str, dict[int, str]] = {}
    for topic, partitions in topics.items():
        new, old = planned.get(topic, {}), standing.get(topic, {})
        result[topic] = {p: new.get(p, old.get(p, "")) for p in partitions if p in new or p in old}
    return result
