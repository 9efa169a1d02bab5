"""Why a partition moves: the one cause that a person would name first.

What is plain from the facts is said at once: the partition is new, its owner left, does not take the topic, is kept
from it; a person pinned it; the new owner just joined. What is left are moves between consumers that both might
have it. Those are explained by planning otherwise: a move is put down to the first circumstance
without which the same assignor would not make it (another assignor, changed attributes, pins and exclusions of other
partitions, priorities, racks, measured load). A move that would still be made is made for balance, or by
the assignor's own rule.

Planning again costs as much as planning, so it is done only for circumstances that there are, and only while some
move is not explained yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from muster.core.assignors import EMPTY_CONTEXT, Assignor, AssignorError, PlanningContext
from muster.core.assignors.balance import cost_of_next, weight_of
from muster.core.comparison import Difference, partitions_by_consumer
from muster.core.model import Assignment, Consumer, Move, TopicSnapshot
from muster.core.planner import plan


class Cause(StrEnum):
    """What a move is put down to."""

    VANISHED = "vanished"
    FIRST = "first assignment"
    NEW_PARTITION = "new partition"
    UNOWNED = "unowned"
    LEFT = "left"
    ISOLATED = "isolated"
    STANDBY = "standby"
    SUBSCRIPTION = "subscription"
    EXCLUSION = "exclusion"
    DRAIN = "drain"
    PIN = "pin"
    JOINED = "joined"
    ASSIGNOR = "assignor"
    ATTRIBUTES = "attributes"
    PRIORITY = "priority"
    ZONE = "zone"
    LOAD = "load"
    BALANCE = "balance"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class PlannedMove(Move):
    """A move that a plan would make; `reason` is its `cause` in words."""

    cause: Cause


_Why = tuple[Cause, str]
"""A cause, and the same in words."""


@dataclass(frozen=True)
class Situation:
    """All that a plan was made from, and what is said to have changed just before.

    `standing` is who had what. `joined` are the consumers that came; `usual` are the former attributes of those
    that were there and changed. `usual_assignor` is the one that `assignor` takes the place of, None if none.
    """

    snapshots: Mapping[str, TopicSnapshot]
    consumers: Mapping[str, Consumer]
    standing: Assignment
    assignor: Assignor
    context: PlanningContext = EMPTY_CONTEXT
    isolated: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    usual: Mapping[str, Consumer] = field(default_factory=dict)
    usual_assignor: Assignor | None = None


def explain(moves: Iterable[Difference], situation: Situation) -> list[PlannedMove]:
    """Return each move (from `first` to `second`) with its reason, in their order."""
    asked = list(moves)
    found = [_plain(move, situation) for move in asked]
    for other in _otherwise(situation):
        open_ = [i for i, why in enumerate(found) if why is None and other.applies(asked[i])]
        if not open_:
            continue
        try:
            there = other.situation
            planned = plan(there.snapshots.values(), there.consumers, there.assignor, there.context).owners
        except AssignorError:
            continue  # what would be planned then is unknown
        for i in open_:
            if planned.get(asked[i].topic, {}).get(asked[i].partition) == asked[i].first:
                found[i] = other.cause, other.reason(asked[i])
    counts = partitions_by_consumer(situation.standing, situation.consumers)
    planned_moves = []
    for move, why in zip(asked, found, strict=True):
        cause, reason = why or _remaining(move, situation, counts)
        planned_moves.append(PlannedMove(move.topic, move.partition, move.first, move.second, reason, cause))
    return planned_moves


def _plain(move: Difference, situation: Situation) -> _Why | None:
    """Return the reason that the facts alone give, None if they do not."""
    snapshot = situation.snapshots.get(move.topic)
    if snapshot is None or move.partition not in snapshot.partitions:
        return Cause.VANISHED, "partition vanished from Kafka"
    if move.first is None:
        return _beginning(snapshot, situation)
    if move.first not in situation.consumers:
        return _after_leaving(move, move.first, situation)
    return _between_live(move, move.first, situation)


def _between_live(move: Difference, source: str, situation: Situation) -> _Why | None:
    known = situation.context
    drained = source in known.drained
    if drained or situation.consumers[source].leaving:
        cause, how = (Cause.DRAIN, "is drained") if drained else (Cause.LEFT, "leaves")
        return cause, f"consumer {source} {how}"
    if not situation.consumers[source].subscribes(move.topic):
        return Cause.SUBSCRIPTION, f"consumer {source} does not subscribe to topic {move.topic}"
    if move.topic in known.exclusions.get(source, ()):
        return Cause.EXCLUSION, f"consumer {source} is excluded from topic {move.topic}"
    if known.pins.get(move.topic, {}).get(move.partition) == move.second:
        return Cause.PIN, f"pinned to {move.second}"
    if move.second in situation.joined:
        return Cause.JOINED, f"consumer {move.second} joined"
    return None


def _beginning(snapshot: TopicSnapshot, situation: Situation) -> _Why:
    if snapshot.state is None:
        return Cause.FIRST, "first assignment"
    if situation.standing.get(snapshot.topic):
        return Cause.NEW_PARTITION, "new partition"
    return Cause.UNOWNED, "no consumer held it"


def _after_leaving(move: Difference, source: str, situation: Situation) -> _Why:
    isolated = source in situation.isolated
    gone = f"consumer {source} {'was isolated' if isolated else 'left'}"
    assignment = situation.snapshots[move.topic].assignment
    if assignment is not None and move.second in assignment.standbys.get(move.partition, ()):
        return Cause.STANDBY, f"{gone}; its standby {move.second} is promoted"
    return Cause.ISOLATED if isolated else Cause.LEFT, gone


class _Otherwise(NamedTuple):
    """The situation without one circumstance; `applies` says which moves may be due to it."""

    cause: Cause
    situation: Situation
    reason: Callable[[Difference], str]
    applies: Callable[[Difference], bool] = lambda _: True


def _otherwise(situation: Situation) -> Iterator[_Otherwise]:
    context, consumers = situation.context, situation.consumers

    def without(**fields: Any) -> Situation:
        return replace(situation, context=replace(context, **fields))

    if (usual := situation.usual_assignor) is not None:
        moves_it = f"assignor {situation.assignor.name} moves it, {usual.name} would not"
        yield _Otherwise(Cause.ASSIGNOR, replace(situation, assignor=usual), lambda _: moves_it)
    if situation.usual:
        before = replace(situation, consumers={**consumers, **situation.usual})
        changed = ", ".join(sorted(situation.usual))
        yield _Otherwise(Cause.ATTRIBUTES, before, lambda _: f"attributes of {changed} changed")
    if context.pins:
        yield _Otherwise(Cause.PIN, without(pins={}), lambda _: "makes room for a pinned partition")
    if context.exclusions:
        evened = "evens out what an exclusion moves"
        yield _Otherwise(Cause.EXCLUSION, without(exclusions={}), lambda _: evened)
    if len({consumer.priority for consumer in consumers.values()}) > 1:
        equal = {c: replace(consumer, priority=0) for c, consumer in consumers.items()}
        yield _Otherwise(
            Cause.PRIORITY,
            replace(situation, consumers=equal),
            lambda move: (
                f"consumer {move.second} has priority {_priority(move.second, situation)}, {move.first} has "
                f"{_priority(move.first, situation)}"
            ),
            lambda move: _priority(move.second, situation) > _priority(move.first, situation),
        )
    if context.racks:
        yield _Otherwise(
            Cause.ZONE,
            without(racks={}),
            lambda move: (
                f"its leader is in zone {context.racks[move.topic][move.partition]}, as is {move.second}"
            ),
            lambda move: (
                _at_leader(move.second, move, situation) and not _at_leader(move.first, move, situation)
            ),
        )
    if context.loads:
        yield _Otherwise(Cause.LOAD, without(loads={}), lambda _: "measured load")


def _consumer(name: str | None, situation: Situation) -> Consumer | None:
    return None if name is None else situation.consumers.get(name)


def _priority(name: str | None, situation: Situation) -> int:
    consumer = _consumer(name, situation)
    return consumer.priority if consumer is not None else 0


def _at_leader(name: str | None, move: Difference, situation: Situation) -> bool:
    rack = situation.context.racks.get(move.topic, {}).get(move.partition)
    consumer = _consumer(name, situation)
    return rack is not None and consumer is not None and consumer.zone == rack


def _remaining(move: Difference, situation: Situation, counts: Mapping[str, int]) -> _Why:
    """Balance if the partition goes from a consumer with more to do to one with less, else the assignor's rule."""
    source, target = _consumer(move.first, situation), _consumer(move.second, situation)
    if source is not None and target is not None:
        given = cost_of_next(counts[source.id] - 1, weight_of(source))
        if given > cost_of_next(counts[target.id], weight_of(target)):
            return Cause.BALANCE, "balance"
    return Cause.RULE, f"assignor {situation.assignor.name} deals it so"
