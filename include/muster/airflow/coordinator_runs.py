"""What Airflow's database knows of a coordinator's DAG, for the metrics. Only where the database may be read: in the
API server, not in tasks."""

from __future__ import annotations

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from sqlalchemy import select

from muster.monitoring.exposition import Runs


def read_runs(cluster: str) -> Runs:
    """Read whether the coordinator of `cluster` is paused, and how its last run ended."""
    dag_id = f"muster_coordinator__{cluster}"
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
