"""Keeping partitions from a consumer, and taking that back: isolation, drain, and exclusion from one topic.

Each is a key in Consul that stands until it is taken back; the coordinator's long poll sees it at once.

- *Isolated*: the coordinator gives the consumer's partitions to the others, and a consumer that still runs closes
  them by itself.
- *Drained*, before maintenance for example: it is planned as one that leaves. Its partitions are handed to the others
  in order (it stops reading and commits, then the new owner starts), so nothing is read twice. It stays registered
  and live without partitions, and nothing is suspected of it. Where no other consumer can take over, it keeps what it
  has.
- *Excluded* from a topic: obeyed as pins are (`muster.commands.actions.pins`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.commands.actions.shared_state import check_exclusion
from muster.commands.command import Actor, CommandError, CommandOutcome, listed
from muster.core.overrides import Override
from muster.core.partition_list import format_partitions

if TYPE_CHECKING:
    from muster.commands.target import Target


def isolate(target: Target, actor: Actor, consumer: str) -> CommandOutcome:
    """Isolate `consumer`. Raises `CommandError` if there is no such consumer, or if it is isolated already."""
    target.check_consumer(consumer)
    if not target.consul.overrides.isolate(consumer, by=actor.name, why=actor.reason, at=actor.at):
        raise _already(
            target, consumer, "isolated", target.consul.overrides.isolated().get(consumer), "restore"
        )
    lines = (
        f"consumer {consumer} of cluster {target.cluster.name} is isolated: {actor}",
        "its partitions go to the other consumers; restore takes it back",
    )
    return CommandOutcome(lines, {"consumer": consumer})


def restore(target: Target, actor: Actor, consumer: str) -> CommandOutcome:
    """End the isolation of `consumer`. Raises `CommandError` if it is not isolated by a key."""
    target.check_consumer(consumer)
    if not target.consul.overrides.restore(consumer):
        registration = target.consul.catalog.members().registered.get(consumer)
        maintenance = registration is not None and registration.maintenance
        more = "; it is in Consul's maintenance mode, which ends with 'consul maint'" if maintenance else ""
        raise _not(target, consumer, "isolated", target.consul.overrides.isolated(), more)
    lines = (f"consumer {consumer} of cluster {target.cluster.name} is restored: {actor}",)
    return CommandOutcome(lines, {"consumer": consumer})


def drain(target: Target, actor: Actor, consumer: str) -> CommandOutcome:
    """Drain `consumer`. Raises `CommandError` if there is no such consumer, or if it is drained already."""
    target.check_consumer(consumer)
    if not target.consul.overrides.drain(consumer, by=actor.name, why=actor.reason, at=actor.at):
        raise _already(
            target, consumer, "drained", target.consul.overrides.read().drained.get(consumer), "undrain"
        )
    lines = [
        f"consumer {consumer} of cluster {target.cluster.name} is drained: {actor}",
        "its partitions are handed to the other consumers in order; it stays without any until undrain takes it back",
    ]
    membership = target.consul.catalog.members().membership
    drained = target.consul.overrides.read().drained
    if membership is not None and not membership.live.keys() - drained.keys() - {consumer}:
        lines.append(
            "no other consumer is live that is not drained: it keeps its partitions until there is one"
        )
    return CommandOutcome(tuple(lines), {"consumer": consumer})


def undrain(target: Target, actor: Actor, consumer: str) -> CommandOutcome:
    """Let `consumer` have partitions again. Raises `CommandError` if it is not drained."""
    if not target.consul.overrides.undrain(consumer):
        raise _not(target, consumer, "drained", target.consul.overrides.read().drained)
    lines = (f"consumer {consumer} of cluster {target.cluster.name} gets partitions again: {actor}",)
    return CommandOutcome(lines, {"consumer": consumer})


def exclude(target: Target, actor: Actor, consumer: str, topic: str) -> CommandOutcome:
    """Keep `consumer` from `topic`. Raises `CommandError` if one is unknown, or the consumer is excluded already."""
    target.check_topic(topic)
    target.check_consumer(consumer)
    check_exclusion(target, consumer, topic)
    if not target.consul.overrides.exclude(consumer, topic, by=actor.name, why=actor.reason, at=actor.at):
        standing = target.consul.overrides.read().exclusions.get((consumer, topic))
        raise _already(target, consumer, f"excluded from topic {topic!r}", standing, "include")
    pinned = [
        number
        for (of, number), pin in target.consul.overrides.read().pins.items()
        if of == topic and pin.consumer == consumer
    ]
    lines = [
        f"consumer {consumer} of cluster {target.cluster.name} is excluded from topic {topic}: {actor}",
        "its partitions go to the other consumers that take the topic; include takes it back",
    ]
    if pinned:
        lines.insert(1, f"its pins of partition(s) {format_partitions(pinned)} cannot be obeyed meanwhile")
    return CommandOutcome(tuple(lines), {"consumer": consumer, "topic": topic})


def include(target: Target, actor: Actor, consumer: str, topic: str) -> CommandOutcome:
    """Take the exclusion of `consumer` from `topic` back. Raises `CommandError` if there is none."""
    if not target.consul.overrides.include(consumer, topic):
        standing = target.consul.overrides.read().exclusions
        excluded = [f"{of} from {name}" for of, name in standing]
        raise _not(target, consumer, f"excluded from topic {topic!r}", excluded)
    lines = (f"consumer {consumer} of cluster {target.cluster.name} takes topic {topic} again: {actor}",)
    return CommandOutcome(lines, {"consumer": consumer, "topic": topic})


def _already(target: Target, consumer: str, how: str, standing: Override | None, undo: str) -> CommandError:
    by = standing.said() if standing is not None else "a key that cannot be read"
    return CommandError(
        f"consumer {consumer!r} of cluster {target.cluster.name!r} is {how} already by {by}; {undo} it first to give "
        "another reason"
    )


def _not(target: Target, consumer: str, how: str, standing: Iterable[str], more: str = "") -> CommandError:
    adjective, _, _ = how.partition(" ")
    return CommandError(
        f"consumer {consumer!r} of cluster {target.cluster.name!r} is not {how}; {adjective} are: {listed(standing)}"
        f"{more}"
    )
