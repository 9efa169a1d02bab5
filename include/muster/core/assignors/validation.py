"""Whether a plan can be obeyed. Checked for every assignor, because a user's own may be wrong.

What is checked may be any value at all: it comes from code that a user may have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from muster.core.assignors.api import NOTHING, AssignorError, Pins
from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer, Owners

_SHOWN = 5


def validate(
    assignment: Assignment,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    *,
    assignor: str,
    pins: Pins = NOTHING,
) -> None:
    """Check that every partition has one owner, live and subscribed, unless its topic has no subscriber.

    `pins` are those that the assignor was given and has to obey. Raises `AssignorError` naming `assignor`, the
    topic, the partitions and the consumer at fault.
    """
    problems = chain(_problems(assignment, topics, consumers), _broken_pins(assignment, pins))
    if (problem := next(problems, None)) is not None:
        raise AssignorError.at_fault(assignor, f"returned no valid assignment: {problem}")


def validate_standbys(
    standbys: Any,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    assignment: Assignment,
    *,
    assignor: str,
) -> None:
    """Check that each standby of a partition is live, subscribed, not its owner, and named once.

    Raises `AssignorError` naming `assignor`, the topic, the partition and the consumer at fault.
    """
    problems = _problems_of_standbys(standbys, topics, consumers, assignment)
    if (problem := next(problems, None)) is not None:
        raise AssignorError.at_fault(assignor, f"returned no valid standbys: {problem}")


# Each of the following yields problems, of which only the first one is meaningful: what comes after it relies on what
# has turned out to be wrong.


def _problems(
    assignment: Any, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> Iterator[str]:
    if not isinstance(assignment, Mapping):
        yield f"expected a mapping of topic to owners, found {type(assignment).__name__}"
    if unknown := assignment.keys() - topics.keys():
        yield f"unknown topic {_listed(unknown)}"
    subscribers = dict.fromkeys(topics, frozenset[str]())
    for audience in audiences(topics, consumers):
        subscribers.update(dict.fromkeys(audience.topics, frozenset(audience.consumers)))
    for topic, takers in subscribers.items():
        partitions = topics[topic] if takers else frozenset[int]()
        yield from _problems_of(topic, assignment.get(topic, {}), partitions, takers, consumers)


def _problems_of(
    topic: str,
    owners: Owners,
    partitions: frozenset[int],
    subscribers: frozenset[str],
    consumers: Mapping[str, Consumer],
) -> Iterator[str]:
    if not isinstance(owners, Mapping):
        yield f"topic {topic!r}: expected a mapping of partition to consumer id, found {type(owners).__name__}"
    if strange := [p for p in owners if type(p) is not int]:
        yield f"topic {topic!r}: partition {_listed(strange)} is not a whole number"
    for partition, owner in owners.items():
        if not isinstance(owner, str):
            yield f"topic {topic!r}, partition {partition}: {owner!r} is not a consumer id"
    if foreign := set(owners.values()) - subscribers:
        owner = min(foreign)
        given = [p for p, c in owners.items() if c == owner]
        yield (
            f"topic {topic!r}, partition {_listed(given)}: given to {owner!r}, which "
            f"{_why_not(owner, topic, consumers)}"
        )
    if unknown := owners.keys() - partitions:
        yield f"topic {topic!r}: there is no partition {_listed(unknown)}"
    if left_out := partitions - owners.keys():
        yield f"topic {topic!r}, partition {_listed(left_out)}: left out, though a consumer subscribes"


def _broken_pins(assignment: Assignment, pins: Pins) -> Iterator[str]:
    for topic in sorted(pins):
        for partition, consumer in sorted(pins[topic].items()):
            if (owner := assignment[topic][partition]) != consumer:
                where = f"topic {topic!r}, partition {partition}"
                yield f"{where}: given to {owner!r}, though it is pinned to {consumer!r}"


def _problems_of_standbys(
    standbys: Any,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    assignment: Assignment,
) -> Iterator[str]:
    if not isinstance(standbys, Mapping):
        yield f"expected a mapping of topic to standbys, found {type(standbys).__name__}"
    for topic, of_topic in standbys.items():
        if topic not in topics:
            yield f"unknown topic {topic!r}"
        if not isinstance(of_topic, Mapping):
            yield f"topic {topic!r}: expected a mapping of partition to consumer ids, found {of_topic!r}"
        owners = assignment.get(topic, {})
        for partition, standing in of_topic.items():
            where = f"topic {topic!r}, partition {partition!r}"
            if type(partition) is not int or partition not in owners:
                yield f"{where}: no consumer owns such a partition, so none can stand by for it"
            if not isinstance(standing, tuple | list) or not all(isinstance(c, str) for c in standing):
                yield f"{where}: expected a tuple of consumer ids, found {standing!r}"
            if len(set(standing)) < len(standing):
                yield f"{where}: {', '.join(standing)} names a consumer twice"
            for consumer in standing:
                if consumer == owners[partition]:
                    yield f"{where}: standby {consumer!r} owns it"
                if (why := _why_not(consumer, topic, consumers)) is not None:
                    yield f"{where}: standby {consumer!r} {why}"


def _why_not(consumer: str, topic: str, consumers: Mapping[str, Consumer]) -> str | None:
    """Return why `consumer` cannot take a partition of `topic`, None if it can."""
    if consumer not in consumers:
        return "is not a live consumer"
    return None if consumers[consumer].subscribes(topic) else "does not subscribe to the topic"


def _listed(items: Iterable[Any]) -> str:
    ordered = sorted(items, key=lambda item: (str(type(item)), item if isinstance(item, int) else str(item)))
    shown = ", ".join(repr(item) for item in ordered[:_SHOWN])
    more = len(ordered) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
