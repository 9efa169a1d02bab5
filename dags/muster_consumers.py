"""One consumers DAG a cluster of clusters.yaml: `muster_consumers__[cluster]` (Airflow)."""

from muster.airflow.consumers_dag import consumers_dag
from muster.airflow.dag_files import clusters_of

for _dag_id, _cluster in clusters_of("muster_consumers"):
    globals()[_dag_id] = consumers_dag(_cluster)
