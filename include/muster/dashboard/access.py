"""Which users may look at a cluster, and which may give it commands.

The dashboard needs that of what it is mounted in: `muster.airflow.dashboard` asks Airflow; tests put another one in
its place. Every route has a `Visitor`, and every route of a cluster asks the visitor's `may` for that cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, HTTPException, status


class Right(StrEnum):
    """What a user may do with a cluster; in words, to complete "the right to ..."."""

    LOOK = "read its DAG muster_coordinator__"
    COMMAND = "create runs of its DAG muster_commands__"


@dataclass(frozen=True)
class Visitor:
    """A user who is logged in. `may` says whether the user has a right on the cluster of that name."""

    name: str
    may: Callable[[Right, str], bool]


IdentifyVisitor = Callable[..., Visitor]
"""A dependency of FastAPI that gives the visitor, or raises 401 for a user who is not logged in."""


def requires(identify: IdentifyVisitor, right: Right) -> IdentifyVisitor:
    """Make the dependency that lets in who has `right` on the cluster in the path (`cluster`); others get 403."""

    def allowed(cluster: str, visitor: Annotated[Visitor, Depends(identify)]) -> Visitor:
        if not visitor.may(right, cluster):
            raise HTTPException(
                status.HTTP_403_FORBIDDEN,
                f"user {visitor.name!r} may not do this to cluster {cluster!r}; it takes the right to "
                f"{right}{cluster}",
            )
        return visitor

    return allowed
