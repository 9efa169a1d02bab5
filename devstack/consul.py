"""A local Consul: one server agent, which is client and server in one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from devstack.consul_binary import consul_binary
from devstack.server import Server

NODE = "devstack"


class Consul(Server):
    """Consul with quick elections and without any traffic to the outside."""

    name = "Consul"
    roles = ("http", "server", "serf")
    node = NODE

    def settings(self) -> dict[str, Any]:
        """Return what stands in `consul.json`."""
        return {
            "node_name": self.node,
            "server": True,
            "bootstrap_expect": 1,
            "bind_addr": self.place.address,
            "client_addr": self.place.address,
            "data_dir": str(self.data_dir / "data"),
            "ports": {
                "http": self.ports["http"],
                "server": self.ports["server"],
                "serf_lan": self.ports["serf"],
                "serf_wan": -1,
                "dns": -1,
                "grpc": -1,
                "grpc_tls": -1,
            },
            "ui_config": {"enabled": True},
            "connect": {"enabled": False},
            "peering": {"enabled": False},
            "disable_update_check": True,
            "disable_anonymous_signature": True,
            "performance": {"raft_multiplier": 1},
            # A check's new output reaches the catalog at once instead of within five minutes.
            "check_update_interval": "0s",
            # 200 by default, and here all consumers with their blocking queries come from one address.
            "limits": {"http_max_conns_per_client": 10_000},
            "log_level": "WARN",
        }

    def prepare(self) -> None:
        """Write `consul.json`."""
        text = json.dumps(self.settings(), indent=2)
        (self.data_dir / "consul.json").write_text(text, encoding="utf-8")

    def command(self) -> Sequence[str | Path]:
        """Return the agent's command line, with its configuration file."""
        return [consul_binary(), "agent", f"-config-file={self.data_dir / 'consul.json'}"]

    def healthy(self) -> bool:
        """Tell whether there is a leader and the node itself is in the catalog, so that services can register."""
        try:
            answer = self.get(f"/v1/health/node/{self.node}")
            return answer.status_code == httpx.codes.OK and any(
                check["CheckID"] == "serfHealth" and check["Status"] == "passing" for check in answer.json()
            )
        except (httpx.HTTPError, ValueError):
            return False

    def get(self, path: str) -> httpx.Response:
        """Ask the agent. Raises httpx.HTTPError."""
        return self._ask("GET", path)

    def put(self, path: str) -> httpx.Response:
        """Tell the agent. Raises httpx.HTTPError."""
        return self._ask("PUT", path)

    def _ask(self, method: str, path: str) -> httpx.Response:
        return httpx.request(method, f"http://{self.address}{path}", timeout=2, trust_env=False)
