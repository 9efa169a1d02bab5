"""Kafka, ZooKeeper and Consul with the times of a shrunk week. Each also speaks TLS with a short certificate."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, though not by name
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

from devstack.command import run_to_end
from devstack.consul import Consul
from devstack.jars import jars, java
from devstack.kafka import Kafka
from devstack.silence import silent_logger
from devstack.zookeeper import ZooKeeper
from tests.week.clock import EXPIRY, LOGIN, RENEWAL, RETENTION, SEGMENT

USER, PASSWORD = "muster", "in-a-test-only"
KEYSTORE = "listener.name.secure.ssl.keystore.location"
SNAPSHOTS = 3
"""So many of ZooKeeper's snapshots are kept, the least that its purge takes."""
CHECKED_EVERY = 10_000
"""Milliseconds between two of the broker's looks at what has expired."""
_SHORTLY = 10_000


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))


class WeekKafka(Kafka):
    """A plain listener, and one with SASL over TLS where logins expire."""

    roles = ("broker", "controller", "secure")

    def __init__(self, data_dir: Path, certificate: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._certificate = certificate
        self.forgets = False
        """Whether it keeps a transactional id for less time than consumers take to renew it, from its next start on.
        Longer than a consumer needs until it is confirmed as the owner, or a new producer would be forgotten, too."""

    @property
    def secure_address(self) -> str:
        """Where it speaks TLS."""
        return f"127.0.0.1:{self.ports['secure']}"

    def settings(self) -> dict[str, str]:
        """Return those of a plain one with short times and the second listener."""
        plain = super().settings()
        own = f",SECURE://{self.secure_address}"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        every = str(CHECKED_EVERY)
        return plain | {
            "listeners": plain["listeners"] + own,
            "advertised.listeners": plain["advertised.listeners"] + own,
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},SECURE:SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": login,
            "listener.name.secure.ssl.keystore.type": "PEM",
            KEYSTORE: str(self._certificate),
            "connections.max.reauth.ms": _ms(LOGIN),
            "offsets.retention.minutes": str(round(EXPIRY / 60)),
            "offsets.retention.check.interval.ms": every,
            "transactional.id.expiration.ms": _ms(RENEWAL * 0.75 if self.forgets else EXPIRY),
            "transaction.remove.expired.transaction.cleanup.interval.ms": "300" if self.forgets else every,
            "producer.id.expiration.ms": _ms(EXPIRY),
            "producer.id.expiration.check.interval.ms": every,
            "log.retention.ms": _ms(RETENTION),
            "log.retention.check.interval.ms": every,
            "log.roll.ms": _ms(SEGMENT),
            "log.segment.delete.delay.ms": "1000",
            "offsets.topic.segment.bytes": "1048576",
            "transaction.state.log.segment.bytes": "1048576",
            "log.cleaner.backoff.ms": "5000",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "log.cleaner.delete.retention.ms": _ms(EXPIRY),
            "metadata.log.max.snapshot.interval.ms": _ms(SEGMENT),
            "metadata.log.segment.ms": _ms(SEGMENT),
            "metadata.max.retention.ms": _ms(RETENTION),
        }

    def start(self, timeout: float | None = None) -> None:
        """Start, and make the user of the second listener."""
        super().start(timeout)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        admin = self._admin()
        for future in admin.alter_user_scram_credentials([user]).values():
            future.result(30)

    def secure_settings(self, ca: Path) -> dict[str, str]:
        """Return what librdkafka needs for the second listener."""
        return {
            "bootstrap.servers": self.secure_address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def renewed(self) -> None:
        """Read the certificate again."""
        entry = ConfigEntry(KEYSTORE, str(self._certificate), incremental_operation=AlterConfigOpType.SET)
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin = self._admin()
        for future in admin.incremental_alter_configs([broker]).values():
            future.result(10)

    def files(self) -> int:
        """Count the files of its logs."""
        return sum(len(files) for _, _, files in os.walk(self._logs))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address}, logger=silent_logger())


