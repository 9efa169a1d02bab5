"""Where the command line takes connections from: the same places as Airflow, and Airflow itself only if it must.

First the environment variable `AIRFLOW_CONN_[ID]`, as JSON or URI, read here in the way that Airflow reads it.
Without one Airflow is asked, which knows its metadata database and the secrets backends that are configured; but only
where an Airflow is set up, because importing it takes seconds and writes an `airflow.cfg` where there is none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from muster.airflow.connections import (
    ConnectionFields,
    ConnectionSettingsError,
    check_extra,
    parse_consul,
    parse_kafka,
    parse_status_token,
    parse_zookeeper,
)
from muster.settings.connection_variable import parse_variable, variable_of
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

_AIRFLOW_IS_SET_UP_BY = ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")


def zookeeper_settings(conn_id: str) -> ZooKeeperSettings:
    """Find the connection `conn_id`. Raises `ConnectionSettingsError` if there is none, or it is wrong."""
    fields, extra = _found(conn_id)
    return parse_zookeeper(fields, extra)


def consul_settings(conn_id: str) -> ConsulSettings:
    """Find the connection `conn_id`. Raises `ConnectionSettingsError` if there is none, or it is wrong."""
    fields, extra = _found(conn_id)
    return parse_consul(fields, extra)


def status_token(conn_id: str | None) -> SecretStr | None:
    """The bearer token of the status pages, None without a connection. Raises `ConnectionSettingsError`."""
    return None if conn_id is None else parse_status_token(_found(conn_id)[0])


def kafka_settings(conn_id: str) -> KafkaSettings:
    """Find the connection `conn_id`. Raises `ConnectionSettingsError` if there is none, or it is wrong."""
    fields, extra = _found(conn_id)
    return parse_kafka(fields, extra)


class Found:
    """The connections found here, for `muster.doctor.examination`."""

    def zookeeper(self, conn_id: str) -> ZooKeeperSettings:
        """As `zookeeper_settings`."""
        return zookeeper_settings(conn_id)

    def consul(self, conn_id: str) -> ConsulSettings:
        """As `consul_settings`."""
        return consul_settings(conn_id)

    def kafka(self, conn_id: str) -> KafkaSettings:
        """As `kafka_settings`."""
        return kafka_settings(conn_id)

    def token(self, conn_id: str | None) -> SecretStr | None:
        """As `status_token`."""
        return status_token(conn_id)

    def present(self, conn_id: str) -> None:
        """Raise `ConnectionSettingsError` if there is no such connection, or its extra is wrong."""
        _found(conn_id)


def _found(conn_id: str) -> tuple[ConnectionFields, dict[str, Any]]:
    variable = variable_of(conn_id)
    value = os.environ.get(variable, "").strip()
    fields = read_variable(conn_id, variable, value) if value else _from_airflow(conn_id, variable)
    check_extra(fields)
    return fields, json.loads(fields.extra) if fields.extra else {}


def read_variable(conn_id: str, variable: str, value: str) -> ConnectionFields:
    """Read a connection as Airflow keeps it in an environment variable.

    Raises `ConnectionSettingsError` naming the variable and never showing what it holds, which might be secret.
    """
    try:
        return parse_variable(conn_id, value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        # Not chained: the message would carry the text.
        raise ConnectionSettingsError(
            f"environment variable {variable} is no connection; correct it: expected is JSON such as "
            '{"conn_type": "generic", "host": "h1:2181"}, or a URI such as generic://h1:2181'
        ) from None


def _from_airflow(conn_id: str, variable: str) -> ConnectionFields:
    missing = ConnectionSettingsError(
        f"there is no connection {conn_id!r}; set the environment variable {variable}, or run this where Airflow is "
        "set up (AIRFLOW_HOME), with the connection under Admin > Connections"
    )
    home = Path.home() / "airflow" / "airflow.cfg"
    if not home.exists() and not any(os.environ.get(name) for name in _AIRFLOW_IS_SET_UP_BY):
        raise missing
    try:
        from airflow.models.connection import Connection  # noqa: PLC0415
        from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415 - see the module
    except ImportError:
        raise missing from None
    try:
        return Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException:
        raise missing from None
