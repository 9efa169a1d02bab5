"""Three hosts with all that runs on them: ZooKeeper, Kafka, Consul, two clusters' consumers and their coordinator.

- each host: a ZooKeeper, a Kafka broker and controller, a Consul server, a Consul client, a consumer of each cluster;
- the first host: the coordinators of both clusters, too;
- this machine: a Consul client agent, and the test that looks at it all.

In the long form a real Airflow coordinates, and the consumers of cluster alpha are real Spark jobs. In the short form
a process a cluster does what the coordinator's DAG does, and no consumer has a JVM (`tests.hosts.light_job`). Those
of cluster beta are light in both, so that two cores bear it.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import yaml

from devstack.brokers import Brokers
from devstack.connector import connector_jar
from devstack.consul_agent import ConsulAgent
from devstack.consuls import Consuls
from devstack.ensemble import Ensemble
from devstack.guard import guard
from devstack.hosts import Host, Hosts
from devstack.leftovers import MARKER, end_all
from devstack.place import Place
from devstack.process import ServerProcess
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings
from tests.hosts.coordinate import VARIABLE
from tests.hosts.coordination import AirflowCoordination, Coordination, Loops

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = 3
ALPHA, BETA = "alpha", "beta"
NUMBERS, VOLATILE = "numbers", "volatile"
PARTITIONS = {NUMBERS: 6, VOLATILE: 3}
DELAY = 90
"""Seconds of `rebalance_delay` in cluster beta: time to be back, however busy the machine is. Alpha has none."""
STUCK_AFTER = 12
LAST_WORDS = 60
"""Lines of a consumer's log that are shown where it did what it should not."""
LONG = os.environ.get("MUSTER_TEST_HOSTS") == "long"
"""Whether all is done, with Airflow and Spark; see above."""
SPARK = (
    *("--master", "local[1]", "--driver-memory", "512m", "--conf", "spark.ui.enabled=false"),
    # What Spark keeps of the past is kept within two shrunk days.
    *("--conf", "spark.ui.retainedJobs=100", "--conf", "spark.ui.retainedStages=100"),
    *("--conf", "spark.ui.retainedTasks=100", "--conf", "spark.sql.ui.retainedExecutions=100"),
)


@dataclass
class Consumer:
    """Consumer `id` on `host` of the stack: a session of processes, which `incarnation` tells from all others."""

    id: str
    host: int
    incarnation: str
    process: ServerProcess


