"""Consul on several hosts, as it is usually run: a server on each, and a client agent for the host's programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from devstack.consul import Consul
from devstack.consul_agent import ConsulAgent
from devstack.errors import DevstackError
from devstack.place import Place

_FAILED = 4
"""The status of a member of the gossip that does not answer."""


class Member(Consul):
    """One of several servers. `number` counts from 1."""

    def __init__(self, data_dir: Path, number: int, all_members: Sequence[Consul], place: Place) -> None:
        super().__init__(data_dir, guarded=True, place=place)
        self.node = f"server-{number}"
        self._all = all_members

    def settings(self) -> dict[str, Any]:
        """Return those of one alone, but for the others, with which it elects a leader."""
        others = [one for one in self._all if one is not self]
        return {
            **super().settings(),
            "bootstrap_expect": len(self._all),
            "retry_join": [f"{one.place.address}:{one.ports['serf']}" for one in others],
            "retry_interval": "1s",
            # How long a server that is back has to be well until it counts: 10 s by default.
            "autopilot": {"server_stabilization_time": "2s"},
        }


class Consuls:
    """A server and a client at each of `places`, below `folder`."""

    def __init__(self, folder: Path, places: Sequence[Place]) -> None:
        self.servers: list[Consul] = []
        self.clients: list[ConsulAgent] = []
        for number, place in enumerate(places, 1):
            self.servers.append(Member(folder / f"server-{number}", number, self.servers, place))
            node = f"client-{number}"
            self.clients.append(ConsulAgent(folder / node, self.servers, node, guarded=True, place=place))
        for agent in self:
            agent.choose_ports()

    def __iter__(self) -> Iterator[Consul]:
        yield from self.servers
        yield from self.clients

    def start(self) -> None:
        """Start those that do not run; servers need most of them, so all at once."""
        with ThreadPoolExecutor(len(self.servers) * 2) as pool:
            list(pool.map(lambda agent: agent.start(), self))

    def failure_tolerance(self) -> int:
        """Tell how many more servers may fail until there is no leader; 0 as well while no server says."""
        for asked in self.servers:
            with suppress(httpx.HTTPError, ValueError):
                # Consul answers 429 while a server is not healthy, with the same body.
                return int(asked.get("/v1/operator/autopilot/health").json()["FailureTolerance"])
        return 0

    def rejoin(self) -> None:
        """Have the servers look at once for agents that they hold to have failed. By themselves they do it each 30 s,
        with some of them."""
        for asked in self.servers:
            with suppress(httpx.HTTPError, ValueError):
                for member in asked.get("/v1/agent/members").json():
                    if member["Status"] == _FAILED:
                        asked.put(f"/v1/agent/join/{member['Addr']}:{member['Port']}")

    def leader(self) -> Consul:
        """Return the server that leads. Raises `DevstackError` while none does, or none answers."""
        for asked in self.servers:
            try:
                said = asked.get("/v1/status/leader").json()
            except (httpx.HTTPError, ValueError):
                continue
            for server in self.servers:
                if said == f"{server.place.address}:{server.ports['server']}":
                    return server
        raise DevstackError("no server of Consul leads now")
