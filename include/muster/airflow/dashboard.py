"""The dashboard behind Airflow's own users and permissions.

A user who may read a cluster's coordinator DAG may look at the cluster; one who may trigger the DAG of its commands
may give them here, too. It is Airflow that decides, with the functions that its own pages use, and again at every
request. Everything that the plugin mounts must ask: Airflow protects nothing of a plugin by itself.
"""

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi import FastAPI, HTTPException, Request, status
from sqlalchemy import select

from muster.dashboard.access import Right, Visitor
from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.dashboard.cluster_view import commands_dag, coordinator_dag
from muster.monitoring.exposition import Runs
from muster.monitoring.routes import metrics_router


def airflow_dashboard() -> FastAPI:
    """Build the application, as `muster.airflow.plugin` has it mounted."""
    answers = Answers()
    app = create_app(answers, identify)
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


def identify(request: Request, user: GetUserDep) -> Visitor:
    """Give the user who is logged in to Airflow."""
    return Visitor(user.get_name(), lambda right, cluster: may(right, cluster, request, user))


def may(right: Right, cluster: str, request: Request, user: BaseUser) -> bool:
    """Tell whether Airflow gives `user` this right on `cluster`.

    To look is to read the coordinator's DAG; to command is to create runs of the DAG of the cluster's commands, which
    Airflow itself asks for when that DAG is triggered.
    """
    asked = (
        requires_access_dag("GET", param_dag_id=coordinator_dag(cluster))
        if right is Right.LOOK
        else requires_access_dag("POST", DagAccessEntity.RUN, param_dag_id=commands_dag(cluster))
    )
    try:
        asked(request, user)
    except HTTPException as refusal:
        if refusal.status_code == status.HTTP_403_FORBIDDEN:
            return False
        raise
    return True
