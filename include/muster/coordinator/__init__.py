"""One run of the coordinator: the pure core and the edges put together, without Airflow."""
