"""DAGs to be triggered by hand with a form, one a command: `muster_isolate`, `muster_pin`, ... (Airflow)."""

from muster.airflow.command_dags import command_dags
from muster.settings.clusters import load_clusters

for _dag in command_dags(load_clusters()):
    globals()[_dag.dag_id] = _dag