class WeekZooKeeper(ZooKeeper):
    """A plain port, and one with TLS. It snapshots often and purges nothing by itself; `purge` is called instead."""

    roles = ("client", "secure")

    def __init__(self, data_dir: Path, certificate: Path, ca: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._certificate, self._ca = certificate, ca

    @property
    def secure_address(self) -> str:
        """Where it speaks TLS."""
        return f"127.0.0.1:{self.ports['secure']}"

    @property
    def data(self) -> Path:
        """The folder with its snapshots and logs."""
        return self.data_dir / "data"

    def settings(self) -> dict[str, str]:
        """Add TLS; a renewed certificate is read by itself."""
        return super().settings() | {
            "secureClientPort": str(self.ports["secure"]),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "client.certReload": "true",
            "ssl.keyStore.location": str(self._certificate),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self._ca),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "none",
            "autopurge.purgeInterval": "0",
            "snapCount": "2000",
        }

    def purge(self) -> None:
        """Delete old snapshots and logs, as the purge task does at its hour."""
        command: Sequence[str | Path] = [
            *(java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars('zookeeper')}/*"),
            *("org.apache.zookeeper.server.PurgeTxnLog", self.data, self.data, "-n", str(SNAPSHOTS)),
        ]
        run_to_end(command, "ZooKeeper: its logs cannot be purged")

    def back_up(self, folder: Path) -> None:
        """Copy its data while it runs, in the place of an earlier copy."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.data, folder, ignore=shutil.ignore_patterns("*.tmp"))

    def restore(self, folder: Path, higher: bool) -> None:
        """Stop, take the data of a copy, and start. With `higher` the transactions to come have higher numbers than
        all that were before, as after an election."""
        reached = self._zxid()
        self.stop()
        shutil.rmtree(self.data)
        shutil.copytree(folder, self.data)
        if higher:
            self._count_up(reached)
        self.start()

    def files(self) -> int:
        """Count its snapshots and logs."""
        return sum(len(files) for _, _, files in os.walk(self.data))

    def nodes(self) -> int:
        """Count the nodes, those of ZooKeeper itself among them."""
        client = KazooClient(hosts=self.address)
        client.start()
        try:
            answer = str(client.command(b"mntr"))
        finally:
            client.stop()
            client.close()
        (line,) = (line for line in answer.splitlines() if line.startswith("zk_znode_count"))
        return int(line.split()[1])

    def _zxid(self) -> int:
        client = KazooClient(hosts=self.address)
        client.start()
        try:
            client.exists("/")
            return int(client.last_zxid)
        finally:
            client.stop()
            client.close()

    def _count_up(self, reached: int) -> None:
        """Write the data's next transactions at a place that no client knows."""
        elsewhere = ZooKeeper(self.data_dir.with_name("counting"), guarded=True)
        elsewhere.data_dir.mkdir(exist_ok=True)
        self.data.rename(elsewhere.data_dir / "data")
        elsewhere.start()
        client = KazooClient(hosts=elsewhere.address)
        client.start()
        client.create("/counting")
        while client.last_zxid <= reached:
            for written in [client.set_async("/counting", b"") for _ in range(500)]:
                written.get(30)
        client.delete("/counting")
        client.stop()
        client.close()
        elsewhere.stop()
        (elsewhere.data_dir / "data").rename(self.data)


class WeekConsul(Consul):
    """HTTP, and HTTPS beside it. It snapshots its raft log often."""

    roles = ("http", "server", "serf", "https")

    def __init__(self, data_dir: Path, certificate: Path, ca: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._certificate, self._ca = certificate, ca

    def settings(self) -> dict[str, Any]:
        """Add TLS and snapshots."""
        settings = super().settings()
        return settings | {
            "ports": settings["ports"] | {"https": self.ports["https"]},
            "raft_snapshot_interval": "10s",
            "raft_snapshot_threshold": 200,
            "raft_trailing_logs": 200,
            "tls": {
                "defaults": {
                    "ca_file": str(self._ca),
                    "cert_file": str(self._certificate),
                    "key_file": str(self._certificate),
                },
                "internal_rpc": {"verify_server_hostname": False},
            },
        }

    def renewed(self) -> None:
        """Read the certificate again."""
        self.put("/v1/agent/reload").raise_for_status()

    def forget(self, prefix: str) -> None:
        """Delete all keys below `prefix`."""
        address = f"http://{self.address}/v1/kv/{prefix}"
        httpx.delete(address, params={"recurse": "true"}, timeout=5, trust_env=False).raise_for_status()

    def kept(self) -> tuple[int, int]:
        """Count the keys, and the bytes of their values."""
        answer = self.get("/v1/kv/?recurse=true")
        keys = answer.json() if answer.is_success else []
        # Base64: four characters for three bytes.
        return len(keys), sum(len(key["Value"] or "") * 3 // 4 for key in keys)

    def files(self) -> int:
        """Count what raft keeps."""
        return sum(len(files) for _, _, files in os.walk(self.data_dir / "data"))
