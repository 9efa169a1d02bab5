"""Where the command line takes connections from: the same places as Airflow, and Airflow itself only if it must.

First the environment variable `AIRFLOW_CONN_[ID]`, as JSON or URI, read here in the way that Airflow reads it.
Without one Airflow is asked, which knows its metadata database and the secrets backends that are configured; but only
where an Airflow is set up, because importing it takes seconds and writes an `airflow.cfg` where there is none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

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
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

_AIRFLOW_IS_SET_UP_BY = ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")


@dataclass
class Fields:
    """A connection as it was found, with Airflow's names."""

    conn_id: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = None
    schema: str | None = None
    extra: str | None = None


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
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    value = os.environ.get(variable, "").strip()
    fields = read_variable(conn_id, variable, value) if value else _from_airflow(conn_id, variable)
    check_extra(fields)
    return fields, json.loads(fields.extra) if fields.extra else {}


def read_variable(conn_id: str, variable: str, value: str) -> ConnectionFields:
    """Read a connection as Airflow keeps it in an environment variable.

    Raises `ConnectionSettingsError` naming the variable and never showing what it holds, which might be secret.
    """
    try:
        return _from_json(conn_id, value) if value.startswith("{") else _from_uri(conn_id, value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        # Not chained: the message would carry the text.
        raise ConnectionSettingsError(
            f"environment variable {variable} is no connection; correct it: expected is JSON such as "
            '{"conn_type": "generic", "host": "h1:2181"}, or a URI such as generic://h1:2181'
        ) from None


def _from_json(conn_id: str, value: str) -> Fields:
    read = json.loads(value)
    extra = read.get("extra") or None
    port = read.get("port")
    return Fields(
        conn_id,
        host=_text(read, "host"),
        port=int(port) if port not in (None, "") else None,
        login=_text(read, "login"),
        password=_text(read, "password"),
        schema=_text(read, "schema"),
        extra=extra if extra is None or isinstance(extra, str) else json.dumps(extra),
    )


def _text(read: Mapping[str, Any], key: str) -> str | None:
    value = read.get(key)
    return None if value is None else str(value)


def _from_uri(conn_id: str, value: str) -> Fields:
    parts = urlsplit(value)
    if not parts.scheme or value.count("://") != 1:
        raise ValueError("not one scheme")
    userinfo, _, address = parts.netloc.rpartition("@")
    login, _, password = userinfo.partition(":")
    host, port = address, None
    if (colon := address.rpartition(":")) and colon[1] and colon[2].isdigit():
        host, port = colon[0], int(colon[2])
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    extra = query.get("__extra__") or (
        json.dumps({k: _decoded(v) for k, v in query.items()}) if query else None
    )
    return Fields(
        conn_id,
        host=unquote(host.strip("[]")) or None,  # brackets belong to the URI, not to an IPv6 address
        port=port,
        login=unquote(login) or None,
        password=unquote(password) or None,
        schema=unquote(parts.path[1:]) or None,
        extra=extra,
    )


def _decoded(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


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
