"""A local Kafka: one node, broker and controller in one (KRaft)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devstack.command import run_to_end
from devstack.jars import jars, java
from devstack.place import HERE, Place
from devstack.server import Server
from devstack.silence import silent_logger


class Kafka(Server):
    """Kafka 4 with every internal topic at one replica. Several can run at once, as independent clusters.

    Topics are not created by themselves: a misspelt name is an error, as it should be in production.
    """

    name = "Kafka"
    roles = ("broker", "controller")

    def __init__(
        self,
        data_dir: Path,
        ports: Mapping[str, int] | None = None,
        guarded: bool = False,
        extra_environment: Mapping[str, str] | None = None,
        heap: str = "512m",
        rack: str = "",
        place: Place = HERE,
    ) -> None:
        super().__init__(data_dir, ports, guarded, extra_environment, place)
        self._heap = heap
        self._rack = rack

    def settings(self) -> dict[str, str]:
        """Return what stands in `server.properties`."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.place.address}:{self.ports['controller']}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{self.place.address}:{self.ports['controller']}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._logs),
            "auto.create.topics.enable": "false",
            # One node can hold no more than one replica.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # 50 partitions each by default: folders and start time that one node has no use for.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.num.partitions": "4",
            # A quarter of the heap by default, to compact topics that are tiny here.
            "log.cleaner.dedupe.buffer.size": "8388608",
            # A killed broker comes back only when its old registration has lapsed: 9 s by default.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # A test group with one member need not wait three seconds for a second one.
            "group.initial.rebalance.delay.ms": "0",
            **({"broker.rack": self._rack} if self._rack else {}),
        }

    def client_settings(self) -> dict[str, str]:
        """Return what librdkafka needs to be let in."""
        return {"bootstrap.servers": self.address}

    def prepare(self) -> None:
        """Write `server.properties`; format the data folder if it is new."""
        text = "".join(f"{key}={value}\n" for key, value in self.settings().items())
        self._properties.write_text(text, encoding="utf-8")
        if not (self._logs / "meta.properties").exists():
            self._format()

    def command(self) -> Sequence[str | Path]:
        """Return Java's command line, with a small heap."""
        return [
            java(),
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            "-cp",
            f"{jars('kafka')}/*",
            "kafka.Kafka",
            self._properties,
        ]

    def healthy(self) -> bool:
        """Tell whether the broker answers a metadata request and names itself in it."""
        client = AdminClient({**self.client_settings()}, logger=silent_logger())
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    @property
    def _logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    def cluster_id(self) -> str:
        """Make up the id that a new data folder is formatted with; brokers of one cluster have the same."""
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")

    def _format(self) -> None:
        run_to_end(
            [
                java(),
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{jars('kafka')}/*",
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={self.cluster_id()}",
                f"--config={self._properties}",
                "--ignore-formatted",
            ],
            f"Kafka: {self._logs} cannot be formatted; remove it and try again",
        )
