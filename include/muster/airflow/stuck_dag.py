"""The DAG `muster_stuck__[cluster]`: asks a person whether to isolate a consumer that holds things up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from muster.airflow.command_dags import EVENTS
from muster.airflow.coordinator_dag import stuck
from muster.airflow.stuck_question import AskToIsolate
from muster.settings.clusters import ClusterSettings

_DOC = """
### Something is stuck in cluster `{name}`

A topic of this cluster is not Stable, or an owner makes no progress, for longer than {stuck:g} s. `ask` has one task
for each consumer that holds things up. Open it under **Required Actions**: it shows what is held up, and what would
happen if the consumer were isolated. Choose:

- **Isolate** it: its partitions go to the others, with your name on it. `muster_restore` takes it back.
- **Wait**: nothing is changed. If it still holds things up after another {stuck:g} s, you are asked again.

A question closes by itself when the consumer holds up nothing any more.
"""


def stuck_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_stuck__[cluster]`, which the coordinator's Asset event `muster://[cluster]/stuck` starts."""
    name = cluster.name
    with DAG(
        dag_id=f"muster_stuck__{name}",
        dag_display_name=f"Muster, stuck: {name}",
        description="Asks a person whether to isolate a consumer that holds up a rebalance",
        doc_md=_DOC.format(name=name, stuck=cluster.stuck_after),
        schedule=[stuck(name)],
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        is_paused_upon_creation=False,  # it asks only when something is stuck, and then a person is to see it
        max_active_runs=1,
        default_args={"owner": "muster", "retries": 0},
        tags=["muster", "stuck", name],
    ) as dag:

        @task(execution_timeout=timedelta(minutes=2))
        def find() -> list[dict[str, Any]]:
            """Who holds things up now, and what to ask about each."""
            from muster.airflow.stuck import find_questions  # noqa: PLC0415 - the DAG file stays light

            return find_questions(name, get_current_context())

        AskToIsolate.partial(
            task_id="ask",
            cluster=name,
            patience=cluster.stuck_after,
            # Airflow resumes the task at the answer, and takes it for dead if that comes before the executor has
            # reported the end of the process that asked, some seconds late. Then the question is put again.
            retries=3,
            retry_delay=timedelta(seconds=1),
            outlets=[EVENTS],
            map_index_template="{{ task.consumer }}",
        ).expand_kwargs(find())
    return dag
