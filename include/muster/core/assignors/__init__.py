"""Assignors: which consumer reads which partition. Pure rules behind one interface.

`api` says what an assignor is, `loading` finds one by name or dotted path, `run` runs it and checks what it returned.
The rules: `range`, `round_robin`, `sticky`, `failover`, `co_partitioned` and `load_aware`. What they share: `pins`,
`subscriptions` (and exclusions from them), `balance`, `quota` and `zones`. `docs/assignors.md` says which one to
choose and how to write one's own.
"""

from __future__ import annotations

from muster.core.assignors.api import (
    EMPTY_CONTEXT,
    Assignor,
    AssignorError,
    HasStandbys,
    ObservesOutcome,
    Outcome,
    PlanningContext,
)
from muster.core.assignors.loading import BUILT_IN, load_assignor
from muster.core.assignors.pins import ImpossiblePin, impossible_pins
from muster.core.assignors.run import run_assignor, run_standbys
from muster.core.assignors.validation import validate

__all__ = [
    "BUILT_IN",
    "EMPTY_CONTEXT",
    "Assignor",
    "AssignorError",
    "HasStandbys",
    "ImpossiblePin",
    "ObservesOutcome",
    "Outcome",
    "PlanningContext",
    "impossible_pins",
    "load_assignor",
    "run_assignor",
    "run_standbys",
    "validate",
]
