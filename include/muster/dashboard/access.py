"""Who may look and who may give commands: what the dashboard needs of what it is mounted in.

`muster.airflow.dashboard` asks Airflow; tests put another one in its place. Every route has one of the three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Visitor:
    """A user who is logged in. `may_read` and `may_edit` are by cluster."""

    name: str
    may_read: Callable[[str], bool]
    may_edit: Callable[[str], bool]


@dataclass(frozen=True)
class Access:
    """Three dependencies of FastAPI. Each gives a `Visitor`, or raises 401 for a user who is not logged in, and 403
    for one who may not.

    `visitor` lets in who may read DAGs at all; `reader` and `editor` those who may read, or edit, the coordinator DAG
    of the cluster in the path (`cluster`).
    """

    visitor: Callable[..., Visitor]
    reader: Callable[..., Visitor]
    editor: Callable[..., Visitor]
