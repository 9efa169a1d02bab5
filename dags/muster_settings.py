"""Shows mistakes in the settings as an import error of this file (Airflow). It defines no DAG."""

from muster.airflow.dags import check_settings

check_settings()
