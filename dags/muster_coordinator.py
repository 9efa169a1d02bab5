"""One coordinator DAG a cluster of clusters.yaml: `muster_coordinator__[cluster]` (Airflow)."""

from muster.airflow.coordinator_dag import coordinator_dag
from muster.settings.clusters import load_clusters

for _cluster in load_clusters().clusters.values():
    globals()[f"muster_coordinator__{_cluster.name}"] = coordinator_dag(_cluster)
