"""Settings of ZooKeeper, Consul and Kafka by the id of their connection: the one place that looks connections up.

A task asks Airflow's supervisor (`muster.airflow.connections`). Every other process looks where Airflow looks, and
asks Airflow itself only if it must. The environment variable `AIRFLOW_CONN_[ID]`, JSON or a URI, comes first; it is
read here in the way that Airflow reads it. Without one Airflow is asked, which knows its metadata database and the
configured secrets backends. That happens only where an Airflow is set up, because importing it takes seconds and
writes an `airflow.cfg` where there is none.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from muster.settings.connection_parsing import (
    ConnectionFields,
    ConnectionSettingsError,
    MissingConnectionError,
    check_extra,
    parse_airflow_api,
    parse_consul,
    parse_kafka,
    parse_status_pages,
    parse_token,
    parse_zookeeper,
)
from muster.settings.connections import (
    OPEN_PAGES,
    AirflowApiSettings,
    ConsulSettings,
    KafkaSettings,
    StatusPageSettings,
    ZooKeeperSettings,
)

Find = Callable[[str], tuple[ConnectionFields, Mapping[str, Any]]]
"""The fields of a connection and its decoded extra. Raises `ConnectionSettingsError` if there is none."""

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


class Connections:
    """Settings by connection id. Each method raises `ConnectionSettingsError` if a connection is missing or wrong.

    A call to a server takes at most `longest` seconds, if its connection does not say less.
    """

    def __init__(self, find: Find, longest: float = math.inf) -> None:
        self._find = find
        self._longest = longest

    def within(self, longest: float) -> Connections:
        """Return the same connections with another limit."""
        return Connections(self._find, longest)

    def zookeeper(self, conn_id: str) -> ZooKeeperSettings:
        """Look up a connection to ZooKeeper."""
        found = parse_zookeeper(*self._find(conn_id))
        return found.model_copy(update={"operation_timeout": min(self._longest, found.operation_timeout)})

    def consul(self, conn_id: str) -> ConsulSettings:
        """Look up a connection to Consul."""
        found = parse_consul(*self._find(conn_id))
        return found.model_copy(update={"timeout": min(self._longest, found.timeout)})

    def kafka(self, conn_id: str) -> KafkaSettings:
        """Look up a connection to Kafka."""
        found = parse_kafka(*self._find(conn_id))
        return found.model_copy(update={"operation_timeout": min(self._longest, found.operation_timeout)})

    def status_pages(self, conn_id: str | None) -> StatusPageSettings:
        """Look up how the status pages are guarded; not at all if `conn_id` is None."""
        return OPEN_PAGES if conn_id is None else parse_status_pages(*self._find(conn_id))

    def airflow_api(self, conn_id: str) -> AirflowApiSettings:
        """Look up a connection to Airflow's REST API."""
        return parse_airflow_api(*self._find(conn_id))

    def token(self, conn_id: str) -> SecretStr:
        """Look up a bearer token."""
        return parse_token(self._find(conn_id)[0])

    def fields(self, conn_id: str) -> ConnectionFields:
        """Look up a connection of any kind."""
        return self._find(conn_id)[0]


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


def _in_environment_or_airflow(conn_id: str) -> tuple[ConnectionFields, Mapping[str, Any]]:
    variable, value = _variable(conn_id)
    fields = read_variable(conn_id, variable, value) if value else _in_airflow(conn_id, variable)
    return fields, check_extra(fields)


def extra_in_environment(conn_id: str) -> dict[str, Any]:
    """Return the extra of connection `conn_id` if an environment variable holds it; else, and if malformed, empty."""
    variable, value = _variable(conn_id)
    try:
        return check_extra(read_variable(conn_id, variable, value)) if value else {}
    except ConnectionSettingsError:
        return {}


def _variable(conn_id: str) -> tuple[str, str]:
    """Return the name of the environment variable that may hold a connection, and what it holds."""
    name = f"AIRFLOW_CONN_{conn_id.upper()}"
    return name, os.environ.get(name, "").strip()


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


def airflow_is_set_up() -> bool:
    """Tell whether there is an Airflow to ask, by its environment variables or its configuration file."""
    home = Path.home() / "airflow" / "airflow.cfg"
    return home.exists() or any(os.environ.get(name) for name in _AIRFLOW_IS_SET_UP_BY)


def _in_airflow(conn_id: str, variable: str) -> ConnectionFields:
    missing = MissingConnectionError(
        f"there is no connection {conn_id!r}; set the environment variable {variable}, or run this where Airflow is "
        "set up (AIRFLOW_HOME), with the connection under Admin > Connections"
    )
    if not airflow_is_set_up():
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


CONNECTIONS = Connections(_in_environment_or_airflow)
"""For every process that is not a task: the command line, the API server, the exporter."""
