"""Pinning partitions to a consumer, and unpinning them.

Pins are kept in Consul until they are taken back. The coordinator's long poll sees them at once; a topic in the
middle of a rebalance follows them when it is Stable again. Unpinning needs Consul only, and may name what is gone
from ZooKeeper meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.commands.actions.shared_state import check_pin
from muster.commands.command import Actor, CommandError, CommandOutcome
from muster.core.overrides import Pin
from muster.core.partition_list import format_partitions

if TYPE_CHECKING:
    from muster.commands.target import Target


def pin(
    target: Target, actor: Actor, topic: str, partitions: frozenset[int], consumer: str
) -> CommandOutcome:
    """Fix `partitions` of `topic` to `consumer`; earlier pins of them are replaced.

    Raises `CommandError` if the topic, a partition or the consumer is unknown, or if the consumer is excluded from
    the topic. A consumer that is not live now may be pinned to; the pin waits for it. Each partition is written by
    itself: after a `ConsulError` some may be pinned, and doing it again does no harm.
    """
    consul, cluster = target.consul, target.cluster.name
    target.check_partitions(topic, partitions)
    target.check_consumer(consumer)
    before = consul.overrides.read()
    if (exclusion := before.exclusions.get((consumer, topic))) is not None:
        raise CommandError(f"consumer {exclusion}; include it first, or pin to another consumer")
    check_pin(target, before, topic, partitions, consumer)
    for partition in sorted(partitions):
        consul.overrides.pin(topic, partition, consumer, by=actor.name, why=actor.reason, at=actor.at)
    named = format_partitions(partitions)
    lines = (
        f"partition(s) {named} of topic {topic} are pinned to consumer {consumer} of cluster {cluster}: {actor}",
        *(
            f"partition {old.partition} was {old} before"
            for (of, number), old in sorted(before.pins.items())
            if of == topic and number in partitions and old.consumer != consumer
        ),
        *_hindrances(target, topic, consumer),
        "unpin takes it back",
    )
    return CommandOutcome(lines, {"topic": topic, "partitions": named, "consumer": consumer})


def unpin(target: Target, actor: Actor, topic: str, partitions: frozenset[int]) -> CommandOutcome:
    """Take the pins of `partitions` back. Raises `CommandError`, and takes none back, if one of them is not
    pinned."""
    consul, cluster = target.consul, target.cluster.name
    pins = {number: pin for (of, number), pin in consul.overrides.read().pins.items() if of == topic}
    if missing := partitions - pins.keys():
        raise CommandError(
            f"partition(s) {format_partitions(missing)} of topic {topic!r} in cluster {cluster!r} are not "
            f"pinned; pinned are: {_pins(pins.values())}"
        )
    for partition in sorted(partitions):
        consul.overrides.unpin(topic, partition)
    named = format_partitions(partitions)
    lines = (
        f"partition(s) {named} of topic {topic} of cluster {cluster} are no longer pinned: {actor}",
        "they stay where they are until balance asks for something else",
    )
    return CommandOutcome(lines, {"topic": topic, "partitions": named})


def _hindrances(target: Target, topic: str, consumer: str) -> list[str]:
    """Return what keeps a pin from being obeyed now, as far as service discovery knows."""
    membership = target.consul.catalog.members().membership
    if membership is None:
        return []
    live = membership.live.get(consumer)
    if live is None:
        state = "isolated" if consumer in membership.isolated else "not live"
        return [f"consumer {consumer} is {state} now; the pin waits for it"]
    if consumer in target.consul.overrides.read().drained:
        return [f"consumer {consumer} is drained now; the pin waits until it is undrained"]
    if not live.subscribes(topic):
        return [f"consumer {consumer} does not subscribe to topic {topic}; the pin waits until it does"]
    return []


def _pins(pins: Iterable[Pin]) -> str:
    by_consumer: dict[str, list[int]] = {}
    for pin in pins:
        by_consumer.setdefault(pin.consumer, []).append(pin.partition)
    return "; ".join(f"{format_partitions(by_consumer[c])} to {c}" for c in sorted(by_consumer)) or "none"
