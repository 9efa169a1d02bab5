"""The Airflow plugin: the dashboard in Airflow's navigation and on the pages of its DAGs, and notes on runs.

Every part of Airflow imports this module (the scheduler and each task too), and only the API server is ever asked
for a page. So it imports nothing heavy: the dashboard itself, with the clients of ZooKeeper, Consul and Kafka, is
imported and built at the first request to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from muster.airflow import run_notes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class LazyApplication:
    """An ASGI application that is made by `build`, in a thread, when it is first asked for something."""

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._built: ASGIApp | None = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on. What `build` raises is the request's error, and the next request tries again."""
        if self._built is None:
            async with self._building:
                if self._built is None:
                    self._built = await asyncio.to_thread(self._build)
        await self._built(scope, receive, send)


def _dashboard() -> ASGIApp:
    from muster.airflow.dashboard import airflow_dashboard  # noqa: PLC0415 - see the module

    return airflow_dashboard()


class MusterPlugin(AirflowPlugin):
    """The application at `/muster`, the two places from which one comes to it, and a listener in the scheduler."""

    name = "muster"
    listeners = [run_notes]  # noqa: RUF012 - as Airflow wants it
    fastapi_apps = [  # noqa: RUF012
        {"app": LazyApplication(_dashboard), "url_prefix": "/muster", "name": "Muster"}
    ]
    external_views = [  # noqa: RUF012
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
