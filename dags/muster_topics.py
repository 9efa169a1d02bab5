"""DAGs to be triggered by hand with a form: subscribe and unsubscribe topics (Airflow)."""

from airflow.sdk import DAG, get_current_context, task

from muster.airflow import topics
from muster.airflow.lever_events import LEVERS
from muster.airflow.lever_forms import BY_HAND
from muster.settings.clusters import load_clusters

_CLUSTERS = load_clusters()

_SUBSCRIBE = """
Has a cluster read a topic, or all topics that match a pattern, on top of what `clusters.yaml` names. The next run of
the coordinator picks up what is in Kafka; a topic starts at the offsets that the group committed, else at its
earliest record. A pattern goes on picking up new topics.
"""

_UNSUBSCRIBE = """
A cluster no longer reads a topic, or all topics that match a pattern, whatever `clusters.yaml` says. Their owners
stop reading and commit; when all have said so, the topics go. The other topics do not pause. Subscribed again later,
a topic goes on from the committed offsets.
"""

with DAG(
    dag_id="muster_subscribe",
    dag_display_name="Muster: subscribe a cluster to a topic",
    description="The cluster reads this topic, or all that match this pattern",
    params=topics.form(_CLUSTERS),
    doc_md=_SUBSCRIBE,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def subscribe() -> dict[str, object]:
        """Write the subscription to Consul."""
        return topics.subscribe(get_current_context())

    subscribe()

with DAG(
    dag_id="muster_unsubscribe",
    dag_display_name="Muster: unsubscribe a cluster from a topic",
    description="The topic is closed in order, committed, and then gone from the cluster",
    params=topics.form(_CLUSTERS),
    doc_md=_UNSUBSCRIBE,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def unsubscribe() -> dict[str, object]:
        """Write the removal to Consul."""
        return topics.unsubscribe(get_current_context())

    unsubscribe()
