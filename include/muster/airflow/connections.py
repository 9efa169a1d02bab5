"""Connections as a task and a trigger look them up: from Airflow's supervisor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from asgiref.sync import sync_to_async

from muster.airflow.older import READS_ASYNC
from muster.settings.connection_lookup import Connections
from muster.settings.connection_parsing import (
    ConnectionFields,
    MissingConnectionError,
    check_extra,
    parse_consul,
)
from muster.settings.connections import ConsulSettings


async def aconsul_settings(conn_id: str) -> ConsulSettings:
    """Read as `CONNECTIONS.consul` does, for the triggerer: without blocking the event loop."""
    if not READS_ASYNC:
        return await sync_to_async(CONNECTIONS.consul)(conn_id)
    with _missing_is_said(conn_id):
        connection = await BaseHook.aget_connection(conn_id)
    check_extra(connection)
    return parse_consul(connection, await connection.aextra_dejson())


def _from_supervisor(conn_id: str) -> tuple[ConnectionFields, Mapping[str, Any]]:
    with _missing_is_said(conn_id):
        connection = BaseHook.get_connection(conn_id)
    check_extra(connection)
    # Airflow's own accessor registers what it finds with the secrets masker.
    return connection, connection.extra_dejson


@contextmanager
def _missing_is_said(conn_id: str) -> Iterator[None]:
    try:
        yield
    except AirflowNotFoundException as error:
        raise MissingConnectionError(
            f"there is no Airflow connection {conn_id!r}; create it under Admin > Connections, or set the "
            f"environment variable AIRFLOW_CONN_{conn_id.upper()}"
        ) from error


CONNECTIONS = Connections(_from_supervisor)
"""For tasks."""
