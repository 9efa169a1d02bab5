"""Muster in the failover benchmark: the whole stack, its three Spark consumers, and what is done to them."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_peers import PatientKafka
from devstack.airflow import ROOT
from devstack.airflow_api import AirflowApi, wait_for
from devstack.demo.cluster_view import ClusterView
from devstack.stack import Stack
from muster.edges.consul import ConsulCluster, ConsulError, WaitIndex
from muster.edges.zookeeper import TopicStore
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.support.consumer_processes import Job

NAME = "Muster"
CLUSTER, TOPIC = "failover", "numbers"
PARTITIONS, CONSUMERS = 12, 3
CONSUMERS_DAG, COORDINATOR_DAG = f"muster_consumers__{CLUSTER}", f"muster_coordinator__{CLUSTER}"
_PATIENCE = 420.0


def _settings(notes: Path) -> str:
    """Return the cluster's `clusters.yaml` as JSON, which is YAML: all that bears on speed is as it is by default."""
    cluster = {
        "consul_service": f"muster-{CLUSTER}",
        "group_id": f"muster-{CLUSTER}",
        "topics": [TOPIC],
        "consumers": {
            "count": CONSUMERS,
            "handler": "benchmarks.failover_handler.Noting",
            "handler_options": {"folder": str(notes)},
            "startup_timeout": "10m",
            "spark_conf": {
                "spark.driver.memory": "512m",
                "spark.ui.enabled": "false",
                # Half of a JVM's start goes into compiling what runs for minutes only.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
        },
    }
    return json.dumps({"clusters": {CLUSTER: cluster}})


class Sightings:
    """When Consul's answer about a consumer changed: a thread that watches it as the coordinator does."""

    def __init__(self, discovery: ConsulCluster) -> None:
        self._discovery = discovery
        self._stop = threading.Event()
        self.seen: list[tuple[float, frozenset[str]]] = []
        self._thread = threading.Thread(target=self._run, daemon=True, name="sightings")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, within a blocking query's time."""
        self._stop.set()

    def gone(self, consumer: str, since: float) -> float | None:
        """Tell when `consumer` was first seen not live, or leaving, after `since`."""
        return next((at for at, live in self.seen if at > since and consumer not in live), None)

    def there(self, consumer: str, since: float) -> float | None:
        """Tell when `consumer` was first seen live after `since`."""
        return next((at for at, live in self.seen if at > since and consumer in live), None)

    def _run(self) -> None:
        index = WaitIndex()
        while not self._stop.is_set():
            with suppress(ConsulError):
                index = self._discovery.catalog.wait(index, 5.0)
                at = time.time()
                membership = self._discovery.catalog.members().membership
                live = membership.live.values() if membership is not None else ()
                self.seen.append((at, frozenset(c.id for c in live if not c.leaving)))


class Muster:
    """The stack below `folder`, with the consumers of one cluster. A context manager: up, and everything stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.deliveries = Deliveries(folder / "muster", PARTITIONS)
        clusters = folder / "clusters.yaml"
        clusters.write_text(_settings(self.deliveries.folder), encoding="utf-8")
        self.stack = Stack(
            folder / "stack",
            guarded=True,
            environment={
                "MUSTER_CLUSTERS": str(clusters),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
            },
        )
        usual = self.stack.kafka
        self.stack.kafka = PatientKafka(
            usual.data_dir, guarded=True, extra_environment=usual.extra_environment
        )
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        """Start all but the consumers. Raises `DevstackError`."""
        try:
            self.stack.up()
            self.servers = self.stack.kafka.address
            admin = AdminClient({"bootstrap.servers": self.servers}, logger=logging.getLogger("admin"))
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
            consul = ConsulSettings(port=self.stack.consul.port)
            zookeeper = ZooKeeperSettings(hosts=self.stack.zookeeper.address)
            self.cluster = load_clusters(self.folder / "clusters.yaml")[CLUSTER]
            self.discovery = ConsulCluster.of(consul, self.cluster)
            self.sightings = Sightings(self.discovery)
            self.sightings.start()
            self._exit.callback(self.sightings.stop)
            kafka = KafkaSettings(config={"bootstrap.servers": self.servers})
            self.view = self._exit.enter_context(ClusterView(self.cluster, zookeeper, consul, kafka))
            self.store = self._exit.enter_context(TopicStore(zookeeper, CLUSTER))
            password = self.stack.airflow.passwords()["admin"]
            self.api = self._exit.enter_context(AirflowApi(self.stack.airflow.url, "admin", password))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all."""
        self._exit.close()
        self.stack.down()

    def start(self) -> None:
        """Have the consumers run, and the partitions shared. Raises TimeoutError."""
        for dag in (CONSUMERS_DAG, COORDINATOR_DAG):
            wait_for(f"DAG {dag} is parsed", partial(self.api.has_dag, dag), _PATIENCE)
            self.api.set_paused(dag, False)
        self.wait("three consumers share the partitions", self.even)

    def wait(self, what: str, condition: Callable[[], Any]) -> None:
        """Wait for it. Raises TimeoutError with how things stand."""
        wait_for(what, condition, _PATIENCE, interval=0.1, detail=lambda: self.view.describe(TOPIC))

    def even(self, members: int = CONSUMERS) -> bool:
        """Tell whether `members` share the partitions evenly and the topic is Stable."""
        shares = list(self.view.shares(TOPIC).values())
        return self.view.stable(TOPIC) and shares == [PARTITIONS // members] * members

    def consumer(self, number: int) -> str:
        """Return its id."""
        return f"{CLUSTER}-{number}"

    def pid(self, number: int) -> int:
        """Return the driver of consumer `number`, which notes what it is given. Raises RuntimeError without one."""
        if not (pid := self.registered(number)):
            raise RuntimeError(f"consumer {number} is not registered")
        return pid

    def processes(self, number: int) -> list[psutil.Process]:
        """Return JVM, driver and Python workers of consumer `number`."""
        return Job(self.discovery, self.consumer(number)).processes()

    def kill(self, number: int) -> Callable[[], None]:
        """Return what kills consumer `number` at once: its processes are looked up now."""
        return partial(_signal, self.processes(number), signal.SIGKILL)

    def freeze(self, number: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return what freezes consumer `number`, and what lets it go on."""
        found = self.processes(number)
        return partial(_signal, found, signal.SIGSTOP), partial(_signal, found, signal.SIGCONT)

    def leave(self, number: int) -> None:
        """End the consumer's task, as a person does."""
        self.api.mark(CONSUMERS_DAG, self._run(), "consumer", number - 1, "failed")

    def restart(self, number: int) -> None:
        """Clear the consumer's task, as a person does: it leaves if it is there, and is started again."""
        self.api.clear(CONSUMERS_DAG, self._run(), "consumer", number - 1)

    def registered(self, number: int) -> int:
        """Return the driver of consumer `number` as it is registered, 0 if it is not."""
        found = self.discovery.catalog.members().registered.get(self.consumer(number))
        return int(found.meta["pid"]) if found is not None else 0

    def back(self, number: int, formerly: int) -> bool:
        """Tell whether consumer `number`, which was process `formerly`, has been restarted, and all is even."""
        return self.registered(number) not in {0, formerly} and self.even()

    def _run(self) -> str:
        return str(self.api.runs(CONSUMERS_DAG, 1)[0]["dag_run_id"])


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
