"""Whether an assignment can be obeyed. Checked for every assignor, because a user's own may be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muster.core.assignors.base import AssignorError
from muster.core.assignors.pins import NO_PINS, Pins
from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer, Owners

_SHOWN = 5


class _OffenceError(Exception):
    """What is wrong, without the assignor's name."""


def validate(
    assignment: Assignment,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    *,
    assignor: str,
    pins: Pins = NO_PINS,
) -> None:
    """Check that every partition has one owner, live and subscribed, unless its topic has no subscriber.

    `pins` are those that the assignor was given and has to obey. Raises `AssignorError` naming `assignor`, the
    topic, the partitions and the consumer at fault. `assignment` may be any value at all: it comes from code that
    a user may have written.
    """
    try:
        _check(assignment, topics, consumers)
        _check_pins(assignment, pins)
    except _OffenceError as offence:
        raise AssignorError(
            f"assignor {assignor!r} returned no valid assignment: {offence}; nothing is moved. Correct the "
            "assignor, or name another one in clusters.yaml"
        ) from None


def _check(assignment: Any, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]) -> None:
    if not isinstance(assignment, Mapping):
        raise _OffenceError(f"expected a mapping of topic to owners, found {type(assignment).__name__}")
    if unknown := assignment.keys() - topics.keys():
        raise _OffenceError(f"unknown topic {_listed(unknown)}")
    covered: set[str] = set()
    for audience in audiences(topics, consumers):
        subscribers = frozenset(audience.consumers)
        covered.update(audience.topics)
        for topic in audience.topics:
            _check_topic(topic, assignment.get(topic, {}), topics[topic], subscribers, consumers)
    for topic in assignment.keys() - covered:
        _check_topic(topic, assignment[topic], frozenset(), frozenset(), consumers)


def _check_topic(
    topic: str,
    owners: Owners,
    partitions: frozenset[int],
    subscribers: frozenset[str],
    consumers: Mapping[str, Consumer],
) -> None:
    if not isinstance(owners, Mapping):
        raise _OffenceError(
            f"topic {topic!r}: expected a mapping of partition to consumer id, found {type(owners).__name__}"
        )
    if strange := [p for p in owners if type(p) is not int]:
        raise _OffenceError(f"topic {topic!r}: partition {_listed(strange)} is not a whole number")
    for partition, owner in owners.items():
        if not isinstance(owner, str):
            raise _OffenceError(f"topic {topic!r}, partition {partition}: {owner!r} is not a consumer id")
    if foreign := set(owners.values()) - subscribers:
        owner = min(foreign)
        why = "does not subscribe to the topic" if owner in consumers else "is not a live consumer"
        given = [p for p, c in owners.items() if c == owner]
        raise _OffenceError(f"topic {topic!r}, partition {_listed(given)}: given to {owner!r}, which {why}")
    if unknown := owners.keys() - partitions:
        raise _OffenceError(f"topic {topic!r}: there is no partition {_listed(unknown)}")
    if left_out := partitions - owners.keys():
        raise _OffenceError(
            f"topic {topic!r}, partition {_listed(left_out)}: left out, though a consumer subscribes"
        )


def _check_pins(assignment: Assignment, pins: Pins) -> None:
    for topic in sorted(pins):
        for partition, consumer in sorted(pins[topic].items()):
            if (owner := assignment[topic][partition]) != consumer:
                raise _OffenceError(
                    f"topic {topic!r}, partition {partition}: given to {owner!r}, though it is pinned to {consumer!r}"
                )


def _listed(items: Iterable[Any]) -> str:
    ordered = sorted(items, key=lambda item: (str(type(item)), item if isinstance(item, int) else str(item)))
    shown = ", ".join(repr(item) for item in ordered[:_SHOWN])
    more = len(ordered) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
