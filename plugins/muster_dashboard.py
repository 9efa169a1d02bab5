"""Muster's dashboard in Airflow's navigation and on the pages of its DAGs (Airflow's plugin interface).

This file is read by every part of Airflow, so it imports nothing heavy: the dashboard itself, with the clients of
ZooKeeper, Consul and Kafka, is imported by the API server at the first request to it. Airflow imports it under the
file's own name, which must therefore not be that of the package `muster`.
"""

from typing import ClassVar

from airflow.plugins_manager import AirflowPlugin

from muster.airflow.dashboard_mount import lazy_dashboard


class MusterPlugin(AirflowPlugin):
    """The application at `/muster`, and the two places from which one comes to it."""

    name = "muster"
    fastapi_apps: ClassVar = [{"app": lazy_dashboard(), "url_prefix": "/muster", "name": "Muster"}]
    external_views: ClassVar = [
        # Without a leading slash, so that it follows [api] base_url behind a proxy with a path.
        {
            "name": "Muster",
            "href": "muster/",
            "destination": "nav",
            "category": "browse",
            "url_route": "muster",
        },
        {
            "name": "Muster",
            "href": "muster/of-dag/{DAG_ID}",
            "destination": "dag",
            "url_route": "muster-of-dag",
        },
    ]
