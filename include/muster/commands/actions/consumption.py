"""Pausing the consumption of partitions, of a topic or of all topics, and resuming it.

Not the coordination (`muster.commands.actions.coordination`), and not the coordinator's DAG: the owners stay the
owners, and only reading stops. The coordinator carries the pause into the assignment node, where consumers see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, Outcome, listed
from muster.core.overrides import flow_scope
from muster.core.partition_list import format_partitions

if TYPE_CHECKING:
    from muster.commands.target import Target


def pause_consumption(target: Target, actor: Actor, topic: str, partitions: frozenset[int]) -> Outcome:
    """Pause the consumption of `partitions` of `topic`; without partitions of the topic, without a topic of all.

    Raises `CommandError` if the topic or a partition is unknown, or all that is named is paused by itself already.
    """
    consul, cluster = target.consul, target.cluster.name
    scope = check_scope(target, topic, partitions)
    new = [
        partition
        for partition in _each(partitions)
        if consul.overrides.pause_consumption(topic, partition, by=actor.name, why=actor.reason, at=actor.at)
    ]
    if not new:
        found = consul.overrides.decisions().consumption
        said = next(
            (str(each) for each in found if (each.topic, each.partition) == (topic, *_each(partitions)[:1])),
            "",
        )
        raise CommandError(
            f"{said or f'consumption of {scope} is paused already'}; resume it first to give another reason"
        )
    lines = [
        f"consumption of {scope} of cluster {cluster} is paused: {actor}",
        "the owners keep what they have, finish and commit the batch under way, and read no more until it is resumed",
        *waits_for_coordination(target),
    ]
    return Outcome(tuple(lines), named(topic, partitions))


def resume_consumption(target: Target, actor: Actor, topic: str, partitions: frozenset[int]) -> Outcome:
    """End the pause that was given for just this; a wider or narrower one stays, and is named.

    Raises `CommandError`, and resumes nothing, if part of it was not paused by itself.
    """
    consul, cluster = target.consul, target.cluster.name
    before = consul.overrides.decisions().consumption
    scope = flow_scope(topic, format_partitions(partitions) if partitions else "")
    paused = {(each.topic, each.partition) for each in before}
    if missing := [p for p in _each(partitions) if (topic, p) not in paused]:
        of = flow_scope(
            topic, "" if missing == [None] else format_partitions(p for p in missing if p is not None)
        )
        raise CommandError(
            f"consumption of {of} is not paused by itself in cluster {cluster!r}; paused is that of: "
            f"{listed(each.scope for each in before)}"
        )
    for partition in _each(partitions):
        consul.overrides.resume_consumption(topic, partition)
    still = [
        each for each in consul.overrides.decisions().consumption if not topic or each.topic in {"", topic}
    ]
    lines = [
        f"consumption of {scope} of cluster {cluster} goes on: {actor}",
        *(f"still paused: {each}" for each in still),
        *waits_for_coordination(target),
    ]
    return Outcome(tuple(lines), named(topic, partitions))


def check_scope(target: Target, topic: str, partitions: frozenset[int]) -> str:
    """Return what is named, in words. Raises `CommandError` if there is no such topic or partition."""
    if partitions and not topic:
        raise CommandError("partitions are those of a topic; name the topic as well")
    if partitions:
        target.check_partitions(topic, partitions)
    elif topic:
        target.check_topic(topic)
    return flow_scope(topic, _shown(partitions))


def waits_for_coordination(target: Target) -> list[str]:
    """What keeps it from being carried out now."""
    paused = target.consul.overrides.decisions().paused
    return [] if paused is None else [f"coordination is {paused}; this waits until it is resumed"]


def named(topic: str, partitions: frozenset[int]) -> dict[str, str]:
    """What an outcome says of the scope: the topic and the partitions, as far as they were given."""
    found = {"topic": topic, "partitions": _shown(partitions)}
    return {field: text for field, text in found.items() if text}


def _each(partitions: frozenset[int]) -> list[int | None]:
    """The partitions, in order; None alone for a whole topic, or all topics."""
    return [*sorted(partitions)] or [None]


def _shown(partitions: frozenset[int]) -> str:
    return format_partitions(partitions) if partitions else ""
