"""Refusals of commands that would split a shard: topics that share their state have one consumer a number."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from muster.commands.command import CommandError, listed

if TYPE_CHECKING:
    from muster.commands.target import Target
    from muster.core.overrides import Overrides


def others_of(target: Target, topic: str) -> list[str]:
    """Return the topics that share their state with `topic`."""
    return [each for each in target.cluster.state.together(topic) if each != topic]


def check_pin(
    target: Target, overrides: Overrides, topic: str, partitions: Collection[int], consumer: str
) -> None:
    """Raise `CommandError` if a partition of the same shards is pinned to another consumer, or if the consumer does
    not take all of their topics."""
    if not (others := others_of(target, topic)):
        return
    for other in others:
        for partition in sorted(partitions):
            pin = overrides.pins.get((other, partition))
            if pin is not None and pin.consumer != consumer:
                raise CommandError(
                    f"topic {topic!r} shares its state with {other!r}, of which partition {partition} is {pin}; one "
                    f"consumer has both: unpin that first, or pin to {pin.consumer}"
                )
        if (exclusion := overrides.exclusions.get((consumer, other))) is not None:
            raise CommandError(
                f"topic {topic!r} shares its state with {other!r}, and consumer {exclusion}; include it first, or "
                "pin to another consumer"
            )
    membership = target.consul.catalog.members().membership
    live = None if membership is None else membership.live.get(consumer)
    if live is not None and (missing := [other for other in others if not live.subscribes(other)]):
        raise CommandError(
            f"topic {topic!r} shares its state with {listed(missing)}, to which consumer {consumer} does not "
            "subscribe; pin to one that takes all of them"
        )


def check_exclusion(target: Target, consumer: str, topic: str) -> None:
    """Raise `CommandError` if no live consumer would take all topics that share their state, but some a part."""
    if not (others := others_of(target, topic)):
        return
    if (membership := target.consul.catalog.members().membership) is None:
        return
    kept = {(consumer, topic), *target.consul.overrides.read().exclusions}
    for name, one in membership.live.items():
        if all(one.subscribes(each) and (name, each) not in kept for each in (topic, *others)):
            return
    raise CommandError(
        f"topic {topic!r} shares its state with {listed(others)}, and without consumer {consumer} no live one takes "
        "all of them, so that nothing of them could be read; start another one first"
    )


def check_unsubscribing(target: Target, closed: Collection[str]) -> None:
    """Raise `CommandError` if only some of the topics that share their state would be read no more."""
    for topic in closed:
        if left := [other for other in others_of(target, topic) if other not in closed]:
            raise CommandError(
                f"topic {topic!r} shares its state with {listed(left)}, of which nothing could be read without it; "
                "unsubscribe all of them with a pattern, or take their list out of 'state' of the consumers"
            )
