"""Calls of Consul's HTTP API: token in the header, a time-out on every call, errors that say what to do.

python-consul makes every call that it can make. Its version 1.1.0 sends no token on some calls and puts it into the
URL on others, knows no time-outs, takes address and token from the environment if they are there, and drops the
headers of answers. So it gets no token, and the HTTP client of this module, which returns answers to reads whole.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from ssl import SSLContext
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
from consul import base

from muster.edges.tls import context_of
from muster.settings.connections import ConsulSettings

TOKEN_HEADER = "X-Consul-Token"  # noqa: S105  the header's name, no token

LARGEST_VALUE = 512 * 1024
"""Bytes that Consul takes in a key by default (`limits.kv_max_value_size`)."""
SMALLER = (
    "make it shorter (the epochs: unsubscribe topics that are not needed, or share them among clusters), or raise "
    "'kv_max_value_size' under 'limits' of every Consul server"
)

Params = list[tuple[str, str | int | float | bool | None]]
"""Parameters of a query."""


class ConsulError(RuntimeError):
    """Consul did not do what was asked; the message names the agent's address, the call and the next step."""


class ConsulTooLargeError(ConsulError):
    """A value is larger than Consul takes, and was not written."""


class ConsulDeniedError(ConsulError):
    """The token does not allow the call."""


@dataclass(frozen=True)
class ConsulAnswer:
    """What Consul answered to a read. `data` is None if there is nothing (404).

    `doubt` says why the answer may leave things out, '' if it does not.
    """

    index: int
    data: Any
    doubt: str = ""

    def trusted(self) -> Any:
        """Return the data. Raises `ConsulError` if there is a doubt."""
        if self.doubt:
            raise ConsulError(self.doubt)
        return self.data


def address(settings: ConsulSettings) -> str:
    """Return the agent's base URL."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{settings.scheme}://{host}:{settings.port}"


def read_answer(
    settings: ConsulSettings, what: str, status: int, headers: Mapping[str, str], text: str
) -> ConsulAnswer:
    """Take an answer apart. Raises `ConsulError` if it is an error, no JSON, or has no index."""
    check_status(settings, what, status, text)
    filtered = headers.get("X-Consul-Results-Filtered-By-ACLs", "").lower() == "true"
    leaderless = headers.get("X-Consul-KnownLeader", "").lower() == "false"
    doubt = ""
    if filtered:
        doubt = (
            f"Consul at {address(settings)}: {what}: the token may not read all of it, so consumers may be "
            "missing; give it service:read, node:read and key:read"
        )
    elif leaderless:
        doubt = (
            f"Consul at {address(settings)}: {what}: its servers have no leader now; wait, or look at them"
        )
    try:
        index = int(headers["X-Consul-Index"])
        data = None if status == HTTPStatus.NOT_FOUND else json.loads(text)
    except (KeyError, ValueError, RecursionError) as error:
        raise not_understood(settings, what, text) from error
    return ConsulAnswer(index, data, doubt)


def agent_health_path(service_id: str) -> str:
    """Return where the local agent says how one of its services fares."""
    return f"/v1/agent/health/service/id/{service_id}"


def read_agent_health(settings: ConsulSettings, what: str, status: int, text: str) -> Any:
    """Take the local agent's answer on a service apart: None if it does not know it. Raises `ConsulError`."""
    if status == HTTPStatus.NOT_FOUND:
        return None
    # The HTTP status says how the service fares: 429 with a warning, 503 when critical.
    with suppress(ValueError, RecursionError):
        data = json.loads(text)
        if isinstance(data, dict) and "AggregatedStatus" in data:
            return data
    check_status(settings, what, status, text)
    raise not_understood(settings, what, text)


def check_status(settings: ConsulSettings, what: str, status: int, text: str) -> None:
    """Raise `ConsulError` for an HTTP status other than 200 and 404."""
    if status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
        return
    problem = f"Consul at {address(settings)}: {what}: answered {status} ({text.strip()[:200]})"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if settings.token is None:
            raise ConsulDeniedError(f"{problem}; the connection has no token: set its password to one")
        raise ConsulDeniedError(
            f"{problem}; check the connection's token (its password) and what its policy allows"
        )
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        raise ConsulTooLargeError(f"{problem}; that is more than Consul takes: {SMALLER}")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise ConsulError(f"{problem}; look at the agent's log, and whether its servers have a leader")
    raise ConsulError(f"{problem}; check that a Consul agent listens there")


