"""Muster in the failover benchmark: the whole stack, its three Spark consumers, and what is done to them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.failover_breakdown import breakdown, replacement
from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_figures import MEMBERS, PARTITIONS, PATIENCE, TOPIC, Event, Name
from benchmarks.failover_peers import PatientKafka
from benchmarks.harness.report import render
from benchmarks.harness.servers import create_topic
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
CLUSTER = "failover"
CONSUMERS_DAG, COORDINATOR_DAG = f"muster_consumers__{CLUSTER}", f"muster_coordinator__{CLUSTER}"


class Muster(ExitStack):
    """The stack below `folder`, with the consumers of one cluster. As a context manager, all is stopped at its end.

    `kill`, `freeze` and `leave` return what does so: all that has to be looked up is looked up before.
    """

    name = NAME

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.deliveries = Deliveries(folder / "muster", PARTITIONS)
        clusters = folder / "clusters.yaml"
        settings = render(
            "failover.yaml", cluster=CLUSTER, topic=TOPIC, count=MEMBERS, folder=self.deliveries.folder
        )
        clusters.write_text(settings, encoding="utf-8")
        paths = os.pathsep.join([str(ROOT / "include"), str(ROOT)])
        environment = {"MUSTER_CLUSTERS": str(clusters), "PYTHONPATH": paths}
        self.stack = Stack(folder / "stack", guarded=True, environment=environment)
        usual = self.stack.kafka
        self.stack.kafka = PatientKafka(
            usual.data_dir, guarded=True, extra_environment=usual.extra_environment
        )
        self.cluster = load_clusters(clusters)[CLUSTER]
        self.long_poll = self.cluster.long_poll_timeout
        self._sightings: list[tuple[float, frozenset[str]]] = []
        self._stop = threading.Event()
        self._frozen: list[psutil.Process] = []

    def up(self) -> None:
        """Start all but the consumers. Raises `DevstackError`."""
        self.callback(self.stack.down)
        self.stack.up()
        self.servers = self.stack.kafka.address
        create_topic(self.servers, TOPIC, PARTITIONS)
        consul = ConsulSettings(port=self.stack.consul.port)
        zookeeper = ZooKeeperSettings(hosts=self.stack.zookeeper.address)
        kafka = KafkaSettings(config={"bootstrap.servers": self.servers})
        self.discovery = ConsulCluster.of(consul, self.cluster)
        self.view = self.enter_context(ClusterView(self.cluster, zookeeper, consul, kafka))
        self.store = self.enter_context(TopicStore(zookeeper, CLUSTER))
        password = self.stack.airflow.passwords()["admin"]
        self.api = self.enter_context(AirflowApi(self.stack.airflow.url, "admin", password))
        self.callback(self._stop.set)
        threading.Thread(target=self._watch, daemon=True, name="sightings").start()

    def start(self) -> None:
        for dag in (CONSUMERS_DAG, COORDINATOR_DAG):
            wait_for(f"DAG {dag} is parsed", partial(self.api.has_dag, dag), PATIENCE)
            self.api.set_paused(dag, False)
        self.settle()

    def _watch(self) -> None:
        """Note when Consul's answer about the consumers changes: watched as the coordinator does."""
        index = WaitIndex()
        while not self._stop.is_set():
            with suppress(ConsulError):
                index = self.discovery.catalog.wait(index, 5.0)
                at = time.time()
                membership = self.discovery.catalog.members().membership
                live = membership.live.values() if membership is not None else ()
                self._sightings.append((at, frozenset(c.id for c in live if not c.leaving)))

    def seen(self, consumer: str, since: float, live: bool) -> float | None:
        """Tell when `consumer` was first seen `live`, or not live or leaving, after `since`."""
        seen = list(self._sightings)
        return next((at for at, all_live in seen if at > since and (consumer in all_live) == live), None)

    def _wait(self, what: str, condition: Callable[[], Any]) -> Any:
        """Wait for it. Raises TimeoutError with how things stand."""
        return wait_for(what, condition, PATIENCE, interval=0.1, detail=lambda: self.view.describe(TOPIC))

    def settle(self) -> None:
        """Wait until the consumers share the partitions evenly and the topic is Stable."""
        self._wait("all is even", self._even)

    def _even(self) -> bool:
        shares = list(self.view.shares(TOPIC).values())
        return self.view.stable(TOPIC) and shares == [PARTITIONS // MEMBERS] * MEMBERS

    def consumer(self, number: int) -> str:
        return f"{CLUSTER}-{number}"

    def pid(self, number: int) -> int:
        """Return the driver of consumer `number`, which notes what it is given. Raises RuntimeError without one."""
        if not (pid := self._registered(number)):
            raise RuntimeError(f"consumer {number} is not registered")
        return pid

    def _registered(self, number: int) -> int:
        """Return the driver of consumer `number` as it is registered, 0 if it is not."""
        found = self.discovery.catalog.members().registered.get(self.consumer(number))
        return int(found.meta["pid"]) if found is not None else 0

    def _processes(self, number: int) -> list[psutil.Process]:
        return Job(self.discovery, self.consumer(number)).processes()

    def kill(self, number: int) -> Callable[[], None]:
        return partial(_signal, self._processes(number), signal.SIGKILL)

    def freeze(self, number: int) -> Callable[[], None]:
        self._frozen = self._processes(number)
        return partial(_signal, self._frozen, signal.SIGSTOP)

    def resume(self, _number: int) -> None:
        _signal(self._frozen, signal.SIGCONT)

    def leave(self, number: int) -> Callable[[], None]:
        """End the consumer's task, as a person does."""
        return partial(self.api.mark, CONSUMERS_DAG, self._run(), "consumer", number - 1, "failed")

    def join(self, number: int, left: bool) -> float:
        """Wait until the consumer is live, and return since when; Airflow starts one itself that has not `left`."""
        if left:
            self._wait("the consumer is gone", lambda: not self._registered(number))
            self._clear(number)
        began: float = self._wait(
            "the consumer is live", partial(self.seen, self.consumer(number), time.time(), live=True)
        )
        return began

    def restart(self, number: int) -> Callable[[], None]:
        """Begin to restart consumer `number`; return what waits until all is even with it."""
        pid = self.pid(number)
        self._clear(number)
        return lambda: self._wait(
            "it is back", lambda: self._registered(number) not in {0, pid} and self._even()
        )

    def _clear(self, number: int) -> None:
        """Clear the consumer's task, as a person does: it leaves if it is there, and is started again."""
        self.api.clear(CONSUMERS_DAG, self._run(), "consumer", number - 1)

    def _run(self) -> str:
        return str(self.api.runs(CONSUMERS_DAG, 1)[0]["dag_run_id"])

    def parts(self, event: Event, number: int) -> dict[str, float]:
        return breakdown(self, event, self.consumer(number))

    def replaced(self, killed: Event, joined: Event, number: int) -> Event:
        """Return the whole from the kill until the replacement has its share."""
        event = Event(NAME, Name.REPLACE, killed.began, {}, {}, loops=killed.loops)
        event.flows = None if joined.flows is None else joined.began + joined.flows - killed.began
        event.parts = replacement(self, killed, joined, number)
        return event


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
