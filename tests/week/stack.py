"""Kafka, ZooKeeper, Consul, two clusters' consumers and their coordinators, with the times of a shrunk week.

Cluster alpha speaks TLS with all of them, its status pages included; the certificates are renewed all the time. In
the long form its consumers are Spark jobs. Those of cluster beta speak in the clear. All but one of them are light;
that one shares no code with Muster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml
from confluent_kafka import KafkaException
from pydantic import SecretStr

from devstack.certificates import Authority
from devstack.guard import guard
from devstack.leftovers import MARKER, end_all
from devstack.process import ServerProcess
from devstack.server import Server
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import (
    ConsulSettings,
    KafkaSettings,
    StatusPageSettings,
    StatusTls,
    ZooKeeperSettings,
)
from muster.settings.consumer import ConsumerSettings, TopicHandler
from tests.hosts.coordinate import VARIABLE
from tests.hosts.coordination import Loops, environment_of
from tests.hosts.stack import Consumer, HostStack
from tests.week import looks
from tests.week.clock import CERTIFICATE, REAPING, RENEWAL, RETENTION, STUCK_AFTER
from tests.week.foreign import Foreign
from tests.week.servers import WeekConsul, WeekKafka, WeekZooKeeper

ROOT = Path(__file__).resolve().parents[2]
ALPHA, BETA = "alpha", "beta"
CONSUMERS = {ALPHA: ("alpha-1", "alpha-2"), BETA: ("beta-1", "beta-2", "beta-3")}
FOREIGN = "beta-3"
FLOCK = "flock-"
"""How the topics that come and go begin; cluster beta reads them by a pattern."""
NAMED = {"busy": 4, "quiet": 2, "late": 2, "shelved": 2, "sought": 2, "picky": 4}
"""The topics that both clusters read, with their partitions."""


@dataclass
class WeekStack:
    """Everything below `folder`; nothing of it outlives this process. `long` is the form of it, see above."""

    folder: Path
    long: bool = False
    consumers: list[Consumer] = field(default_factory=list)
    foreign: Foreign | None = None

    def __post_init__(self) -> None:
        """Lay out the servers."""
        self.authority = Authority(self.folder / "authority", timedelta(seconds=CERTIFICATE))
        certificate = self.authority.issue("127.0.0.1", "localhost")
        self.kafka = WeekKafka(self.folder / "kafka", certificate)
        self.zookeeper = WeekZooKeeper(self.folder / "zookeeper", certificate, self.authority.ca)
        self.consul = WeekConsul(self.folder / "consul", certificate, self.authority.ca)
        for server in self.servers:
            server.extra_environment = {MARKER: str(self.folder)}
            server.choose_ports()
        self.pages = StatusPageSettings(
            token=SecretStr("of-the-status-pages"),
            tls=StatusTls(certfile=str(certificate), ca=str(self.authority.ca)),
        )
        self.coordination = Loops(self._spawn_coordinator, lambda name: self.log(f"coordinator-{name}"))
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True, name="test-renewal")

    @property
    def servers(self) -> tuple[Server, ...]:
        """All of them."""
        return self.kafka, self.zookeeper, self.consul

    @property
    def looks(self) -> Path:
        """The folder by which processes are asked how much they hold."""
        return self.folder / "looks"

    @property
    def journal(self) -> Path:
        """Where handlers note what they are given."""
        return self.folder / "batches"

    def clusters(self) -> dict[str, ClusterSettings]:
        """What is coordinated."""
        return load_clusters(self.folder / "clusters.yaml").clusters

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start the servers; end everything."""
        guard.watch_marker(MARKER, str(self.folder))
        for name in ("batches", "hang", "looks"):
            (self.folder / name).mkdir(parents=True)
        self.write_clusters()
        try:
            with ThreadPoolExecutor() as pool:
                for started in [pool.submit(server.start) for server in self.servers]:
                    started.result()
            self._renewal.start()
            yield
        finally:
            self._ended.set()
            if self._renewal.ident is not None:
                self._renewal.join(30)
            end_all(self.folder, grace=0.0)

    def connections(self, cluster: str) -> dict[str, Any]:
        """Return the settings of the servers and the status pages, as JSON holds them."""
        zookeeper, consul, kafka, pages = self._settings(cluster)
        return {
            "zookeeper": zookeeper.model_dump(mode="json", exclude_none=True),
            "consul": consul.model_dump(mode="json", exclude_none=True),
            "kafka": kafka.model_dump(mode="json", exclude_none=True),
            "status": pages.model_dump(mode="json", exclude_none=True),
        }

    def plain(self) -> tuple[ZooKeeperSettings, ConsulSettings, KafkaSettings]:
        """Return the settings of those that look from outside."""
        return self._settings(BETA)[:3]

    def start_consumer(self, consumer: str) -> None:
        """Start `consumer` as a new incarnation."""
        if consumer == FOREIGN:
            zookeeper, consul, _ = self.plain()
            self.foreign = Foreign(
                self.journal,
                [FOREIGN, BETA, f"muster-{BETA}", zookeeper.hosts, f"http://{consul.host}:{consul.port}"],
                {**os.environ, MARKER: str(self.folder)},
                self.log(FOREIGN),
            )
            return
        name = consumer.rpartition("-")[0]
        incarnation = str(uuid.uuid4())
        options = {
            "folder": str(self.folder),
            "consumer": consumer,
            "host": 1,
            "incarnation": incarnation,
        }
        zookeeper, consul, kafka, pages = self._settings(name)
        settings = ConsumerSettings(
            cluster=name,
            consumer=consumer,
            incarnation=incarnation,
            consul_service=f"muster-{name}",
            zookeeper=zookeeper,
            consul=consul,
            kafka=kafka,
            handler="tests.week.handlers.Watched",
            handler_options=options,
            handlers={
                "picky": TopicHandler(
                    handler="tests.week.handlers.Picky",
                    handler_options={**options, "rejects": name == ALPHA},
                )
            },
            trigger_interval=1.0,
            graceful_timeout=20.0,
            longest_renewal=RENEWAL,
            deregister_after=REAPING,
            status_token=pages.token,
            status_tls=pages.tls,
            bind="127.0.0.1",
            advertise="127.0.0.1",
        )
        spark = self.long and name == ALPHA
        command = HostStack._spark() if spark else HostStack._python("tests.hosts.light_job")
        process = self._spawn(command, consumer, settings.to_environment())
        self.consumers.append(Consumer(consumer, 1, incarnation, process))

    def running(self, consumer: str) -> list[Consumer]:
        """The living processes of `consumer`, the newest last."""
        return [one for one in self.consumers if one.id == consumer and one.process.alive()]

    def log(self, name: str) -> Path:
        """The file with the output of a process."""
        return self.folder / "logs" / f"{name}.log"

    def last_words(self, name: str, lines: int = 60) -> str:
        """The end of the log of a process, for messages."""
        text = self.log(name).read_text(errors="replace").splitlines()
        return "\n".join([f"-- {name}", *text[-lines:]])

    def told(self, cluster: str) -> str:
        """Return what `muster status --json` prints of a cluster, or its exit code and why it cannot."""
        done = subprocess.run(
            [sys.executable, "-m", "muster.cli", "status", "--cluster", cluster, "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self._environment()
            | environment_of(self.connections(BETA))
            | {
                "MUSTER_CLUSTERS": str(self.folder / "clusters.yaml"),
                "AIRFLOW_CONN_MUSTER_STATUS": self._status_connection(),
                "AIRFLOW_HOME": str(self.folder),
            },
        )
        return done.stdout if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr}"

    def write_clusters(self, **renamed: str) -> None:
        """Write the settings; a cluster may have another name than it had."""
        common = {
            "long_poll_timeout": "5s",
            "advance_budget": "10s",
            "closing_timeout": "15s",
            "stuck_after": f"{STUCK_AFTER}s",
        }
        clusters = {
            renamed.get(name, name): {
                **common,
                "consul_service": f"muster-{name}",
                "group_id": f"group-{name}",
                "topics": list(NAMED)
                if name == ALPHA
                else {"names": list(NAMED), "patterns": [f"{FLOCK}.*"]},
                "consumers": {"count": len(CONSUMERS[name]), "handler": "tests.week.handlers.Watched"},
                **({"status": "muster_status"} if name == ALPHA else {}),
            }
            for name in CONSUMERS
        }
        retention = {"history": f"{RETENTION:g}s", "history_entries": 5000}
        text = yaml.safe_dump({"clusters": clusters, "retention": retention})
        (self.folder / "clusters.yaml").write_text(text, encoding="utf-8")

    def _settings(
        self, cluster: str
    ) -> tuple[ZooKeeperSettings, ConsulSettings, KafkaSettings, StatusPageSettings]:
        times: dict[str, Any] = {"session_timeout": 4, "operation_timeout": 3}
        quick = {"reconnect.backoff.max.ms": "1000"}
        if cluster != ALPHA:
            return (
                ZooKeeperSettings(hosts=self.zookeeper.address, **times),
                ConsulSettings(host="127.0.0.1", port=self.consul.port, timeout=3),
                KafkaSettings(config={"bootstrap.servers": self.kafka.address, **quick}),
                StatusPageSettings(),
            )
        ca = str(self.authority.ca)
        return (
            ZooKeeperSettings(hosts=self.zookeeper.secure_address, use_ssl=True, ca=ca, **times),
            ConsulSettings(
                host="127.0.0.1", port=self.consul.ports["https"], scheme="https", ca=ca, timeout=3
            ),
            KafkaSettings(config={**self.kafka.secure_settings(self.authority.ca), **quick}),
            self.pages,
        )

    def _status_connection(self) -> str:
        assert self.pages.token is not None
        assert self.pages.tls is not None
        extra = self.pages.tls.model_dump(exclude_defaults=True)
        token = self.pages.token.get_secret_value()
        return json.dumps({"conn_type": "http", "password": token, "extra": extra})

    def _spawn_coordinator(self, cluster: str) -> ServerProcess:
        given = {VARIABLE: json.dumps(self.connections(cluster))}
        given["MUSTER_CLUSTERS"] = str(self.folder / "clusters.yaml")
        command = HostStack._python("tests.hosts.coordinate", cluster)
        return self._spawn(command, f"coordinator-{cluster}", given)

    def _spawn(self, command: list[str], name: str, environment: dict[str, str]) -> ServerProcess:
        return ServerProcess.spawn(
            command, self.log(name), self.folder, self._environment() | environment, guarded=True
        )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
            MARKER: str(self.folder),
            looks.VARIABLE: str(self.looks),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def _renew(self) -> None:
        """Renew the certificate of all, as a daemon on each host would. A server reads it at its start, too."""
        while not self._ended.wait(CERTIFICATE / 3):
            self.authority.issue("127.0.0.1", "localhost")
            with suppress(KafkaException, TimeoutError):
                self.kafka.renewed()
            with suppress(httpx.HTTPError):
                self.consul.renewed()
