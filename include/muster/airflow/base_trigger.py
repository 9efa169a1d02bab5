"""What Muster's triggers have in common: their arguments are the fields of a dataclass."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

SETTLED = 6.0
"""Seconds that a trigger runs at least before it fires. Airflow's executor reports the end of the process that
deferred up to 5 s late, and a task that was resumed by then is taken for one that died."""


@dataclass(eq=False, repr=False)
class MusterTrigger(BaseTrigger):
    """A trigger that the triggerer makes again from its fields, which Airflow has to be able to encode.

    After an upgrade that may be the triggerer of another version: what is deferred stays in Airflow's database. So a
    field that is added has a default, none is renamed, and what has its default is left out, for a version before
    that does not know it.
    """

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's is not annotated

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer makes this trigger from again."""
        made = type(self)
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        defaults = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        changed = {
            name: value for name, value in given.items() if name not in defaults or value != defaults[name]
        }
        return f"{made.__module__}.{made.__qualname__}", changed


def event(payload: Any) -> TriggerEvent:
    """Make what a trigger fires with."""
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's is not annotated
