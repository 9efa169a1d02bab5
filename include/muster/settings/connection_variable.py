"""An Airflow connection in an environment variable, `AIRFLOW_CONN_[ID]`, as JSON or URI, read as Airflow reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


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


def variable_of(conn_id: str) -> str:
    """The name of the environment variable that may hold the connection `conn_id`."""
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def parse_variable(conn_id: str, value: str) -> Fields:
    """Read what such a variable holds.

    Raises ValueError, TypeError, OverflowError or RecursionError if it is malformed; the message may show a secret.
    """
    return _from_json(conn_id, value) if value.startswith("{") else _from_uri(conn_id, value)


def connection_in_environment(conn_id: str) -> dict[str, Any]:
    """The extra of the connection `conn_id` if an environment variable holds it; else, and if malformed, empty."""
    value = os.environ.get(variable_of(conn_id), "").strip()
    try:
        extra = json.loads(parse_variable(conn_id, value).extra or "{}") if value else {}
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}
    return extra if isinstance(extra, dict) else {}


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
