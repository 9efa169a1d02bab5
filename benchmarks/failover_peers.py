"""Kafka's own groups in the failover benchmark: which there are, and what is done to their members."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_figures import MEMBERS, PARTITIONS, PATIENCE, TOPIC, Event
from benchmarks.harness.servers import admin
from devstack.airflow import ROOT
from devstack.airflow_api import wait_for
from devstack.kafka import Kafka
from devstack.process import ServerProcess

TUNED = 6
"""Seconds: the least `session.timeout.ms` that a broker allows a classic group by default."""
SHORT = 2
"""Seconds: what a group can have once the broker's least time-outs are lowered for it."""
HEARTBEAT = 500
"""ms between the heartbeats of a group with the short session time-out."""
LEAST_OF_CONSUMER_GROUPS = "group.consumer.min.session.timeout.ms"
CLASSIC: Mapping[str, Mapping[str, str]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
}
KIP_848 = "KIP-848"


class PatientKafka(Kafka):
    """A broker that lets groups have the short session time-out; by default it does not."""

    def settings(self) -> dict[str, str]:
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
        return f"peer-{self.protocol.lower()}-{self.session or 'default'}"

    def config(self, servers: str) -> dict[str, str]:
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
    client = admin(servers)
    for session, heartbeat in ((TUNED, None), (SHORT, HEARTBEAT)):
        wanted = {"session.timeout": session * 1000, "heartbeat.interval": heartbeat}
        entries = [
            ConfigEntry(f"consumer.{name}.ms", str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in wanted.items()
            if value is not None
        ]
        group = ConfigResource(
            ResourceType.GROUP, Kind(KIP_848, session).group_id, incremental_configs=entries
        )
        client.incremental_alter_configs([group])[group].result(30)
    broker = ConfigResource(ResourceType.BROKER, "1")
    least = client.describe_configs([broker])[broker].result(30)[LEAST_OF_CONSUMER_GROUPS]
    defaults = [s for s in least.synonyms.values() if s.source == ConfigSource.DEFAULT_CONFIG.value]
    return int(defaults[0].value)


class Peer:
    """A group of `kind` with its members, which are numbered from 1.

    `kill`, `freeze` and `leave` return what does so: all that has to be looked up is looked up before.
    """

    long_poll = 0.0

    def __init__(self, kind: Kind, servers: str, folder: Path) -> None:
        self.name, self.deliveries = str(kind), Deliveries(folder / kind.group_id, PARTITIONS)
        self._kind, self._servers, self._folder = kind, servers, folder
        self._members: dict[int, ServerProcess] = {}

    def start(self) -> None:
        for number in range(1, MEMBERS + 1):
            self._start(number)

    def _start(self, number: int) -> None:
        command: list[str | Path] = [
            *(sys.executable, "-m", "benchmarks.failover_deliveries"),
            *(json.dumps(self._kind.config(self._servers)), TOPIC, self.deliveries.folder),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "include")])}
        log = self._folder / f"{self._kind.group_id}-{number}.log"
        self._members[number] = ServerProcess.spawn(command, log, self._folder, environment, guarded=True)

    def pid(self, number: int) -> int:
        return self._members[number].pid

    def kill(self, number: int) -> Callable[[], None]:
        return partial(os.kill, self.pid(number), signal.SIGKILL)

    def freeze(self, number: int) -> Callable[[], None]:
        return partial(os.kill, self.pid(number), signal.SIGSTOP)

    def resume(self, number: int) -> None:
        os.kill(self.pid(number), signal.SIGCONT)

    def leave(self, number: int) -> Callable[[], None]:
        return partial(os.kill, self.pid(number), signal.SIGTERM)

    def join(self, number: int, _left: bool) -> float:
        """Start member `number` again; return when that began."""
        began = time.time()
        self._start(number)
        return began

    def settle(self) -> None:
        """Do nothing: where all flows, all is even."""

    def parts(self, _event: Event, _number: int) -> dict[str, float]:
        return {}

    def replaced(self, _killed: Event, _joined: Event, _number: int) -> Event | None:
        return None

    def restart(self, number: int) -> Callable[[], None]:
        """Begin to restart member `number`; return what goes on with it."""
        self.leave(number)()

        def again() -> None:
            wait_for(f"member {number} ends", lambda: not self._members[number].alive(), PATIENCE)
            self._start(number)

        return again

    def stop(self) -> None:
        for number, member in self._members.items():
            if member.alive():
                self.resume(number)
                self.leave(number)()
        for member in self._members.values():
            if not member.wait_ended(60):
                member.kill()
        self._members.clear()
