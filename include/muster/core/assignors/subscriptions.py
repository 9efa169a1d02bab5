"""Which consumers may take which topics: subscriptions, less what a person excluded a consumer from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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


def without_excluded(
    consumers: Mapping[str, Consumer], exclusions: Mapping[str, frozenset[str]], topics: Iterable[str]
) -> Mapping[str, Consumer]:
    """Return `consumers` with what each one is excluded from taken out of its subscription.

    A person keeps a consumer away from topics; to an assignor it looks as if the consumer did not subscribe.
    `exclusions` is consumer to topics, `topics` are those there are. A consumer that is not excluded from
    anything it would take stays as it is, one that takes everything goes on taking all of `topics` but those.
    Exclusions of consumers or topics that do not exist have no effect.
    """
    if not exclusions:
        return consumers
    existing = frozenset(topics)
    changed: dict[str, Consumer] = {}
    for name, kept_from in exclusions.items():
        consumer = consumers.get(name)
        if consumer is None:
            continue
        wanted = existing if consumer.topics is None else consumer.topics
        if wanted & kept_from & existing:
            changed[name] = replace(consumer, topics=wanted - kept_from)
    return {**consumers, **changed}
