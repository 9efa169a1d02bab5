"""Consul as coordinators and consumers see it, below `muster.edges.consul.ConsulCluster`, which is the real one.

Each host has an agent, which holds what is registered with it and makes the checks. The servers know of an agent what
it told them last. They lag behind while the agent's changes are on their way (`behind`) or its host is cut off, and
agree again afterwards (anti-entropy).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from muster.edges.consul import (
    ConsulCatalog,
    ConsulCluster,
    JobMailbox,
    Members,
    OverrideStore,
    WaitIndex,
)
from muster.edges.consul_answers import AnswerBox
from muster.edges.consul_api import ConsulAnswer, ConsulError
from muster.edges.consul_keys import Keys
from muster.settings.connections import ConsulSettings

SERVICE = "consumers"
SETTINGS = ConsulSettings()
MAINTENANCE = "_service_maintenance:"
HOSTS = ("A", "B")
"""Where consumers run."""
ELSEWHERE = "C"
"""Where coordinators and servers run, which are never cut off from each other."""


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
    unchecked: bool = False
    """Its agent was restarted and has not made the check since."""
    first: int = 0
    """When this incarnation was registered for the first time, in the order of all registrations."""

    @property
    def incarnation(self) -> str:
        return self.meta["incarnation"]

    @property
    def rank(self) -> tuple[int, int]:
        """Of two registrations of an id, that of the newer process has the higher rank."""
        return int(self.meta.get("generation", "0")), self.first

    def entry(self, node_fails: bool = False) -> dict[str, Any]:
        checks = [{"CheckID": "c", "Status": "passing" if self.passing else "critical"}]
        if self.maintenance:
            checks.append({"CheckID": MAINTENANCE + self.id, "Status": "critical"})
        if node_fails:
            checks.append({"CheckID": "serfHealth", "Status": "critical"})
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
class HostAgent:
    """The agent of a host: `services` is what it holds, `known` what the servers know where that differs."""

    name: str
    services: dict[str, Service] = field(default_factory=dict)
    known: dict[str, Service] | None = None
    cut: bool = False
    """Nothing gets from its host to any other, nor back."""
    behind: bool = False
    """What changes does not get to the servers for now."""
    away: bool = False
    """The agent does not run; its host does."""
    failed: bool = False
    """The servers have noticed that nothing is heard of it."""
    arrives: Callable[[], int] = lambda: 0
    """The number of the change by which the servers hear of a registration."""

    @property
    def listed(self) -> dict[str, Service]:
        """What the servers know of it."""
        return self.services if self.known is None else self.known

    def separate(self) -> None:
        """From now on the servers know what it holds at this moment, until `agree`."""
        if self.known is None:
            self.known = {name: replace(service) for name, service in self.services.items()}

    def agree(self) -> None:
        """The servers hear what it holds, if it can tell them."""
        if self.known is None or self.cut or self.behind or self.away:
            return
        for name, service in self.services.items():
            if name not in self.known or self.known[name].incarnation != service.incarnation:
                service.modified = self.arrives()
        self.known = None

    def restart(self) -> None:
        """It begins with what it held, and checks that have not passed yet."""
        self.away = False
        for service in self.services.values():
            service.passing, service.unchecked = False, True
        self.agree()


@dataclass
class Servers:
    """What Consul knows. `empty` of the next readings of the service say 'nobody' (hashicorp/consul#20790)."""

    agents: dict[str, HostAgent] = field(
        default_factory=lambda: {name: HostAgent(name) for name in (*HOSTS, ELSEWHERE)}
    )
    keys: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    index: int = 1
    empty: int = 0
    away: bool = False

    def __post_init__(self) -> None:
        for agent in self.agents.values():
            agent.arrives = self.next

    @property
    def services(self) -> dict[str, Service]:
        """What the first host's agent holds: all there is where everything runs on one host."""
        return self.agents[HOSTS[0]].services

    def next(self) -> int:
        self.index += 1
        return self.index

    def registrations(self, consumer: str) -> list[tuple[HostAgent, Service]]:
        """All registrations of an id that the servers know."""
        return [(a, found) for a in self.agents.values() if (found := a.listed.get(consumer)) is not None]

    def standing(self, consumer: str) -> tuple[HostAgent, Service] | None:
        """The registration of an id that counts, that of its newest process."""
        found = self.registrations(consumer)
        if len(found) > 1:
            return max(found, key=lambda each: each[1].rank)
        return found[0] if found else None

    def newest(self, consumer: str) -> Service | None:
        """The same without its agent."""
        found = self.standing(consumer)
        return None if found is None else found[1]

    def consumers(self) -> set[str]:
        """All ids that are registered."""
        return {consumer for agent in self.agents.values() for consumer in agent.listed}

    def live(self, consumer: str) -> bool:
        """Whether its newest registration passes and it is not isolated."""
        found = self.standing(consumer)
        return found is not None and self.passes(consumer, *found)

    def passes(self, consumer: str, agent: HostAgent, service: Service) -> bool:
        """Whether a registration passes and its consumer is not isolated."""
        isolated = service.maintenance or f"muster/c/isolated/{consumer}" in self.keys
        return service.passing and not agent.failed and not isolated

    def check(self, healthy: Callable[[str, int], bool]) -> None:
        """Every check is made once; `healthy` asks an address of the agent's own host."""
        for agent in self.agents.values():
            agent.failed = agent.cut or agent.away
            if not agent.away:
                for service in agent.services.values():
                    service.passing, service.unchecked = healthy(service.address, service.port), False
            agent.agree()


def _filter(expression: str) -> Callable[[Service], bool]:
    """Consul's filters, as far as Muster uses them: one id only, or all others that are not leaving."""
    if not expression:
        return lambda _: True
    only = re.fullmatch(r'Service\.?ID == "(\w+)"', expression)
    if only is not None:
        return lambda service: service.id == only[1]
    others = re.fullmatch(r'Service\.ID != "(\w+)" and leaving not in Service\.Meta', expression)
    assert others is not None, f"a filter that the model does not know: {expression}"
    return lambda service: service.id != others[1] and "leaving" not in service.meta


@dataclass
class Api:
    """`muster.edges.consul_api.ConsulApi`, for one client of the agent `host`. `at` is called before each call."""

    servers: Servers
    at: Callable[[str], None] = lambda _: None
    host: str = HOSTS[0]
    away: bool = False
    answer_lost: bool = False
    """The next registration is made, but its answer does not come (once)."""
    registers: Callable[[], None] = lambda: None
    leaves: Callable[[], None] = lambda: None
    settings: ConsulSettings = SETTINGS

    @property
    def agent(self) -> HostAgent:
        return self.servers.agents[self.host]

    def read_keys(self, path: str, recurse: bool = False) -> ConsulAnswer:
        self._reach("read Consul")
        found = [
            {"Key": key, "Value": base64.b64encode(value).decode(), "ModifyIndex": modified}
            for key, (value, modified) in self.servers.keys.items()
            if (key.startswith(path) if recurse else key == path)
        ]
        return ConsulAnswer(self.servers.index, found or None)

    def read_catalog(self, service: str, only: str = "") -> ConsulAnswer:
        return self.read_health(service, only)

    def read_health(self, service: str, only: str = "", consistent: bool = False) -> ConsulAnswer:
        self._reach("read Consul")
        servers = self.servers
        if servers.empty > 0:
            servers.empty -= 1
            return ConsulAnswer(servers.index, [])
        wanted = _filter(only)
        listed = [(a, s) for a in servers.agents.values() for s in a.listed.values() if wanted(s)]
        return ConsulAnswer(servers.index, [service.entry(agent.failed) for agent, service in listed])

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

    def register(self, data: Any) -> None:
        self._reach_agent("write Consul")
        self.registers()
        before = self.agent.services.get(data["ID"])
        index = self.servers.next()
        same = before is not None and before.incarnation == data["Meta"]["incarnation"]
        self.agent.services[data["ID"]] = Service(
            data["ID"],
            data["Address"],
            data["Port"],
            data["Meta"],
            data["Check"]["Status"] == "passing",
            index,
            first=before.first if before is not None and same else index,
        )
        if self.answer_lost:
            self.answer_lost = False
            raise ConsulError("no answer in time")

    def deregister(self, service_id: str) -> bool:
        self._reach_agent("write Consul")
        self.leaves()
        return self.agent.services.pop(service_id, None) is not None

    def agent_health(self, service_id: str) -> Any:
        self._reach_agent("read Consul")
        service = self.agent.services.get(service_id)
        return None if service is None else service.entry()

    def _reach_agent(self, what: str) -> None:
        self.at(what)
        if self.away or self.agent.away:
            raise ConsulError("Consul's agent is out of reach")

    def _reach(self, what: str) -> None:
        self._reach_agent(what)
        if self.servers.away or self.agent.cut:
            raise ConsulError("Consul's servers are out of reach")


class SimulatedCatalog(ConsulCatalog):
    """The real one over simulated servers; only blocking queries are left out, because here nobody waits.

    `trusted` says whether the last reading of the members could be had and was to be trusted, `read_at`
    when it began, by `moment`.
    """

    def __init__(self, api: Api, keys: Keys, overrides: OverrideStore, moment: Callable[[], int]) -> None:
        super().__init__(keys, overrides, SERVICE, pause=lambda _: None)
        self.api = api
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


class SimulatedConsul(ConsulCluster):
    """The real parts over simulated servers."""

    catalog: SimulatedCatalog

    def __init__(self, api: Api, moment: Callable[[], int] = lambda: 0) -> None:
        self.keys = Keys(api, "c")  # type: ignore[arg-type]
        self.api = api
        self.overrides = OverrideStore(self.keys)
        self.jobs = JobMailbox(self.keys)
        self.answers = AnswerBox(self.keys)
        self.catalog = SimulatedCatalog(api, self.keys, self.overrides, moment)