def not_understood(settings: ConsulSettings, what: str, text: object) -> ConsulError:
    """Make the error for an answer that is not what Consul would say."""
    return ConsulError(
        f"Consul at {address(settings)}: {what}: the answer is not understood ({str(text)[:120]!r}); "
        "check that a Consul agent listens there"
    )


def unreachable(settings: ConsulSettings, what: str, error: Exception) -> ConsulError:
    """Make the error for an agent that does not answer."""
    problem = f"cannot be reached ({str(error)[:200] or type(error).__name__})"
    step = "check that the agent runs, and the connection's host, port and TLS settings"
    if isinstance(error, httpx.TimeoutException):
        problem = "no answer in time"
    elif "certificate" in problem.lower():
        step = (
            "check the connection's 'ca', that its host stands in the agent's certificate, and 'certfile' and "
            "'keyfile' if the agent asks for one"
        )
    return ConsulError(f"Consul at {address(settings)}: {what}: {problem}; {step}")


def client_options(settings: ConsulSettings) -> dict[str, Any]:
    """Return what an httpx client is made with. Raises `ConsulError` for a malformed address or certificates.

    Neither a proxy for the outside world nor a .netrc counts. Namespace and partition go with every call.
    """
    try:
        url = httpx.URL(address(settings))
    except httpx.InvalidURL as error:
        raise unreachable(settings, "its address", error) from error
    return {
        "base_url": url,
        "params": {
            name: value
            for name, value in (("ns", settings.namespace), ("partition", settings.partition))
            if value
        },
        "headers": {TOKEN_HEADER: settings.token.get_secret_value()} if settings.token else {},
        "timeout": settings.timeout,
        "verify": _tls(settings),
        "trust_env": False,
    }


def _tls(settings: ConsulSettings) -> SSLContext:
    try:
        return context_of(settings, f"Consul at {address(settings)}")
    except OSError as error:
        raise ConsulError(str(error)) from error


