"""What Prometheus scrapes of a whole cluster: topics, consumers, lag and the coordinator, read when it is asked for.

The consumers' own metrics are in `muster.consumer.metrics`, those that the coordinator's tasks send through Airflow
in `muster.airflow.stats`; `docs/metrics.md` lists all of them.
"""
