"""Four DAGs to be triggered by hand with a form: pin, unpin, exclude and include (Airflow)."""

from airflow.sdk import DAG, get_current_context, task

from muster.airflow import placement
from muster.airflow.lever_events import LEVERS
from muster.airflow.lever_forms import BY_HAND
from muster.settings.clusters import load_clusters

_CLUSTERS = load_clusters()

with DAG(
    dag_id="muster_pin",
    dag_display_name="Muster: pin partitions to a consumer",
    description="These partitions go to this consumer, and stay there until they are unpinned",
    params=placement.pin_form(_CLUSTERS),
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def pin() -> dict[str, object]:
        """Write the pins to Consul."""
        return placement.pin(get_current_context())

    pin()

with DAG(
    dag_id="muster_unpin",
    dag_display_name="Muster: unpin partitions",
    description="These partitions may go wherever the assignor wants them again",
    params=placement.unpin_form(_CLUSTERS),
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def unpin() -> dict[str, object]:
        """Remove the pins from Consul."""
        return placement.unpin(get_current_context())

    unpin()

with DAG(
    dag_id="muster_exclude",
    dag_display_name="Muster: exclude a consumer from a topic",
    description="This consumer takes no partition of this topic; the others do",
    params=placement.exclusion_form(_CLUSTERS),
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def exclude() -> dict[str, object]:
        """Write the exclusion to Consul."""
        return placement.exclude(get_current_context())

    exclude()

with DAG(
    dag_id="muster_include",
    dag_display_name="Muster: include a consumer in a topic again",
    description="This consumer takes its share of this topic again",
    params=placement.exclusion_form(_CLUSTERS),
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def include() -> dict[str, object]:
        """Remove the exclusion from Consul."""
        return placement.include(get_current_context())

    include()
