"""A Consul client agent: the one that the programs of a host talk to, where the servers are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from devstack.consul import Consul
from devstack.place import HERE, Place


class ConsulAgent(Consul):
    """A client agent named `node`, joined to `servers`, which have to run. It comes back when it is started again."""

    name = "Consul agent"

    def __init__(
        self,
        data_dir: Path,
        servers: Sequence[Consul],
        node: str,
        guarded: bool = False,
        place: Place = HERE,
    ) -> None:
        super().__init__(data_dir, guarded=guarded, place=place)
        self._servers = servers
        self.node = node

    def settings(self) -> dict[str, Any]:
        """Return what stands in `consul.json`: a server's, without being one."""
        found = super().settings()
        del found["bootstrap_expect"], found["ui_config"]
        return {
            **found,
            "server": False,
            # The host's own programs ask it on the loopback address, as is usual.
            "client_addr": " ".join(sorted({self.place.address, "127.0.0.1"})),
            "retry_join": [f"{one.place.address}:{one.ports['serf']}" for one in self._servers],
            "retry_interval": "1s",
            # By default a client that is stopped has left for good, with all that is registered with it.
            "leave_on_terminate": False,
        }
