"""What Muster's triggers have in common: their arguments are the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

SETTLED = 6.0
"""Seconds that a trigger runs at least before it fires. Airflow's executor reports the end of the process that
deferred up to 5 s late, and a task that was resumed by then is taken for one that died."""


@dataclass(eq=False, repr=False)
class MusterTrigger(BaseTrigger):
    """A trigger that the triggerer makes again from its fields, which Airflow has to be able to encode."""

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's is not annotated

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What the triggerer makes this trigger from again."""
        made = type(self)
        return f"{made.__module__}.{made.__qualname__}", {f.name: getattr(self, f.name) for f in fields(self)}


def event(payload: Any) -> TriggerEvent:
    """Make what a trigger fires with."""
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's is not annotated
