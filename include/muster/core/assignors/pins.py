"""Pins: a person fixes a partition to a consumer. Which can be obeyed, and how any assignor comes to obey them.

A pin holds as long as its partition exists and its consumer is live, stays, subscribes to the topic and is not
excluded from it. Otherwise it is impossible: the assignor does as if it were not there, and `impossible_pins`
says why. It comes into force by itself as soon as it can be obeyed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.core.assignors.api import Pins
from muster.core.model import Assignment, Consumer


@dataclass(frozen=True, slots=True)
class ImpossiblePin:
    """A pin that is not obeyed, and why, in words that follow "cannot be obeyed: "."""

    topic: str
    partition: int
    consumer: str
    reason: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r}, partition {self.partition}: the pin to consumer {self.consumer!r} "
            f"cannot be obeyed: {self.reason}"
        )


def impossible_pins(
    pins: Pins,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    exclusions: Mapping[str, frozenset[str]] | None = None,
) -> tuple[ImpossiblePin, ...]:
    """Return the pins that cannot be obeyed, each with its reason, in order of topic and partition.

    `topics` maps each topic to its partitions, `consumers` are the live ones by id, `exclusions` is consumer
    to topics. Pins that can be obeyed are not in the result.
    """
    kept_from = exclusions or {}
    return tuple(
        ImpossiblePin(topic, partition, consumer, reason)
        for topic, partition, consumer in _each(pins)
        if (reason := _hindrance(topic, partition, consumer, topics, consumers, kept_from)) is not None
    )


def obeyable(
    pins: Pins, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> dict[str, dict[int, str]]:
    """Return the pins that can be obeyed; topics without one are left out."""
    result: dict[str, dict[int, str]] = {}
    for topic, partition, consumer in _each(pins):
        if _hindrance(topic, partition, consumer, topics, consumers, {}) is None:
            result.setdefault(topic, {})[partition] = consumer
    return result


def without_pinned(topics: Mapping[str, frozenset[int]], pins: Pins) -> Mapping[str, frozenset[int]]:
    """Return `topics` with the pinned partitions taken out."""
    if not pins:
        return topics
    return {
        topic: partitions.difference(pins[topic]) if topic in pins else partitions
        for topic, partitions in topics.items()
    }


def with_pinned(assignment: Assignment, pins: Pins) -> Assignment:
    """Return `assignment` with every pinned partition at its consumer."""
    if not pins:
        return assignment
    return {
        **assignment,
        **{topic: {**assignment.get(topic, {}), **owners} for topic, owners in pins.items()},
    }


def _each(pins: Pins) -> Iterator[tuple[str, int, str]]:
    for topic in sorted(pins):
        for partition in sorted(pins[topic]):
            yield topic, partition, pins[topic][partition]


def _hindrance(
    topic: str,
    partition: int,
    consumer: str,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    exclusions: Mapping[str, frozenset[str]],
) -> str | None:
    """Return why this pin cannot be obeyed, None if it can."""
    if topic not in topics:
        return "there is no such topic in this cluster"
    if partition not in topics[topic]:
        return "there is no such partition"
    if (live := consumers.get(consumer)) is None:
        return "the consumer is not live (it has left, fails its check or is isolated)"
    hindrances = {
        "the consumer is leaving": live.leaving,
        "the consumer does not subscribe to the topic": not live.subscribes(topic),
        "the consumer is excluded from the topic": topic in exclusions.get(consumer, frozenset()),
    }
    return next((reason for reason, hinders in hindrances.items() if hinders), None)
