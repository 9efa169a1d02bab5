"""python-consul behind one adapter: token in the header, a time-out on every call, errors that say what to do.

python-consul 1.1.0 sends no token on some calls and puts it into the URL on others, knows no time-outs, and takes
address and token from the environment if they are there. So it gets an HTTP client of ours, and no token.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
import requests
from consul import base

from muster.settings.connections import ConsulSettings

TOKEN_HEADER = "X-Consul-Token"  # noqa: S105  the header's name, no token

Params = list[tuple[str, str | int | float | bool | None]]
"""Parameters of a query."""


class ConsulError(RuntimeError):
    """Consul did not do what was asked; the message names the agent's address, the call and the next step."""


@dataclass(frozen=True)
class Answer:
    """What Consul answered to a read. `data` is None if there is nothing (404).

    `doubt` says why the answer may leave things out, '' if it does not.
    """

    index: int
    data: Any
    doubt: str = ""


def address(settings: ConsulSettings) -> str:
    """The agent's base URL."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{settings.scheme}://{host}:{settings.port}"


def read_answer(
    settings: ConsulSettings, what: str, status: int, headers: Mapping[str, str], text: str
) -> Answer:
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
    return Answer(index, data, doubt)


def agent_health_path(service_id: str) -> str:
    """Where the local agent says how one of its services fares."""
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
            raise ConsulError(f"{problem}; the connection has no token: set its password to one")
        raise ConsulError(
            f"{problem}; check the connection's token (its password) and what its policy allows"
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise ConsulError(f"{problem}; look at the agent's log, and whether its servers have a leader")
    raise ConsulError(f"{problem}; check that a Consul agent listens there")


def not_understood(settings: ConsulSettings, what: str, text: object) -> ConsulError:
    """The error for an answer that is not what Consul would say."""
    return ConsulError(
        f"Consul at {address(settings)}: {what}: the answer is not understood ({str(text)[:120]!r}); "
        "check that a Consul agent listens there"
    )


def unreachable(settings: ConsulSettings, what: str, error: Exception) -> ConsulError:
    """The error for an agent that does not answer."""
    if isinstance(error, requests.Timeout | httpx.TimeoutException):
        problem = "no answer in time"
    else:
        problem = f"cannot be reached ({_short(error) or type(error).__name__})"
        if "certificate" in problem.lower():
            return ConsulError(
                f"Consul at {address(settings)}: {what}: {problem}; check the connection's 'ca', that its host "
                "stands in the agent's certificate, and 'certfile' and 'keyfile' if the agent asks for one"
            )
    return ConsulError(
        f"Consul at {address(settings)}: {what}: {problem}; check that the agent runs, and the connection's host, "
        "port and TLS settings"
    )


def _short(error: Exception) -> str:
    """What an HTTP client says of a connection; of requests' chain of wrapped errors the innermost."""
    found = re.findall(r"\[SSL[^\]]*\] [^(')]*[^(') ]", str(error))
    return found[-1] if found else str(error)[:200]


def async_client(settings: ConsulSettings) -> httpx.AsyncClient:
    """A client for blocking queries, which unlike python-consul's can be given up in the middle of one."""
    return httpx.AsyncClient(
        base_url=address(settings),
        headers={TOKEN_HEADER: settings.token.get_secret_value()} if settings.token else {},
        verify=_tls(settings),
        trust_env=False,
    )


def _tls(settings: ConsulSettings) -> ssl.SSLContext:
    if settings.scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused; loading the system's certificates takes time
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if not settings.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if settings.certfile:
            context.load_cert_chain(settings.certfile, settings.keyfile)
    except OSError as error:
        raise ConsulError(
            f"Consul at {address(settings)}: CA or client certificate cannot be loaded ({error}); check the "
            "connection's ca, certfile and keyfile"
        ) from error
    return context


