"""A local ZooKeeper, standalone."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from devstack.jars import jars, java
from devstack.server import Server


class ZooKeeper(Server):
    """ZooKeeper 3.9 that grants sessions from one second on, so that tests of lost sessions are quick."""

    name = "ZooKeeper"
    roles: ClassVar[tuple[str, ...]] = ("client",)

    def settings(self) -> dict[str, str]:
        """Return what stands in `zoo.cfg`."""
        return {
            "dataDir": str(self.data_dir / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": self.place.address,
            "tickTime": "500",
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "60000",
            # 60 by default, and here all consumers come from one address.
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr,cons",
            "autopurge.purgeInterval": "1",
        }

    def prepare(self) -> None:
        """Write `zoo.cfg`."""
        text = "".join(f"{key}={value}\n" for key, value in self.settings().items())
        (self.data_dir / "zoo.cfg").write_text(text, encoding="utf-8")

    def command(self) -> Sequence[str | Path]:
        """Return Java's command line, with a small heap."""
        return [
            java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
            # A killed process loses nothing without it, only a machine that loses power does.
            "-Dzookeeper.forceSync=no",
            "-cp",
            f"{jars('zookeeper')}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            self.data_dir / "zoo.cfg",
        ]

    def healthy(self) -> bool:
        """Tell whether the server answers `srvr` as one that serves."""
        return self.mode() == "standalone"

    def mode(self) -> str:
        """Return what it says it is: `standalone`, `leader`, `follower`; '' while it does not serve."""
        try:
            with socket.create_connection((self.place.address, self.port), timeout=1) as connection:
                connection.settimeout(1)
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        found = [line for line in answer.decode().splitlines() if line.startswith("Mode: ")]
        return found[0].removeprefix("Mode: ") if found else ""
