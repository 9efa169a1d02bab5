"""Kafka's own groups in the failover benchmark: which there are, and what is done to their members."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from benchmarks.failover_deliveries import Deliveries
from devstack.airflow import ROOT
from devstack.kafka import Kafka
from devstack.process import ServerProcess
from muster.edges.kafka import librdkafka_logger

MEMBERS = 3
TUNED = 6
"""Seconds: the least `session.timeout.ms` that a broker allows a classic group by default."""
SHORT = 2
"""Seconds: what a group can have once the broker's least time-outs are lowered for it."""
HEARTBEAT = 500
"""ms between the heartbeats of a group with the short session time-out."""
LEAST_OF_CONSUMER_GROUPS = "group.consumer.min.session.timeout.ms"
_PATIENCE = 60.0
CLASSIC: Mapping[str, Mapping[str, str]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
}
KIP_848 = "KIP-848"


class PatientKafka(Kafka):
    """A broker that lets groups have the short session time-out; by default it does not."""

    def settings(self) -> dict[str, str]:
        """Return the usual ones, but for the least session time-outs, and the least heartbeat of KIP-848 groups."""
        return {
            **super().settings(),
            "group.min.session.timeout.ms": str(SHORT * 1000),
            LEAST_OF_CONSUMER_GROUPS: str(SHORT * 1000),
            "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT),
        }


@dataclass(frozen=True)
class Kind:
    """One of Kafka's ways, with a session time-out in seconds, or with default settings (None)."""

    protocol: str
    session: int | None

    def __str__(self) -> str:
        return f"{self.protocol}, {self.session} s" if self.session else f"{self.protocol}, default"

    @property
    def group_id(self) -> str:
        """The group's name."""
        return f"peer-{self.protocol.lower()}-{self.session or 'default'}"

    def config(self, servers: str) -> dict[str, str]:
        """Return librdkafka's settings of a member."""
        config = {"bootstrap.servers": servers, "group.id": self.group_id, "auto.offset.reset": "earliest"}
        if self.protocol == KIP_848:
            return {**config, "group.protocol": "consumer"}
        timeout = {"session.timeout.ms": str(self.session * 1000)} if self.session else {}
        if self.session == SHORT:
            timeout["heartbeat.interval.ms"] = str(HEARTBEAT)
        return {**config, **CLASSIC[self.protocol], **timeout}


KINDS = tuple(Kind(protocol, session) for session in (TUNED, SHORT, None) for protocol in (*CLASSIC, KIP_848))


def tune_consumer_groups(servers: str) -> int:
    """Give KIP-848 groups their session time-outs; returns the least, in ms, that a broker allows by default.

    It is the broker's and the group's setting, not the client's.
    """
    admin = AdminClient({"bootstrap.servers": servers}, logger=librdkafka_logger())
    for session, heartbeat in ((TUNED, None), (SHORT, HEARTBEAT)):
        wanted = {"consumer.session.timeout.ms": session * 1000, "consumer.heartbeat.interval.ms": heartbeat}
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in wanted.items()
            if value is not None
        ]
        group = ConfigResource(
            ResourceType.GROUP, Kind(KIP_848, session).group_id, incremental_configs=entries
        )
        admin.incremental_alter_configs([group])[group].result(30)
    broker = ConfigResource(ResourceType.BROKER, "1")
    least = admin.describe_configs([broker])[broker].result(30)[LEAST_OF_CONSUMER_GROUPS]
    defaults = [s for s in least.synonyms.values() if s.source == ConfigSource.DEFAULT_CONFIG.value]
    return int(defaults[0].value)


@dataclass
class Peer:
    """A group of `kind` with its members, which are numbered from 1."""

    kind: Kind
    servers: str
    topic: str
    folder: Path
    deliveries: Deliveries
    members: dict[int, ServerProcess] = field(default_factory=dict)

    def start(self, number: int) -> None:
        """Begin member `number`."""
        config = json.dumps(self.kind.config(self.servers))
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "benchmarks.failover_peer",
            config,
            self.topic,
            self.deliveries.folder,
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "include")])}
        log = self.folder / f"{self.kind.group_id}-{number}.log"
        self.members[number] = ServerProcess.spawn(command, log, self.folder, environment, guarded=True)

    def pid(self, number: int) -> int:
        """Return the pid of member `number`."""
        return self.members[number].pid

    def kill(self, number: int) -> None:
        """Send SIGKILL."""
        os.kill(self.pid(number), signal.SIGKILL)

    def freeze(self, number: int) -> None:
        """Send SIGSTOP."""
        os.kill(self.pid(number), signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Send SIGCONT."""
        os.kill(self.pid(number), signal.SIGCONT)

    def leave(self, number: int) -> None:
        """Send SIGTERM; it closes then."""
        os.kill(self.pid(number), signal.SIGTERM)

    def ended(self, number: int) -> bool:
        """Tell whether the member's process is gone."""
        return not self.members[number].alive()

    def stop(self) -> None:
        """Let all leave."""
        for number, member in self.members.items():
            if member.alive():
                self.resume(number)
                self.leave(number)
        for member in self.members.values():
            if not member.wait_ended(_PATIENCE):
                member.kill()
        self.members.clear()
