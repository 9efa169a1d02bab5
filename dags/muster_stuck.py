"""One DAG a cluster of clusters.yaml that asks which consumer to isolate: `muster_stuck__[cluster]` (Airflow)."""

from muster.airflow.dag_files import clusters_of
from muster.airflow.stuck_dag import stuck_dag

for _dag_id, _cluster in clusters_of("muster_stuck"):
    globals()[_dag_id] = stuck_dag(_cluster)