class _Http:
    """The HTTP client that python-consul is given: every call ends, and no token stands in a URL."""

    def __init__(self, settings: ConsulSettings) -> None:
        self._settings = settings
        self._session = requests.Session()
        # Neither a proxy for the outside world nor a .netrc has any business with Consul.
        self._session.trust_env = False
        self._session.verify = (settings.ca or True) if settings.verify else False
        if settings.certfile:
            self._session.cert = (
                (settings.certfile, settings.keyfile) if settings.keyfile else settings.certfile
            )
        if settings.token:
            self._session.headers[TOKEN_HEADER] = settings.token.get_secret_value()

    def send(
        self, method: str, path: str, params: Params | None, data: Any = None, what: str = ""
    ) -> requests.Response:
        try:
            return self._session.request(
                method,
                address(self._settings) + quote(path, safe="/"),
                params=params,
                data=data,
                timeout=self._settings.timeout,
                allow_redirects=False,
            )
        except (requests.RequestException, OSError) as error:
            raise unreachable(self._settings, what or f"{method} {path}", error) from error

    def _call(
        self, method: str, callback: Callable[[Any], Any], path: str, params: Params | None, data: Any = None
    ) -> Any:
        what = f"{method} {path}"
        response = self.send(method, path, params, data)
        check_status(self._settings, what, response.status_code, response.text)
        try:
            return callback(base.Response(response.status_code, response.headers, response.text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise not_understood(self._settings, what, response.text) from error

    def get(self, callback: Callable[[Any], Any], path: str, params: Params | None = None) -> Any:
        return self._call("GET", callback, path, params)

    def put(
        self, callback: Callable[[Any], Any], path: str, params: Params | None = None, data: Any = ""
    ) -> Any:
        return self._call("PUT", callback, path, params, data)

    def delete(self, callback: Callable[[Any], Any], path: str, params: Params | None = None) -> Any:
        return self._call("DELETE", callback, path, params)


class ConsulApi:
    """The calls that Muster makes. Each ends within `timeout` seconds or raises `ConsulError`; thread-safe.

    Reads are made in Consul's `default` mode: the leader answers, so they are stale only in the moment after it
    lost its office unnoticed. `consistent` rules that out at the price of a round among the servers, and is for
    answers from which something grave would follow. `stale` and cached reads, which are known to come back empty
    (hashicorp/consul#20790 and #21548), are not made.
    """

    def __init__(self, settings: ConsulSettings) -> None:
        self.settings = settings
        self.http = _Http(settings)
        # What python-consul's parts expect to find where they belong to.
        self.token = None
        self.dc = settings.datacenter
        self.consistency = "default"
        self._kv = base.Consul.KV(self)
        self._agent = base.Consul.Agent(self)
        self._readable: set[str] = set()

    def read(self, path: str, params: Params | None = None, consistent: bool = False) -> Answer:
        """Read something that has an index: health, catalog or KV."""
        what = f"GET {path}"
        response = self.http.send("GET", path, self.params(params, consistent))
        return read_answer(self.settings, what, response.status_code, response.headers, response.text)

    def require_key_read(self, path: str) -> None:
        """Raise `ConsulError` if a client without a token may not read the key `path`; looks once.

        Consul says to those with a token that its list of keys leaves something out, to others it does not. But it
        refuses a single key.
        """
        if self.settings.token is None and path not in self._readable:
            self.read(f"/v1/kv/{path}")
            self._readable.add(path)

    def hides(self) -> bool:
        """Whether answers may leave things out without saying so: Consul has ACLs, and we have no token."""
        if self.settings.token is not None:
            return False
        response = self.http.send("GET", "/v1/acl/token/self", None)
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
        return bool(self._kv.put(key, value, cas=cas))

    def delete_key(self, key: str, cas: int | None = None) -> bool:
        """Delete a key; with `cas` only if it still has that ModifyIndex."""
        return bool(self._kv.delete(key, cas=cas))

    def agent_put(self, path: str, params: Params | None = None, data: object = None) -> bool:
        """Tell the local agent something; False if it does not know the thing (404)."""
        what = f"PUT {path}"
        response = self.http.send("PUT", path, params, None if data is None else json.dumps(data))
        check_status(self.settings, what, response.status_code, response.text)
        return response.status_code == HTTPStatus.OK

    def deregister(self, service_id: str) -> bool:
        """Take a service out of the local agent; False if it is not there."""
        return bool(self._agent.service.deregister(service_id))

    def agent_health(self, service_id: str) -> Any:
        """What the local agent knows of one of its services, None if it does not know it."""
        path = agent_health_path(service_id)
        response = self.http.send("GET", path, None)
        return read_agent_health(self.settings, f"GET {path}", response.status_code, response.text)
