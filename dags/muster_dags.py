"""All of Muster's DAGs (Airflow)."""

from muster.airflow.dags import muster_dags

globals().update(muster_dags())
