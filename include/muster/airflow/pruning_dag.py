"""The DAG `muster_pruning`: deletes old runs of Muster's DAGs and their logs (Airflow)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, task
from airflow.sdk.configuration import conf

PRUNING = "muster_pruning"

_DOC = """
### Pruning

A coordinator runs every few seconds, so its runs have to go some day. `retention` in the settings says when: by
default `quiet_runs` (which did nothing) after a day, failures after a week, rebalances and what people did after 90
days. Only Muster's own DAGs are touched; the history in ZooKeeper is pruned by each coordinator itself.

It deletes runs through Airflow's REST API, as the user of the connection `muster_airflow` (type `http`: host, port,
login and password, or a bearer token as the password), who must have the right to delete DAG runs. This DAG is on
from the beginning. Without that connection `prune_runs` **fails** every hour and says so: runs and their logs only
grow until it is there.
"""


def pruning_dag() -> DAG:
    """Build `muster_pruning`."""
    with DAG(
        dag_id=PRUNING,
        dag_display_name="Muster: pruning",
        description="Deletes old runs of Muster's DAGs and their log files",
        doc_md=_DOC,
        schedule=timedelta(hours=1),
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # a coordinator's runs grow from its first minute on
        default_args={"owner": "muster", "retries": 0, "execution_timeout": timedelta(minutes=15)},
        tags=["muster"],
    ) as dag:

        @task
        def prune_runs() -> dict[str, int]:
            """Delete old runs, with their task instances, XComs, notes and log files."""
            from muster.airflow import pruning  # noqa: PLC0415 - a DAG file stays light

            return pruning.prune_runs(Path(conf.get("logging", "base_log_folder")))

        @task
        def prune_logs() -> int:
            """Delete log files whose runs are gone."""
            from muster.airflow import pruning  # noqa: PLC0415

            return pruning.prune_logs(Path(conf.get("logging", "base_log_folder")))

        prune_runs()
        prune_logs()
    return dag
