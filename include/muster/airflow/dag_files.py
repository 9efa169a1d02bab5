"""Which clusters a DAG file makes DAGs for: all of them, but only the one that matters in a task's process."""

from __future__ import annotations

from collections.abc import Iterator

from airflow.sdk import get_parsing_context

from muster.settings.clusters import ClusterSettings, load_clusters


def clusters_of(prefix: str) -> Iterator[tuple[str, ClusterSettings]]:
    """The id of each cluster's DAG, which begins with `prefix`, and the cluster.

    Airflow parses the file again for each task: with a hundred clusters that takes half of what the task takes. The
    settings are kept, because Airflow takes a DAG that a mistake keeps out of its file for removed.
    """
    only = get_parsing_context().dag_id
    found = load_clusters()
    found.keep()
    for name, cluster in found.clusters.items():
        dag_id = f"{prefix}__{name}"
        if only in {None, dag_id}:
            yield dag_id, cluster
