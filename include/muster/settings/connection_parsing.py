"""The fields of an Airflow connection, turned into the settings of ZooKeeper, Consul and Kafka. No Airflow is needed.

- ZooKeeper: type `zookeeper`, or any other; host `h1:2181,h2:2181/chroot`, or a host and a port; login and password
  with extra `auth_scheme` or `sasl_mechanism`; extra: the other keys of `ZooKeeperSettings`.
- Consul: type `consul`, or any other; host, port, schema; the password is the ACL token; extra: the other keys of
  `ConsulSettings`.
- Kafka: type `kafka`, as Airflow's Kafka provider has it: extra holds librdkafka's properties, of which those that
  Muster sets itself (`RESERVED`) are ignored. An extra key `operation_timeout` (seconds) is Muster's own.
- Status pages: any type (`generic` will do); the password is the bearer token; extra: the keys of `StatusTls`.
- Airflow's REST API: type `http`; host, port, schema; login and password, or without a login a bearer token as the
  password; extra: the other keys of `AirflowApiSettings`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError

from muster.settings.connections import (
    RESERVED,
    AirflowApiSettings,
    ConsulSettings,
    HeaderSecret,
    KafkaSettings,
    StatusPageSettings,
    StatusTls,
    ZooKeeperSettings,
)

log = logging.getLogger(__name__)

Settings = TypeVar("Settings", bound=BaseModel)


class ConnectionFields(Protocol):
    """What of a connection becomes settings; Airflow's `Connection` has it."""

    conn_id: str
    host: str | None
    port: int | None
    login: str | None
    password: str | None
    schema: str | None
    extra: str | None


class _Token(BaseModel):
    token: HeaderSecret


class ConnectionSettingsError(ValueError):
    """An Airflow connection is missing or does not say what it should.

    The message names the connection, the key and what is allowed, and never shows a value, which might be secret.
    """


class MissingConnectionError(ConnectionSettingsError):
    """There is no such Airflow connection."""


def parse_token(connection: ConnectionFields) -> SecretStr:
    """Return the bearer token that a connection holds. Raises `ConnectionSettingsError`."""
    values = {"token": connection.password or ""}
    return _validate(connection, _Token, values, {"token": "password"}).token


def parse_status_pages(connection: ConnectionFields, extra: Mapping[str, Any]) -> StatusPageSettings:
    """Turn a connection, which has to have a token, into settings. Raises `ConnectionSettingsError`."""
    values = _from_extra(connection, StatusTls, extra, set())
    tls = _validate(connection, StatusTls, values, {}) if values else None
    return StatusPageSettings(token=parse_token(connection), tls=tls)


def parse_airflow_api(connection: ConnectionFields, extra: Mapping[str, Any]) -> AirflowApiSettings:
    """Turn a connection and its decoded extra into settings. Raises `ConnectionSettingsError`."""
    elsewhere = {"host", "port", "scheme", "username", "password", "token"}
    values = _from_extra(connection, AirflowApiSettings, extra, elsewhere)
    if not connection.password:
        raise _wrong(
            connection, "password", "is empty; expected the login's password, or a bearer token alone"
        )
    secret = "password" if connection.login else "token"
    values |= _present(
        host=connection.host, port=connection.port, scheme=connection.schema, username=connection.login
    ) | {secret: connection.password}
    shown = {"scheme": "schema", "username": "login", "token": "password"}
    return _validate(connection, AirflowApiSettings, values, shown)


def parse_zookeeper(connection: ConnectionFields, extra: Mapping[str, Any]) -> ZooKeeperSettings:
    """Turn a connection and its decoded extra into settings. Raises `ConnectionSettingsError`."""
    values = _from_extra(connection, ZooKeeperSettings, extra, {"hosts", "username", "password"})
    if not connection.host:
        raise _wrong(connection, "host", "is empty; expected 'h1:2181,h2:2181', or a host and a port")
    servers, _, chroot = connection.host.partition("/")
    # A connection that is given as a URI has the path behind its hosts as the schema.
    paths = {path for path in (chroot.strip("/"), (connection.schema or "").strip("/")) if path}
    if len(paths) > 1:
        raise _wrong(
            connection, "schema", f"is a path other than the one of the host, '/{chroot}'; give one of them"
        )
    values["hosts"] = "/".join([_with_port(servers, connection.port), *paths])
    values |= _present(username=connection.login, password=connection.password)
    if connection.login and not (extra.get("auth_scheme") or extra.get("sasl_mechanism")):
        raise _wrong(
            connection,
            "login",
            "is set, but not how it is meant; set extra 'auth_scheme' to 'digest', or extra 'sasl_mechanism' to "
            "'DIGEST-MD5' or 'GSSAPI'",
        )
    return _validate(connection, ZooKeeperSettings, values, {"hosts": "host", "username": "login"})


