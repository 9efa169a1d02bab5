"""The dashboard behind Airflow's own users and permissions.

A user who may read a cluster's coordinator DAG may look at the cluster; one who may edit it may give commands.
It is Airflow that decides, with the functions that its own pages use, and again at every request. Everything that the
plugin mounts must ask: Airflow protects nothing of a plugin by itself.
"""

from collections.abc import Callable
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi import FastAPI, HTTPException, Request, status
from sqlalchemy import select

from muster.dashboard.access import Access, Visitor
from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.dashboard.cluster_view import coordinator_dag
from muster.monitoring.exposition import Runs
from muster.monitoring.routes import metrics_router


def airflow_dashboard() -> FastAPI:
    """The application, as `muster.airflow.plugin` has it mounted."""
    answers = Answers()
    app = create_app(answers, Access(_visitor, _reader, _editor))
    # With a token of its own instead of Airflow's permissions.
    app.include_router(metrics_router(read_runs=read_runs, cache=answers.shared))
    return app


def read_runs(cluster: str) -> Runs:
    """Read from Airflow's database whether the coordinator of `cluster` is paused, and how its last run ended."""
    dag_id = coordinator_dag(cluster)
    with create_session() as session:
        paused = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
        last = session.execute(
            select(DagRun.end_date, DagRun.state)
            .where(DagRun.dag_id == dag_id, DagRun.end_date.is_not(None))
            .order_by(DagRun.end_date.desc())
            .limit(1)
        ).first()
    return Runs(
        paused=paused,
        last_end=last.end_date.timestamp() if last is not None else None,
        last_failed=last is not None and last.state == DagRunState.FAILED,
    )


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
