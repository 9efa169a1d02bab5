"""Two DAGs to be triggered by hand with a form: `muster_isolate` and `muster_restore` (Airflow)."""

from airflow.sdk import DAG, get_current_context, task

from muster.airflow import isolation
from muster.airflow.lever_events import LEVERS
from muster.airflow.lever_forms import BY_HAND
from muster.settings.clusters import load_clusters

_FORM = isolation.form(load_clusters())

with DAG(
    dag_id="muster_isolate",
    dag_display_name="Muster: isolate a consumer",
    description="Take a consumer out: its partitions go to the others, it keeps running without work",
    params=_FORM,
    **BY_HAND,
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
    params=_FORM,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def restore() -> dict[str, object]:
        """Remove the isolation from Consul."""
        return isolation.restore(get_current_context())

    restore()
