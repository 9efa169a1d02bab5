"""One DAG a cluster of clusters.yaml that asks whom to isolate: `muster_stuck__[cluster]` (Airflow)."""

from muster.airflow.stuck_dag import stuck_dag
from muster.settings.clusters import load_clusters

for _cluster in load_clusters().clusters.values():
    globals()[f"muster_stuck__{_cluster.name}"] = stuck_dag(_cluster)
