"""Run an assignor, built-in or not: what comes back can be obeyed, or it is an error.

Exclusions and pins are obeyed here, so that no assignor has to know of them. What a consumer is excluded from
is taken out of its subscription. Pinned partitions are taken out of what the assignor is given and put into
what it returned; an assignor whose `assign` has a parameter `pins` is given everything instead, with those
pins that can be obeyed, and has to obey them itself, for which it can count them when it balances.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from muster.core.assignors.api import (
    EMPTY_CONTEXT,
    Assignor,
    AssignorError,
    HasStandbys,
    HasTasks,
    PlanningContext,
)
from muster.core.assignors.pins import obeyable, with_pinned, without_pinned
from muster.core.assignors.subscriptions import without_excluded
from muster.core.assignors.validation import validate, validate_standbys
from muster.core.model import Assignment, Consumer, TopicPartition


def run_assignor(
    assignor: Assignor,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    previous: Assignment,
    context: PlanningContext = EMPTY_CONTEXT,
) -> Assignment:
    """Return what `assignor` assigns in `context`, validated.

    Pins that cannot be obeyed have no effect (`muster.core.assignors.pins.impossible_pins` names them). A
    topic whose only subscribers are excluded from it is left out, as one without subscribers is. Raises
    `AssignorError` naming the assignor if it raises anything or returns no valid assignment.
    """
    reachable = without_excluded(consumers, context.exclusions, topics)
    pins = obeyable(context.pins, topics, reachable) if context.pins else {}
    asked_for = _asked_for(assignor, replace(context, pins=pins))
    own, others = (pins, {}) if "pins" in asked_for else ({}, pins)
    given = without_pinned(topics, others)
    with _blamed_on(assignor, "failed"):
        assignment = assignor.assign(given, reachable, previous, **asked_for)
    validate(assignment, given, reachable, assignor=assignor.name, pins=own)
    return with_pinned(assignment, others)


def run_standbys(
    assignor: Assignor,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    assignment: Assignment,
    context: PlanningContext = EMPTY_CONTEXT,
) -> dict[str, dict[int, tuple[str, ...]]]:
    """Return the standbys of each partition, none if `assignor` has no standbys; only what has some is in it.

    A consumer that a person keeps from a topic does not stand by for it either. Raises `AssignorError` naming the
    assignor if it raises anything, or if a standby is not live, not subscribed, the owner itself, or named twice.
    """
    if not isinstance(assignor, HasStandbys):
        return {}
    reachable = without_excluded(consumers, context.exclusions, topics)
    with _blamed_on(assignor, "failed to name standbys"):
        found = assignor.standbys(topics, reachable, assignment, context.standbys)
    validate_standbys(found, topics, reachable, assignment, assignor=assignor.name)
    standbys = {t: {p: tuple(found[t][p]) for p in sorted(found[t]) if found[t][p]} for t in sorted(found)}
    return {topic: of_topic for topic, of_topic in standbys.items() if of_topic}


def run_tasks(
    assignor: Assignor, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> list[list[TopicPartition]]:
    """Return the partitions that `assignor` moves together, none if it moves each alone. Raises `AssignorError`."""
    if not isinstance(assignor, HasTasks):
        return []
    with _blamed_on(assignor, "failed to name tasks"):
        return [list(task) for task in assignor.tasks(topics, consumers)]


def _asked_for(assignor: Assignor, context: PlanningContext) -> dict[str, Any]:
    """Return the parts of the context that `assign` has a parameter for, by name."""
    parameters = inspect.signature(assignor.assign).parameters
    return {field.name: getattr(context, field.name) for field in fields(context) if field.name in parameters}


@contextmanager
def _blamed_on(assignor: Assignor, what: str) -> Iterator[None]:
    """Turn any exception into an `AssignorError` that says `what` the assignor did.

    A user's own code may raise anything, and must not take the coordinator with it.
    """
    try:
        yield
    except AssignorError:
        raise
    except Exception as error:
        raise AssignorError.at_fault(assignor.name, f"{what} ({type(error).__name__}: {error})") from error
