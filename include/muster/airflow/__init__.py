"""Everything that imports Airflow: connections, task functions, the consumer operator and its trigger."""
