"""One consumers DAG a cluster of clusters.yaml: `muster_consumers__[cluster]` (Airflow)."""

from muster.airflow.consumers_dag import consumers_dag
from muster.settings.clusters import load_clusters

for _cluster in load_clusters().clusters.values():
    globals()[f"muster_consumers__{_cluster.name}"] = consumers_dag(_cluster)
