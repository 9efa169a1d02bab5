"""`/muster/metrics` and `/muster/targets`, for the application that Airflow's API server mounts at `/muster`.

Prometheus cannot log in to Airflow: its tokens end after a day or so. So these two have a token of their own, the
password of the Airflow connection `muster_metrics`, and answer 403 while there is no such connection. The token opens
nothing else, and nothing here changes anything.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Response, status
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import SecretStr

from muster.cluster.cache import StateCache
from muster.cluster.reading import SourceName
from muster.cluster.state import ClusterState
from muster.monitoring.exporter import Exporter, RunsReader
from muster.monitoring.exposition import TargetsUnknownError, targets
from muster.settings.clusters import SettingsError
from muster.settings.connection_lookup import CONNECTIONS
from muster.settings.connection_parsing import ConnectionSettingsError

log = logging.getLogger(__name__)

CONNECTION = "muster_metrics"
"""The Airflow connection whose password Prometheus has to send."""
MARGIN = 0.5
"""Seconds of Prometheus's own deadline that are left for the answer to be written and sent."""
WITHIN = 9.5
"""Seconds, where Prometheus does not say its deadline: the default one, with the margin taken off."""

Token = Callable[[], SecretStr | None]


def connection_token() -> SecretStr | None:
    """Return the token in the Airflow connection `muster_metrics`. Raises `ConnectionSettingsError` without one."""
    return CONNECTIONS.token(CONNECTION)


def metrics_router(
    token: Token = connection_token, read_runs: RunsReader | None = None, cache: StateCache | None = None
) -> APIRouter:
    """Make the two routes.

    `token` gives the bearer token that they ask for, `read_runs` what Airflow knows of a coordinator's runs; without
    it these metrics are left out. `cache` is that of the dashboard in this process, if there is one, so that both
    share what is read.
    """
    exporter = Exporter(cache or StateCache(), read_runs)

    def authorized(authorization: Annotated[str, Header()] = "") -> None:
        try:
            wanted = token()
        except ConnectionSettingsError as error:
            log.warning("metrics are refused: %s", error)
            raise HTTPException(
                status.HTTP_403_FORBIDDEN,
                f"metrics are switched off; create the Airflow connection {CONNECTION!r} with a token as its "
                "password (Admin > Connections), and send it: Authorization: Bearer ...",
            ) from None
        sent = authorization.encode()
        if wanted is None or not secrets.compare_digest(sent, f"Bearer {wanted.get_secret_value()}".encode()):
            raise HTTPException(
                status.HTTP_401_UNAUTHORIZED,
                f"this needs the bearer token of the Airflow connection {CONNECTION!r}: Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )

    router = APIRouter(dependencies=[Depends(authorized)], tags=["metrics"])

    # Plain functions: FastAPI runs them in threads, so a server that hangs holds up no other request.
    @router.get("/metrics")
    def metrics(
        cluster: Annotated[list[str] | None, Query()] = None,
        partitions: bool = True,
        x_prometheus_scrape_timeout_seconds: Annotated[float | None, Header()] = None,
    ) -> Response:
        """Return all metrics, or those of `cluster`; without `partitions` none that are by partition."""
        try:
            text = exporter.text(cluster or (), partitions, _within(x_prometheus_scrape_timeout_seconds))
        except SettingsError as error:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, str(error)) from error
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    @router.get("/targets")
    def discover(cluster: Annotated[list[str] | None, Query()] = None) -> list[dict[str, Any]]:
        """List the consumers' status pages. After an error Prometheus goes on with those that it knows."""
        try:
            states = exporter.states(cluster or (), [SourceName.CONSUL], WITHIN)
            return targets(states, [name for name, state in states.items() if _speaks_tls(state)])
        except (SettingsError, ConnectionSettingsError, TargetsUnknownError) as error:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, str(error)) from error

    return router


def _speaks_tls(state: ClusterState) -> bool:
    return CONNECTIONS.status_pages(state.settings.status).scheme == "https"


def _within(said: float | None) -> float:
    return WITHIN if said is None else max(MARGIN, said - MARGIN)