def parse_consul(connection: ConnectionFields, extra: Mapping[str, Any]) -> ConsulSettings:
    """Turn a connection and its decoded extra into settings. Raises `ConnectionSettingsError`."""
    values = _from_extra(connection, ConsulSettings, extra, {"host", "port", "scheme", "token"})
    values |= _present(
        host=connection.host, port=connection.port, scheme=connection.schema, token=connection.password
    )
    return _validate(connection, ConsulSettings, values, {"scheme": "schema", "token": "password"})


def parse_kafka(connection: ConnectionFields, extra: Mapping[str, Any]) -> KafkaSettings:
    """Turn a connection and its decoded extra into settings. Raises `ConnectionSettingsError`."""
    own = RESERVED | {"operation_timeout"}
    config = {key: value for key, value in extra.items() if key not in own}
    _warn_of_ignored(connection.conn_id, tuple(sorted(RESERVED & extra.keys())))
    if not config.get("bootstrap.servers"):
        raise _wrong(
            connection,
            "extra",
            "needs 'bootstrap.servers'; extra is a JSON object of librdkafka properties, such as "
            '{"bootstrap.servers": "h1:9092,h2:9092"}; host and port are not used',
        )
    values: dict[str, Any] = {"config": config}
    if "operation_timeout" in extra:
        values["operation_timeout"] = extra["operation_timeout"]
    return _validate(connection, KafkaSettings, values, {"config": "extra"})


@cache
def _warn_of_ignored(conn_id: str, keys: tuple[str, ...]) -> None:
    """Warn once a process: a connection that others use as well may have these for them."""
    if keys:
        log.warning("Airflow connection %r: %s: ignored, Muster sets it itself", conn_id, ", ".join(keys))


def _wrong(connection: ConnectionFields, key: str, message: str) -> ConnectionSettingsError:
    return ConnectionSettingsError(
        f"Airflow connection {connection.conn_id!r}, key '{key}': {message}; correct it under Admin > Connections"
    )


def check_extra(connection: ConnectionFields) -> dict[str, Any]:
    """Decode the extra. Raises `ConnectionSettingsError` unless it is empty or a JSON object."""
    # Airflow itself takes an extra that is no JSON for an empty one, and the mistake would show somewhere else.
    if not connection.extra:
        return {}
    try:
        extra = json.loads(connection.extra)
    except (ValueError, RecursionError):
        # Not chained: the decoder's message would carry the text, which may hold secrets.
        raise _wrong(connection, "extra", "is not JSON") from None
    if not isinstance(extra, dict):
        raise _wrong(connection, "extra", "is not a JSON object")
    return extra


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "")}


def _with_port(servers: str, port: int | None) -> str:
    if not port:
        return servers
    return ",".join(s if ":" in s else f"{s}:{port}" for s in servers.split(","))


def _from_extra(
    connection: ConnectionFields, model: type[BaseModel], extra: Mapping[str, Any], elsewhere: set[str]
) -> dict[str, Any]:
    allowed = set(model.model_fields) - elsewhere
    if unknown := sorted(set(extra) - allowed):
        close = "".join(f"did you mean {each!r}? " for each in get_close_matches(unknown[0], allowed, n=1))
        raise _wrong(
            connection,
            f"extra.{unknown[0]}",
            f"unknown key; {close}allowed in extra are: {', '.join(sorted(allowed))}",
        )
    # A form leaves a field that is not filled in empty.
    return {key: value for key, value in extra.items() if value not in (None, "")}


def _validate(
    connection: ConnectionFields, model: type[Settings], values: dict[str, Any], shown: dict[str, str]
) -> Settings:
    """Build `model`; `shown` says where in the connection a field stands, if not in extra under its own name."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = str(found["loc"][0]) if found["loc"] else "extra"
        of_its_own = field in {"host", "port", "password"}
        key = shown.get(field, field if of_its_own else f"extra.{field}")
        missing = found["type"] == "missing"
        message = "is missing; add it" if missing else found["msg"].removeprefix("Value error, ")
        # Not chained: pydantic's own message shows the values.
        raise _wrong(connection, key, message) from None
