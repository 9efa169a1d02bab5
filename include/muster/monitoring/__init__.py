"""What Prometheus scrapes of a whole cluster: topics, consumers, lag and the coordinator, read when it is asked for.

The consumers' own metrics are in `muster.consumer.metrics`, those that the coordinator's tasks send through Airflow
in `muster.airflow.stats`; `docs/metrics.md` lists all of them.
"""

from pathlib import Path

FILES = Path(__file__).with_name("files")
"""An example configuration for Prometheus, the alert rules with their runbooks, and a dashboard for Grafana."""
