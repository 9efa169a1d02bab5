"""Excluding a consumer from a topic, and including it again.

Exclusions are kept in Consul until they are taken back, and are obeyed as pins are (`muster.commands.actions.pins`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, Outcome, done
from muster.commands.known import check_consumer, check_topic
from muster.commands.refusal import CommandError, listed
from muster.core.partition_list import format_partitions

if TYPE_CHECKING:
    from muster.commands.target import Target


def exclude(target: Target, actor: Actor, consumer: str, topic: str) -> Outcome:
    """Keep `consumer` from `topic`. Raises `CommandError` if one is unknown, or the consumer is excluded already."""
    consul, cluster = target.consul, target.cluster.name
    check_topic(target, topic)
    check_consumer(target, consumer)
    if not consul.overrides.exclude(consumer, topic, by=actor.name, why=actor.reason, at=actor.at):
        entry = consul.overrides.decisions().exclusions.get((consumer, topic))
        by = f" by {entry.by}: {entry.why}" if entry else " by a key that cannot be read"
        raise CommandError(
            f"consumer {consumer!r} of cluster {cluster!r} is excluded from topic {topic!r} already{by}; "
            "include it first to give another reason"
        )
    pinned = [
        number
        for (of, number), pin in consul.overrides.decisions().pins.items()
        if of == topic and pin.consumer == consumer
    ]
    lines = [
        f"consumer {consumer} of cluster {cluster} is excluded from topic {topic}: {actor}",
        *(
            [f"its pins of partition(s) {format_partitions(pinned)} cannot be obeyed meanwhile"]
            if pinned
            else []
        ),
        "its partitions go to the other consumers that take the topic; include takes it back",
    ]
    return done("exclude", cluster, actor, lines, consumer=consumer, topic=topic)


def include(target: Target, actor: Actor, consumer: str, topic: str) -> Outcome:
    """Take the exclusion of `consumer` from `topic` back. Raises `CommandError` if there is none."""
    consul, cluster = target.consul, target.cluster.name
    if not consul.overrides.include(consumer, topic):
        exclusions = consul.overrides.decisions().exclusions
        raise CommandError(
            f"consumer {consumer!r} of cluster {cluster!r} is not excluded from topic {topic!r}; excluded are: "
            f"{listed(f'{each.consumer} from {each.topic}' for each in exclusions.values())}"
        )
    lines = [f"consumer {consumer} of cluster {cluster} takes topic {topic} again: {actor}"]
    return done("include", cluster, actor, lines, consumer=consumer, topic=topic)
