"""The dashboard behind Airflow's own users and permissions.

A user who may read a cluster's coordinator DAG may look at the cluster; one who may edit it may give commands.
It is Airflow that decides, with the functions that its own pages use, and again at every request. Everything that the
plugin mounts must ask: Airflow protects nothing of a plugin by itself.
"""

from collections.abc import Callable
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import HTTPException, Request, status

from muster.airflow.coordinator_runs import read_runs
from muster.airflow.dashboard_mount import Application
from muster.dashboard.access import Access, Visitor
from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.dashboard.cluster_view import coordinator_dag
from muster.monitoring.routes import metrics_router


def airflow_dashboard() -> Application:
    """The application, as `plugins/muster_dashboard.py` has it mounted."""
    answers = Answers()
    app = create_app(answers, Access(_visitor, _reader, _editor))
    # With a token of its own instead of Airflow's permissions.
    app.include_router(metrics_router(read_runs=read_runs, cache=answers.shared))
    return app


# Not in the form of `async def`: Airflow looks a DAG's team up in its database.


def _visitor(request: Request, user: GetUserDep) -> Visitor:
    requires_access_dag("GET")(request, user)
    return _known(request, user)


def _reader(cluster: str, request: Request, user: GetUserDep) -> Visitor:
    requires_access_dag("GET", param_dag_id=coordinator_dag(cluster))(request, user)
    return _known(request, user)


def _editor(cluster: str, request: Request, user: GetUserDep) -> Visitor:
    requires_access_dag("PUT", param_dag_id=coordinator_dag(cluster))(request, user)
    return _known(request, user)


def _known(request: Request, user: GetUserDep) -> Visitor:
    def allowed(method: Any) -> Callable[[str], bool]:
        def may(cluster: str) -> bool:
            try:
                requires_access_dag(method, param_dag_id=coordinator_dag(cluster))(request, user)
            except HTTPException as refusal:
                if refusal.status_code == status.HTTP_403_FORBIDDEN:
                    return False
                raise
            return True

        return may

    return Visitor(user.get_name(), may_read=allowed("GET"), may_edit=allowed("PUT"))
