"""Running an assignor, built-in or not: what comes back is an assignment that can be obeyed, or an error.

Exclusions and pins are obeyed here, so that no assignor has to know of them. What a consumer is excluded from
is taken out of its subscription. Pinned partitions are taken out of what the assignor is given and put into
what it returned; an assignor whose `assign` has a parameter `pins` is given everything instead, with those
pins that can be obeyed, and has to obey them itself, for which it can count them when it balances.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from muster.core.assignors.base import Assignor, blamed_on
from muster.core.assignors.circumstances import NOTHING_FURTHER, Circumstances
from muster.core.assignors.exclusions import without_excluded
from muster.core.assignors.pins import obeyable, with_pinned, without_pinned
from muster.core.assignors.validation import validate
from muster.core.model import Assignment, Consumer


def run_assignor(
    assignor: Assignor,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    previous: Assignment,
    circumstances: Circumstances = NOTHING_FURTHER,
) -> Assignment:
    """Return what `assignor` assigns under `circumstances`, validated.

    Pins that cannot be obeyed have no effect (`muster.core.assignors.pins.impossible_pins` tells which). A
    topic whose only subscribers are excluded from it is left out, as one without subscribers is. Raises
    `AssignorError` naming the assignor if it raises anything or returns no valid assignment.
    """
    reachable = without_excluded(consumers, circumstances.exclusions, topics)
    pins = obeyable(circumstances.pins, topics, reachable) if circumstances.pins else {}
    asked_for = _asked_for(assignor, replace(circumstances, pins=pins))
    own, others = (pins, {}) if "pins" in asked_for else ({}, pins)
    given = without_pinned(topics, others)
    with blamed_on(assignor, "failed"):
        assignment = assignor.assign(given, reachable, previous, **asked_for)
    validate(assignment, given, reachable, assignor=assignor.name, pins=own)
    return with_pinned(assignment, others)


def _asked_for(assignor: Assignor, circumstances: Circumstances) -> dict[str, Any]:
    """The circumstances that `assign` has a parameter for, by name."""
    parameters = inspect.signature(assignor.assign).parameters
    return {
        field.name: getattr(circumstances, field.name)
        for field in fields(circumstances)
        if field.name in parameters
    }
