"""DAGs to be triggered by hand with a form: pause, resume, rebalance and assignor (Airflow)."""

from airflow.sdk import DAG, get_current_context, task

from muster.airflow import coordination_levers
from muster.airflow.lever_events import LEVERS
from muster.airflow.lever_forms import BY_HAND
from muster.settings.clusters import load_clusters

_CLUSTERS = load_clusters()

_PAUSE = """
Holds the coordination of a cluster still: nothing is planned, and nothing is written, until `muster_resume`.

- Consumers go on with what they have. One that dies is **not** replaced, and new topics and partitions wait.
- What is in the middle of a hand-over waits where it is: what is closed stays closed.
- Each run of the coordinator skips `compute_assignment`, whose log says who paused the cluster, since when and why.
"""

_RESUME = """
Lets the coordination of a cluster that `muster_pause` holds still go on. What changed meanwhile is planned at once.
"""

_REBALANCE = """
Has the coordinator rebalance a cluster at once:

- no absent consumer is waited for (`rebalance_delay`);
- what the assignor leaves where it is until a person asks goes where it belongs (failover with `give_back: false`).

What a setting bounds stays bounded (`budget` and `tolerance` of load-aware, `rack_moves` of sticky). A cluster that
is balanced stays as it is.
"""

_ASSIGNOR = """
Plans a cluster with another assignor than the one in `clusters.yaml`, until it is taken back by choosing
`(as in clusters.yaml)`. `muster plan --cluster NAME --assignor OTHER` shows beforehand what would move and why. An
unknown assignor, one that `clusters.yaml` does not allow, or options that it refuses, change nothing.
"""

with DAG(
    dag_id="muster_pause",
    dag_display_name="Muster: hold the coordination of a cluster still",
    description="Nothing is planned or written until it is resumed; consumers go on with what they have",
    params=coordination_levers.form(_CLUSTERS),
    doc_md=_PAUSE,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def pause() -> dict[str, object]:
        """Write the pause to Consul."""
        return coordination_levers.pause(get_current_context())

    pause()

with DAG(
    dag_id="muster_resume",
    dag_display_name="Muster: let the coordination of a cluster go on",
    description="Ends a pause",
    params=coordination_levers.form(_CLUSTERS),
    doc_md=_RESUME,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def resume() -> dict[str, object]:
        """Remove the pause from Consul."""
        return coordination_levers.resume(get_current_context())

    resume()

with DAG(
    dag_id="muster_rebalance",
    dag_display_name="Muster: rebalance a cluster now",
    description="Ends all waits, and puts everything where it belongs",
    params=coordination_levers.form(_CLUSTERS),
    doc_md=_REBALANCE,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def rebalance() -> dict[str, object]:
        """Write the request to Consul; the coordinator removes it when it is carried out."""
        return coordination_levers.rebalance(get_current_context())

    rebalance()

with DAG(
    dag_id="muster_assignor",
    dag_display_name="Muster: change the assignor of a cluster",
    description="Plans with another assignor than the one in clusters.yaml, until it is taken back",
    params=coordination_levers.assignor_form(_CLUSTERS),
    doc_md=_ASSIGNOR,
    **BY_HAND,
):

    @task(outlets=[LEVERS])
    def assignor() -> dict[str, object]:
        """Write the choice to Consul, or remove it."""
        return coordination_levers.assignor(get_current_context())

    assignor()
