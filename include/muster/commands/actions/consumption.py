"""Pausing the consumption of partitions, of a topic or of all topics, and resuming it.

Not the coordination (`muster.commands.actions.coordination`), and not the coordinator's DAG: the owners stay the
owners, and only reading stops. The coordinator carries the pause into the assignment node, where consumers see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, CommandOutcome, Foreseen, listed
from muster.core.model import TopicAssignment, TopicPartition
from muster.core.overrides import ConsumptionPause, flow_scope
from muster.core.partition_list import format_partitions
from muster.core.wire import readable
from muster.settings.connection_parsing import ConnectionSettingsError

if TYPE_CHECKING:
    from muster.commands.target import Target
    from muster.core.seeking import Bounds


def pause_consumption(target: Target, actor: Actor, topic: str, partitions: frozenset[int]) -> CommandOutcome:
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
        raise _paused_already(scope, topic, partitions, consul.overrides.read().consumption)
    lines = [
        f"consumption of {scope} of cluster {cluster} is paused: {actor}",
        "the owners keep what they have, finish and commit the batch under way, and read no more until it is resumed",
        *waits_for_coordination(target),
    ]
    return CommandOutcome(tuple(lines), named(topic, partitions))


def resume_consumption(
    target: Target, actor: Actor, topic: str, partitions: frozenset[int]
) -> CommandOutcome:
    """End the pause that was given for just this; a wider or narrower one stays, and is named.

    Raises `CommandError`, and resumes nothing, if part of it was not paused by itself.
    """
    consul, cluster = target.consul, target.cluster.name
    _check_paused(cluster, topic, partitions, consul.overrides.read().consumption)
    scope = flow_scope(topic, _shown(partitions))
    for partition in _each(partitions):
        consul.overrides.resume_consumption(topic, partition)
    still = [each for each in consul.overrides.read().consumption if not topic or each.topic in {"", topic}]
    lines = [
        f"consumption of {scope} of cluster {cluster} goes on: {actor}",
        *(f"still paused: {each}" for each in still),
        *waits_for_coordination(target),
    ]
    return CommandOutcome(tuple(lines), named(topic, partitions))


def foresee_pause(target: Target, _actor: Actor, topic: str, partitions: frozenset[int]) -> Foreseen:
    """Return which partitions a pause stops, and what waits in them, and change nothing. Raises `CommandError` as
    `pause_consumption` does."""
    scope = check_scope(target, topic, partitions)
    pauses = target.consul.overrides.read().consumption
    if all((topic, partition) in _scopes(pauses) for partition in _each(partitions)):
        raise _paused_already(scope, topic, partitions, pauses)
    return _foreseen(target, topic, partitions, pauses, "paused")


def foresee_resumption(target: Target, _actor: Actor, topic: str, partitions: frozenset[int]) -> Foreseen:
    """Return which partitions go on, and what waits in them, and change nothing. Raises `CommandError` as
    `resume_consumption` does."""
    pauses = target.consul.overrides.read().consumption
    _check_paused(target.cluster.name, topic, partitions, pauses)
    ended = {(topic, partition) for partition in _each(partitions)}
    staying = [each for each in pauses if (each.topic, each.partition) not in ended]
    return _foreseen(target, topic, partitions, staying, "resumed")


def _foreseen(
    target: Target, topic: str, partitions: frozenset[int], staying: Iterable[ConsumptionPause], what: str
) -> Foreseen:
    """Foresee each partition as `what`, `paused` or `resumed`, unless one of the `staying` pauses covers it."""
    found, unknown = partitions_of(target, topic, partitions)
    bounds, unread = read_bounds(target, found)
    pauses = {tp: pause for tp in found if (pause := pause_of(staying, tp))}
    return Foreseen(
        tuple(
            f"topic {tp[0]}, partition {tp[1]}: {f'stays paused: {pauses[tp]}' if tp in pauses else f'is {what}'}"
            f"{_waiting(bounds.get(tp))}"
            for tp in found
        ),
        (
            f"together {len(found) - len(pauses)} partition(s) are {what}, {len(pauses)} stay paused"
            f"{_waiting(*bounds.values())}",
            *unknown,
            *unread,
            *waits_for_coordination(target),
        ),
    )


def partitions_of(
    target: Target, topic: str, partitions: frozenset[int]
) -> tuple[dict[TopicPartition, TopicAssignment | None], list[str]]:
    """Return what is named, in order, each partition with its topic's assignment; and what is unknown, in lines."""
    with target.store() as store:
        snapshots, unreadable = readable(store.snapshots())
    found = {
        (of, number): snapshots[of].assignment
        for of in sorted(snapshots)
        if topic in {"", of}
        for number in sorted(partitions or snapshots[of].partitions)
    }
    return found, [
        f"the partitions of topic {of!r} are unknown: {why}"
        for of, why in sorted(unreadable.items())
        if topic in {"", of}
    ]


