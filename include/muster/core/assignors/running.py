"""Running an assignor, whoever wrote it: what comes back is an assignment that can be obeyed, or an error."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from muster.core.assignors.base import Assignor, AssignorError
from muster.core.assignors.circumstances import NOTHING_FURTHER, Circumstances
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

    Raises `AssignorError` naming the assignor if it raises anything or returns no valid assignment.
    """
    try:
        assignment = assignor.assign(topics, consumers, previous, **_asked_for(assignor, circumstances))
    except AssignorError:
        raise
    except (
        Exception
    ) as error:  # a user's own code may raise anything, and must not take the coordinator with it
        raise AssignorError(
            f"assignor {assignor.name!r} failed ({type(error).__name__}: {error}); nothing is moved. Correct the "
            "assignor, or name another one in clusters.yaml"
        ) from error
    validate(assignment, topics, consumers, assignor=assignor.name)
    return assignment


def _asked_for(assignor: Assignor, circumstances: Circumstances) -> dict[str, Any]:
    """The circumstances that `assign` has a parameter for, by name."""
    parameters = inspect.signature(assignor.assign).parameters
    return {
        field.name: getattr(circumstances, field.name)
        for field in fields(circumstances)
        if field.name in parameters
    }
