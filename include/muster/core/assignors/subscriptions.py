"""Who may take what: topics grouped by the consumers that subscribe to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from muster.core.model import Consumer


@dataclass(frozen=True, slots=True)
class Audience:
    """Topics that exactly the same consumers subscribe to, at least one; both in ascending order."""

    topics: tuple[str, ...]
    consumers: tuple[str, ...]


def audiences(
    topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> tuple[Audience, ...]:
    """Group `topics` by their subscribers, in order of each group's first topic.

    Topics without a subscriber are in none of the groups. Where all consumers subscribe to the same topics,
    there is one group, and the cost is that of one look at each topic and each consumer: consumers with equal
    subscriptions are looked at once, together.
    """
    alike: dict[frozenset[str] | None, list[str]] = {}
    for consumer in sorted(consumers):
        alike.setdefault(consumers[consumer].topics, []).append(consumer)
    takers: dict[str, list[int]] = {topic: [] for topic in sorted(topics)}
    for number, wanted in enumerate(alike):
        for topic in takers if wanted is None else takers.keys() & wanted:
            takers[topic].append(number)
    groups: dict[tuple[int, ...], list[str]] = {}
    for topic, numbers in takers.items():
        groups.setdefault(tuple(numbers), []).append(topic)
    members = list(alike.values())
    return tuple(
        Audience(tuple(group), tuple(sorted(chain.from_iterable(members[number] for number in numbers))))
        for numbers, group in groups.items()
        if numbers
    )
