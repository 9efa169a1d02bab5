"""Who may look and who may give commands: what the dashboard needs of what it is mounted in.

`muster.airflow.dashboard` asks Airflow; tests put another one in its place. Every route has one of the three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Visitor:
    """A user who is logged in. `may_read` and `may_edit` are by cluster."""

    name: str
    may_read: Callable[[str], bool]
    may_edit: Callable[[str], bool]


class Access(Protocol):
    """Three dependencies of FastAPI. Each gives a `Visitor`, or raises 401 for a user who is not logged in, and 403
    for one who may not."""

    @property
    def visitor(self) -> Callable[..., Any]:
        """A user who may read DAGs at all."""

    @property
    def reader(self) -> Callable[..., Any]:
        """A user who may read the coordinator DAG of the cluster in the path (`cluster`)."""

    @property
    def editor(self) -> Callable[..., Any]:
        """A user who may edit it."""
