"""An auth manager with rights to single DAGs, which Airflow's own simple one does not have.

A user may see and do what concerns the DAGs of the cluster that has the user's name; `admin` may do everything. Users
and passwords are those of Airflow's simple auth manager.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

LOOKS_ONLY = "-looks"
"""What the name of a user ends with who may not change anything in the cluster before it."""


class TeamsAuthManager(SimpleAuthManager):
    """Gives `NAME` all rights to the DAGs `...__NAME`, and `NAME-looks` the right to read them."""

    def is_authorized_dag(
        self,
        *,
        method: Any,
        user: SimpleAuthManagerUser,
        access_entity: DagAccessEntity | None = None,
        details: DagDetails | None = None,
    ) -> bool:
        """Whether `user` may; without a DAG, only what an admin may."""
        del access_entity
        if user.username == "admin":
            return True
        if details is None or not details.id:
            return False
        cluster = user.username.removesuffix(LOOKS_ONLY)
        looks_only = cluster != user.username
        return details.id.endswith(f"__{cluster}") and (method == "GET" or not looks_only)
