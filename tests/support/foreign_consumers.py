"""Consumers that know the protocol and share no code with Muster, as processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually

PROGRAM = Path(__file__).parents[1] / "integration" / "plain_foreign_consumer.py"
START = 60.0
"""Seconds until one has to be live."""


@dataclass
class ForeignConsumers:
    """Those of one cluster, by name."""

    cluster: str
    group: str
    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    kafka: KafkaSettings
    eventually: Eventually
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def discovery(self) -> ConsulCluster:
        return ConsulCluster(self.consul, self.cluster, self.service)

    @property
    def service(self) -> str:
        return f"{self.cluster}-service"

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a consumer and wait until it is live."""
        arguments = [
            *(name, self.cluster, self.service, self.zookeeper.hosts),
            *(self._consul, self.kafka.bootstrap_servers, self.group),
        ]
        self.started[name] = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )

        def live() -> bool:
            membership = self.discovery.catalog.members().membership
            return membership is not None and name in membership.live

        self.eventually(live, START, f"{name} is live")
        return self.started[name]

    def unchecked(self, name: str, port: int = 9) -> None:
        """Have Consul hold a consumer for live, whatever becomes of its process, with its status page at `port`.

        To be called before its process is frozen or killed: a check that asks a frozen process keeps Consul from
        replacing it until its time is over.
        """
        httpx.put(
            f"{self._consul}/v1/agent/service/register?replace-existing-checks=true",
            json={"ID": name, "Name": self.service, "Address": "127.0.0.1", "Port": port},
        ).raise_for_status()

    def close(self) -> None:
        """End them, and take them out of Consul, which else goes on to check ports that others get."""
        for name, process in self.started.items():
            process.kill()
            process.wait()
            self.discovery.catalog.deregister(name)

    @property
    def _consul(self) -> str:
        return f"http://{self.consul.host}:{self.consul.port}"
