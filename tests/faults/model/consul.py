"""Consul as coordinator and consumers see it, below `muster.edges.consul.Discovery`, which is the real one."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from muster.edges.consul import Discovery, WaitIndex
from muster.edges.consul_http import Answer, ConsulError
from muster.edges.consul_keys import Keys
from muster.edges.consul_members import Members
from muster.settings.connections import ConsulSettings

SERVICE = "consumers"
SETTINGS = ConsulSettings()
MAINTENANCE = "_service_maintenance:"


@dataclass
class Service:
    """A registration and how its check stands."""

    id: str
    address: str
    port: int
    meta: dict[str, str]
    passing: bool
    modified: int
    maintenance: bool = False

    @property
    def incarnation(self) -> str:
        return self.meta["incarnation"]

    def entry(self) -> dict[str, Any]:
        checks = [{"CheckID": "c", "Status": "passing" if self.passing else "critical"}]
        if self.maintenance:
            checks.append({"CheckID": MAINTENANCE + self.id, "Status": "critical"})
        return {
            "AggregatedStatus": "",
            "Node": {"Address": self.address},
            "Service": {
                "ID": self.id,
                "Address": self.address,
                "Port": self.port,
                "Meta": self.meta,
                "ModifyIndex": self.modified,
            },
            "Checks": checks,
        }


@dataclass
class Servers:
    """What Consul knows. `empty` of the next readings of the service say 'nobody' (hashicorp/consul#20790)."""

    services: dict[str, Service] = field(default_factory=dict)
    keys: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    index: int = 1
    empty: int = 0
    away: bool = False

    def next(self) -> int:
        self.index += 1
        return self.index

    def isolated(self, consumer: str) -> bool:
        service = self.services.get(consumer)
        return f"muster/c/isolated/{consumer}" in self.keys or (service is not None and service.maintenance)

    def live(self, consumer: str) -> bool:
        service = self.services.get(consumer)
        return service is not None and service.passing and not self.isolated(consumer)

    def check(self, healthy: Callable[[str, int], bool]) -> None:
        """Every check is made once; `healthy` asks an address."""
        for service in self.services.values():
            service.passing = healthy(service.address, service.port)


@dataclass
class Api:
    """`muster.edges.consul_http.ConsulApi`, for one client. `at` is called before each call."""

    servers: Servers
    at: Callable[[str], None] = lambda _: None
    away: bool = False
    answer_lost: bool = False
    """The next registration is made, but its answer does not come (once)."""
    settings: ConsulSettings = SETTINGS

    def read(self, path: str, params: object = None, consistent: bool = False) -> Answer:
        self._reach("read Consul")
        servers = self.servers
        if path.startswith("/v1/kv/"):
            name = path.removeprefix("/v1/kv/")
            found = [
                {"Key": key, "Value": base64.b64encode(value).decode(), "ModifyIndex": modified}
                for key, (value, modified) in servers.keys.items()
                if (key.startswith(name) if params else key == name)
            ]
            return Answer(servers.index, found or None)
        if servers.empty > 0:
            servers.empty -= 1
            return Answer(servers.index, [])
        return Answer(servers.index, [service.entry() for service in servers.services.values()])

    def require_key_read(self, path: str) -> None:
        """There are no ACLs here, so nothing is hidden."""

    def hides(self) -> bool:
        """The same."""
        return False

    def put_key(self, key: str, value: str, cas: int | None = None) -> bool:
        self._reach("write Consul")
        present = self.servers.keys.get(key)
        if cas is not None and cas != (present[1] if present else 0):
            return False
        self.servers.keys[key] = (value.encode(), self.servers.next())
        return True

    def delete_key(self, key: str, cas: int | None = None) -> bool:
        self._reach("write Consul")
        present = self.servers.keys.get(key)
        if present is None or (cas is not None and cas != present[1]):
            return False
        del self.servers.keys[key]
        return True

    def agent_put(self, path: str, params: object = None, data: Any = None) -> bool:
        self._reach("write Consul")
        self.servers.services[data["ID"]] = Service(
            data["ID"],
            data["Address"],
            data["Port"],
            data["Meta"],
            data["Check"]["Status"] == "passing",
            self.servers.next(),
        )
        if self.answer_lost:
            self.answer_lost = False
            raise ConsulError("no answer in time")
        return True

    def deregister(self, service_id: str) -> bool:
        self._reach("write Consul")
        return self.servers.services.pop(service_id, None) is not None

    def agent_health(self, service_id: str) -> Any:
        self._reach("read Consul")
        service = self.servers.services.get(service_id)
        return None if service is None else service.entry()

    def _reach(self, what: str) -> None:
        self.at(what)
        if self.away or self.servers.away:
            raise ConsulError("Consul is out of reach")


class SimulatedDiscovery(Discovery):
    """The real one over simulated servers; only blocking queries are left out, because here nobody waits.

    `trusted` says whether the last reading of the members could be had and was to be trusted, `read_at`
    when it began, by `moment`.
    """

    def __init__(self, api: Api, moment: Callable[[], int] = lambda: 0) -> None:
        Keys.__init__(self, api, "c")  # type: ignore[arg-type]
        self.api = api
        self.service = SERVICE
        self._pause = lambda _: None
        self.trusted = False
        self.moment = moment
        self.read_at = 0

    def members(self) -> Members:
        self.trusted = False
        self.read_at = self.moment()
        members = super().members()
        self.trusted = members.membership is not None
        return members

    def wait(self, index: WaitIndex, timeout: float) -> WaitIndex:
        self.api._reach("read Consul")
        return index
