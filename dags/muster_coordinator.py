"""One coordinator DAG a cluster of clusters.yaml: `muster_coordinator__[cluster]` (Airflow)."""

from muster.airflow.coordinator_dag import coordinator_dag
from muster.airflow.dag_files import clusters_of

for _dag_id, _cluster in clusters_of("muster_coordinator"):
    globals()[_dag_id] = coordinator_dag(_cluster)
