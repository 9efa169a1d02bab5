"""What persons decided about the coordination of a cluster as a whole: paused, rebalance now, another assignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.core.decided import Decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Decided):
    """Coordination is held still until a person resumes it: nothing is planned, and nothing is written."""

    def __str__(self) -> str:
        return f"paused by {self.said_since()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRequest(Decided):
    """A person asked for a rebalance now. It stands until a coordinator run has carried it out.

    Meanwhile no `rebalance_delay` is waited for, and assignors that keep something where it is on purpose know it
    (`rebalance_now` of `muster.core.assignors.PlanningContext`). `modified` is Consul's index of the key, to end this
    request and no later one.
    """

    modified: int = 0

    def __str__(self) -> str:
        return f"rebalance asked for by {self.said()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorChoice(Decided):
    """A person put the assignor `name`, made with `options`, in the place of the one that clusters.yaml names."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"assignor {self.name}{shown_options(self.options)} by {self.said_since()}"


def shown_options(options: Mapping[str, Any]) -> str:
    """` (budget=10, measure=lag)`, '' without options."""
    listed = ", ".join(f"{key}={options[key]}" for key in sorted(options))
    return f" ({listed})" if listed else ""
