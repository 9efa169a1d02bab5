"""Two DAGs to be triggered by hand with a form: `muster_isolate` and `muster_restore` (Airflow)."""

from airflow.sdk import DAG, get_current_context, task

from muster.airflow import isolation
from muster.airflow.lever_events import LEVERS
from muster.settings.clusters import load_clusters

_FORM = isolation.form(load_clusters())
_ARGUMENTS = {"owner": "muster", "retries": 0}

with DAG(
    dag_id="muster_isolate",
    dag_display_name="Muster: isolate a consumer",
    description="Take a consumer out: its partitions go to the others, it keeps running without work",
    schedule=None,
    is_paused_upon_creation=False,  # it runs only when somebody triggers it, and then it is to run at once
    params=_FORM,
    default_args=_ARGUMENTS,
    tags=["muster", "by hand"],
):

    @task(outlets=[LEVERS])
    def isolate() -> dict[str, object]:
        """Write the isolation to Consul."""
        return isolation.isolate(get_current_context())

    isolate()

with DAG(
    dag_id="muster_restore",
    dag_display_name="Muster: restore a consumer",
    description="Take an isolated consumer back: it gets its share of partitions with the next rebalance",
    schedule=None,
    is_paused_upon_creation=False,  # it runs only when somebody triggers it, and then it is to run at once
    params=_FORM,
    default_args=_ARGUMENTS,
    tags=["muster", "by hand"],
):

    @task(outlets=[LEVERS])
    def restore() -> dict[str, object]:
        """Remove the isolation from Consul."""
        return isolation.restore(get_current_context())

    restore()