@dataclass
class HostStack:
    """Everything below `folder`; nothing of it outlives this process. `long` is the form of it, see above."""

    folder: Path
    hosts: Hosts
    long: bool = False
    consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Lay out the servers."""
        places = [host.place for host in self.hosts]
        self.ensemble = Ensemble(self.folder / "zookeeper", places)
        self.brokers = Brokers(self.folder / "kafka", places)
        self.consuls = Consuls(self.folder / "consul", places)
        self.consul = ConsulAgent(
            self.folder / "consul" / "here",
            self.consuls.servers,
            "here",
            guarded=True,
            place=Place(self.hosts.gateway),
        )
        self.zookeeper_settings = ZooKeeperSettings(
            hosts=self.ensemble.hosts, session_timeout=4, operation_timeout=3
        )
        self.kafka_settings = KafkaSettings(
            config={"bootstrap.servers": self.brokers.servers, "reconnect.backoff.max.ms": "1000"}
        )
        self.coordination = self._coordination()

    @property
    def journal(self) -> Path:
        """Where handlers note what they are given."""
        return self.folder / "batches"

    @property
    def consul_settings(self) -> ConsulSettings:
        """The agent of this machine, which no fault concerns."""
        return ConsulSettings(host=self.hosts.gateway, port=self.consul.port, timeout=3)

    def clusters(self) -> dict[str, ClusterSettings]:
        """What is coordinated."""
        return load_clusters(self.folder / "clusters.yaml").clusters

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start the servers; end everything."""
        guard.watch_marker(MARKER, str(self.folder))
        for name in ("batches", "hang"):
            (self.folder / name).mkdir(parents=True)
        self._write_clusters()
        try:
            for server in (*self.ensemble, *self.brokers, *self.consuls, self.consul):
                server.extra_environment = {MARKER: str(self.folder)}
            with ThreadPoolExecutor() as pool:
                starts = [self.ensemble.start, self.brokers.start, self.consuls.start, self.consul.start]
                starts.append(self.coordination.prepare)
                for started in [pool.submit(start) for start in starts]:
                    started.result()
            yield
        finally:
            end_all(self.folder, grace=0.0)

    def start_consumer(self, consumer: str, host: int) -> Consumer:
        """Start `consumer` on `host`, as a new incarnation."""
        cluster = self.clusters()[consumer.rpartition("-")[0]]
        incarnation = str(uuid.uuid4())
        settings = ConsumerSettings(
            cluster=cluster.name,
            consumer=consumer,
            incarnation=incarnation,
            consul_service=cluster.consul_service,
            zookeeper=self.zookeeper_settings,
            consul=self._agent_of(host),
            kafka=self.kafka_settings,
            handler="tests.hosts.noting.Noting",
            handler_options={
                "folder": str(self.folder),
                "consumer": consumer,
                "host": host,
                "incarnation": incarnation,
            },
            trigger_interval=1.0,
            graceful_timeout=20.0,
            # As for those that Airflow runs: with a delay, partitions wait for a consumer that comes back.
            **({"hand_over": 0.0} if cluster.rebalance_delay > 0 else {}),
        )
        process = self._spawn(
            self.hosts[host],
            self._spark() if self.long and cluster.name == ALPHA else self._python("tests.hosts.light_job"),
            self._log(consumer, host),
            settings.to_environment(),
        )
        found = Consumer(consumer, host, incarnation, process)
        self.consumers.append(found)
        return found

    def running(self, consumer: str) -> list[Consumer]:
        """The living processes of `consumer`, the newest last."""
        return [one for one in self.consumers if one.id == consumer and one.process.alive()]

    def last_words(self, incarnation: str) -> str:
        """The end of the log of a process, for messages."""
        (one,) = (found for found in self.consumers if found.incarnation == incarnation)
        lines = self._log(one.id, one.host).read_text(errors="replace").splitlines()
        return "\n".join([f"-- {one.id} on host {one.host}", *lines[-LAST_WORDS:]])

    def _log(self, consumer: str, host: int) -> Path:
        return self.folder / "logs" / f"{consumer}@{host}.log"

    def _agent_of(self, host: int) -> ConsulSettings:
        """As programs of the host ask it: on the loopback address, which no other host reaches."""
        return ConsulSettings(port=self.consuls.clients[host - 1].port, timeout=3)

    def _coordination(self) -> Coordination:
        clusters = self.folder / "clusters.yaml"
        connections = {
            "zookeeper": self.zookeeper_settings.model_dump(mode="json"),
            "consul": self._agent_of(1).model_dump(mode="json", include={"host", "port", "timeout"}),
            "kafka": self.kafka_settings.model_dump(mode="json"),
        }
        if self.long:
            return AirflowCoordination(
                self.folder / "airflow",
                self.hosts[1].place,
                connections,
                clusters,
                {MARKER: str(self.folder)},
            )
        environment = {VARIABLE: json.dumps(connections), "MUSTER_CLUSTERS": str(clusters)}

        def log(cluster: str) -> Path:
            return self.folder / "logs" / f"coordinator-{cluster}.log"

        def spawn(cluster: str) -> ServerProcess:
            command = self._python("tests.hosts.coordinate", cluster)
            return self._spawn(self.hosts[1], command, log(cluster), environment)

        return Loops(spawn, log)

    @staticmethod
    def _python(*module: str) -> list[str]:
        return [sys.executable, "-m", *module]

    @staticmethod
    def _spark() -> list[str]:
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), *SPARK, "--jars", str(connector_jar())]
        return [*submit, str(ROOT / "sparkjobs" / "consume.py")]

    def _spawn(self, host: Host, command: list[str], log: Path, environment: dict[str, str]) -> ServerProcess:
        return ServerProcess.spawn(
            [*host.place.prefix, *command],
            log,
            self.folder,
            {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
                MARKER: str(self.folder),
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                **environment,
            },
            guarded=True,
        )

    def _write_clusters(self) -> None:
        common = {
            "topics": [NUMBERS, VOLATILE],
            "long_poll_timeout": "5s",
            "advance_budget": "10s",
            "closing_timeout": "15s",
            "stuck_after": f"{STUCK_AFTER}s",
            "consumers": {"count": HOSTS, "handler": "tests.hosts.noting.Noting"},
        }
        clusters = {
            name: {**common, "consul_service": f"muster-{name}", "group_id": f"group-{name}", **more}
            for name, more in ((ALPHA, {}), (BETA, {"rebalance_delay": f"{DELAY}s"}))
        }
        text = yaml.safe_dump({"clusters": clusters})
        (self.folder / "clusters.yaml").write_text(text, encoding="utf-8")