class _Http:
    """The HTTP client that python-consul is given. python-consul returns what these methods return."""

    def __init__(self, settings: ConsulSettings) -> None:
        self.settings = settings

    @cached_property
    def _client(self) -> httpx.Client:
        client = httpx.Client(**client_options(self.settings))
        weakref.finalize(self, client.close)
        return client

    def send(self, method: str, path: str, params: Params | None = None, data: str = "") -> httpx.Response:
        """Send a request and return the answer, whatever its HTTP status."""
        try:
            return self._client.request(method, quote(path, safe="/"), params=params, content=data)
        except (httpx.HTTPError, OSError) as error:
            raise unreachable(self.settings, f"{method} {path}", error) from error

    def get(self, _: Callable[[Any], Any], path: str, params: Params | None = None) -> httpx.Response:
        """Return the answer as it is; the result that python-consul makes of it lacks its headers."""
        return self.send("GET", path, params)

    def put(
        self, callback: Callable[[Any], Any], path: str, params: Params | None = None, data: str = ""
    ) -> Any:
        return self._call("PUT", callback, path, params, data)

    def delete(self, callback: Callable[[Any], Any], path: str, params: Params | None = None) -> Any:
        return self._call("DELETE", callback, path, params)

    def _call(
        self, method: str, callback: Callable[[Any], Any], path: str, params: Params | None, data: str = ""
    ) -> Any:
        response = self.send(method, path, params, data)
        what, settings = f"{method} {path}", self.settings
        check_status(settings, what, response.status_code, response.text)
        try:
            return callback(base.Response(response.status_code, response.headers, response.text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise not_understood(settings, what, response.text) from error


class ConsulApi:
    """The calls that Muster makes. Each ends within `timeout` seconds or raises `ConsulError`; thread-safe.

    Reads are made in Consul's `default` mode: the leader answers, so they are stale only in the moment after it
    lost its office unnoticed. `consistent` rules that out at the price of a round among the servers, and is for
    answers from which something grave would follow. `stale` and cached reads, which are known to come back empty
    (hashicorp/consul#20790 and #21548), are not made.
    """

    def __init__(self, settings: ConsulSettings) -> None:
        self.settings = settings
        http = _Http(settings)
        self.send = http.send
        # Without a circle of references: connections end with the last one to this object, not when garbage is
        # collected, which a coordinator does rarely.
        owner = SimpleNamespace(http=http, token=None, dc=settings.datacenter, consistency="default")
        self._kv = base.Consul.KV(owner)
        self.agent = base.Consul.Agent(owner)
        self._catalog = base.Consul.Catalog(owner)
        self._health = base.Consul.Health(owner)
        self.status = base.Consul.Status(owner)
        self._readable: set[str] = set()

    def read_keys(self, path: str, **how: bool) -> ConsulAnswer:
        """Read the key `path`; with `recurse` all that begin with it, with `keys` the names of these."""
        return self._answer(self._kv.get(path, **how))

    def read_health(self, service: str, only: str = "", consistent: bool = False) -> ConsulAnswer:
        """Read how the registrations of a service fare; `only` those that this filter of Consul's keeps."""
        if only or consistent:
            return self._read(f"/v1/health/service/{service}", only, consistent)
        return self._answer(self._health.service(service))

    def read_catalog(self, service: str, only: str = "") -> ConsulAnswer:
        """Read the registrations of a service in `consistent` mode; `only` as for `read_health`."""
        if only:
            return self._read(f"/v1/catalog/service/{service}", only, consistent=True)
        return self._answer(self._catalog.service(service, consistency="consistent"))

    def read_services(self, only: str) -> ConsulAnswer:
        """Read the names of the services that have a registration that this filter of Consul's keeps."""
        return self._read("/v1/catalog/services", only, consistent=False)

    def _read(self, path: str, only: str, consistent: bool) -> ConsulAnswer:
        """Make a read that python-consul cannot make: with a filter, or `consistent` of health."""
        params = self.params([("filter", only)] if only else [], consistent)
        return self._answer(self.send("GET", path, params))

    def _answer(self, response: httpx.Response) -> ConsulAnswer:
        what = f"GET {response.url.path}"
        return read_answer(self.settings, what, response.status_code, response.headers, response.text)

    def require_key_read(self, path: str) -> None:
        """Raise `ConsulError` if a client without a token may not read the key `path`; looks once.

        Consul says to those with a token that its list of keys leaves something out, to others it does not. But it
        refuses a single key.
        """
        if self.settings.token is None and path not in self._readable:
            self.read_keys(path)
            self._readable.add(path)

    def hides(self) -> bool:
        """Tell whether answers may leave things out without saying so: Consul has ACLs, and we have no token."""
        if self.settings.token is not None:
            return False
        response = self.send("GET", "/v1/acl/token/self")
        return not (
            response.status_code == HTTPStatus.UNAUTHORIZED and "ACL support disabled" in response.text
        )

    def params(self, params: Params | None, consistent: bool = False) -> Params:
        """Complete the parameters of a read with datacenter and consistency mode."""
        found = list(params or [])
        if self.settings.datacenter:
            found.append(("dc", self.settings.datacenter))
        if consistent:
            found.append(("consistent", "1"))
        return found

    def put_key(self, key: str, value: str, cas: int | None = None) -> bool:
        """Write a key; with `cas` only if it still has that ModifyIndex (0: if it does not exist)."""
        try:
            return bool(self._kv.put(key, value, cas=cas))
        except ConsulTooLargeError as error:
            raise ConsulTooLargeError(
                f"key {key} was to hold {len(value.encode()):,} bytes, and is as it was: {error}"
            ) from error

    def delete_key(self, key: str, cas: int | None = None) -> bool:
        """Delete a key; with `cas` only if it still has that ModifyIndex."""
        return bool(self._kv.delete(key, cas=cas))

    def register(self, service: Mapping[str, object]) -> None:
        """Register a service, with its checks, with the local agent in place of one under the same id."""
        path = "/v1/agent/service/register"
        response = self.send("PUT", path, [("replace-existing-checks", "true")], json.dumps(service))
        check_status(self.settings, f"PUT {path}", response.status_code, response.text)

    def deregister(self, service_id: str) -> bool:
        """Take a service out of the local agent; False if it is not there."""
        return bool(self.agent.service.deregister(service_id))

    def advertised_address(self) -> str:
        """Return the address under which the agent is known to the others. Needs `agent:read`."""
        response, what = self.agent.self(), "GET /v1/agent/self"
        check_status(self.settings, what, response.status_code, response.text)
        try:
            return str(response.json()["Member"]["Addr"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise not_understood(self.settings, what, "no Member.Addr") from error

    def agent_health(self, service_id: str) -> Any:
        """Return what the local agent knows of one of its services, None if it does not know it."""
        path = agent_health_path(service_id)
        response = self.send("GET", path)
        return read_agent_health(self.settings, f"GET {path}", response.status_code, response.text)
