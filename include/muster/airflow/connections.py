"""Connections as a task and a trigger look them up: from Airflow's supervisor.

Airflow is imported with the first look-up, because DAG files import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.settings.connection_lookup import Connections
from muster.settings.connection_parsing import (
    ConnectionFields,
    ConnectionSettingsError,
    check_extra,
    parse_consul,
)
from muster.settings.connections import ConsulSettings


async def aconsul_settings(conn_id: str) -> ConsulSettings:
    """Like `CONNECTIONS.consul`, for the triggerer: it does not block the event loop."""
    from airflow.sdk import BaseHook  # noqa: PLC0415 - see the module
    from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415

    try:
        connection = await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id) from error
    check_extra(connection)
    return parse_consul(connection, await connection.aextra_dejson())


def _from_supervisor(conn_id: str) -> tuple[ConnectionFields, Mapping[str, Any]]:
    from airflow.sdk import BaseHook  # noqa: PLC0415 - see the module
    from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415

    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id) from error
    check_extra(connection)
    # Airflow's own accessor registers what it finds with the secrets masker.
    return connection, connection.extra_dejson


def _missing(conn_id: str) -> ConnectionSettingsError:
    return ConnectionSettingsError(
        f"there is no Airflow connection {conn_id!r}; create it under Admin > Connections, or set the environment "
        f"variable AIRFLOW_CONN_{conn_id.upper()}"
    )


CONNECTIONS = Connections(_from_supervisor)
"""For tasks."""