def read_bounds(
    target: Target, partitions: Mapping[TopicPartition, TopicAssignment | None]
) -> tuple[dict[TopicPartition, Bounds], list[str]]:
    """Return the offsets of the partitions that Kafka gives; and a line that says why it does not."""
    assigned = {tp: assignment for tp, assignment in partitions.items() if assignment is not None}
    try:
        return target.bounds(assigned), []
    except (CommandError, ConnectionSettingsError) as error:
        return {}, [f"how many records wait is unknown: {error}"]


def pause_of(pauses: Iterable[ConsumptionPause], tp: TopicPartition) -> ConsumptionPause | None:
    """Return a pause that covers the partition, if there is one."""
    return next(
        (each for each in pauses if each.topic in {"", tp[0]} and each.partition in {None, tp[1]}), None
    )


def _waiting(*bounds: Bounds | None) -> str:
    """Return how many records wait, to follow a statement; '' if that is unknown."""
    known = [each.end - each.position for each in bounds if each is not None]
    return f"; {sum(known)} record(s) wait" if known else ""


def _paused_already(
    scope: str, topic: str, partitions: frozenset[int], pauses: Iterable[ConsumptionPause]
) -> CommandError:
    first = (topic, _each(partitions)[0])
    said = next((str(each) for each in pauses if (each.topic, each.partition) == first), "")
    return CommandError(
        f"{said or f'consumption of {scope} is paused already'}; resume it first to give another reason"
    )


def _check_paused(
    cluster: str, topic: str, partitions: frozenset[int], pauses: Iterable[ConsumptionPause]
) -> None:
    """Raise `CommandError` unless all that is named is paused by itself."""
    if missing := [p for p in _each(partitions) if (topic, p) not in _scopes(pauses)]:
        of = flow_scope(topic, _shown(frozenset(p for p in missing if p is not None)))
        raise CommandError(
            f"consumption of {of} is not paused by itself in cluster {cluster!r}; paused is that of: "
            f"{listed(each.scope for each in pauses)}"
        )


def _scopes(pauses: Iterable[ConsumptionPause]) -> set[tuple[str, int | None]]:
    return {(each.topic, each.partition) for each in pauses}


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
    """Return what keeps it from being carried out now."""
    paused = target.consul.overrides.read().paused
    return [] if paused is None else [f"coordination is {paused}; this waits until it is resumed"]


def named(topic: str, partitions: frozenset[int]) -> dict[str, str]:
    """Return what an outcome says of the scope: the topic and the partitions, as far as they were given."""
    found = {"topic": topic, "partitions": _shown(partitions)}
    return {field: text for field, text in found.items() if text}


def _each(partitions: frozenset[int]) -> list[int | None]:
    """Return the partitions, in order; None alone for a whole topic, or all topics."""
    return [*sorted(partitions)] or [None]


def _shown(partitions: frozenset[int]) -> str:
    return format_partitions(partitions) if partitions else ""
