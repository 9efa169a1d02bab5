"""Real servers, each behind a proxy: Kafka, three ZooKeepers, Consul, and an Airflow that runs one cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.airflow import Airflow
from devstack.consul import Consul
from devstack.ensemble import Ensemble
from devstack.guard import guard
from devstack.kafka import Kafka
from devstack.leftovers import MARKER, end_all
from tests.faults.real.proxy import Network, Proxy
from tests.faults.real.small_disk import SmallDisk
from tests.faults.real.zookeeper_proxy import Watched, ZooKeeperProxy

CLUSTER, TOPIC, GROUP, SERVICE = "faults", "numbers", "faults-group", "muster-faults"
COUNTS = "counts"
"""Where the handler's counts go, which it keeps as state by key; the same consumers store them in a table."""
PARTITIONS, CONSUMERS = 6, 3
STUCK_AFTER = 40
"""Seconds; longer than it takes until all flows again after most faults."""
HANDLERS = Path(__file__).parent / "handlers"


class ProxiedKafka(Kafka):
    """A broker that clients reach through a proxy, which is the address that it tells them."""

    def behind(self, proxy: Proxy) -> None:
        """Tell clients to come to `proxy`."""
        self._proxy = proxy

    def settings(self) -> dict[str, str]:
        """As ever, but for the address that is advertised."""
        return {**super().settings(), "advertised.listeners": f"PLAINTEXT://{self._proxy.address}"}


class FaultStack:
    """Everything below `folder`; nothing of it outlives this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = SmallDisk(folder / "sink")
        mark = {MARKER: str(folder)}
        self.ensemble = Ensemble(folder / "zookeeper")
        self.consul = Consul(folder / "consul", guarded=True, extra_environment=mark)
        self.kafka = ProxiedKafka(folder / "kafka", guarded=True, extra_environment=mark)
        self.network = Network()
        self.watched = Watched()
        self.kafka_proxy = Proxy(self.network, lambda: self.kafka.port)
        self.kafka.behind(self.kafka_proxy)
        self.consul_proxy = Proxy(self.network, lambda: self.consul.port)
        self.zookeeper_proxies = [
            ZooKeeperProxy(self.network, lambda member=member: member.port, self.watched)  # type: ignore[misc]
            for member in self.ensemble
        ]
        self.airflow = Airflow(folder / "airflow", guarded=True, extra_environment=self._environment())

    @property
    def journal(self) -> Path:
        """Where the consumers' handlers note what they are given."""
        return self.folder / "journal"

    @property
    def counts(self) -> Path:
        """The table of the counts."""
        return self.folder / COUNTS

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start everything; end everything."""
        guard.watch_marker(MARKER, str(self.folder))
        self.journal.mkdir()
        self._write_clusters()
        before = dict(os.environ)
        try:
            with ThreadPoolExecutor() as pool:
                starts = [self.ensemble.start, self.consul.start, self.kafka.start, self.airflow.migrate]
                for started in [pool.submit(start) for start in starts]:
                    started.result()
            admin = AdminClient({"bootstrap.servers": self.kafka.address})
            for created in admin.create_topics(
                [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(COUNTS, 1, 1)]
            ).values():
                created.result(30)
            self.airflow.start()
            yield
        finally:
            self._down()
            os.environ.clear()
            os.environ.update(before)

    def _down(self) -> None:
        self.ensemble.resume()
        self.consul.resume()
        self.airflow.stop()
        end_all(self.folder, grace=0.0)
        for stop in (self.kafka.kill, self.consul.kill, self.ensemble.kill):
            stop()
        for proxy in (self.kafka_proxy, self.consul_proxy, *self.zookeeper_proxies):
            proxy.close()
        self.network.close()

    def _environment(self) -> dict[str, str]:
        hosts = ",".join(proxy.address for proxy in self.zookeeper_proxies)
        connections = {
            "KAFKA": {"conn_type": "kafka", "extra": {"bootstrap.servers": self.kafka_proxy.address}},
            "ZOOKEEPER": {
                "conn_type": "generic",
                "host": hosts,
                "extra": {"session_timeout": 4, "operation_timeout": 5},
            },
            "CONSUL": {
                "conn_type": "http",
                "host": "127.0.0.1",
                "port": self.consul_proxy.port,
                "schema": "http",
            },
            "SPARK": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
        }
        return {
            MARKER: str(self.folder),
            "MUSTER_CLUSTERS": str(self.folder / "clusters.yaml"),
            "PYTHONPATH": str(HANDLERS),
            # A task that was killed with its scheduler is noticed sooner than in a deployment.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "12",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            # The DAG files stay as they are; reading them again takes seconds of a processor.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            **{f"AIRFLOW_CONN_MUSTER_{name}": json.dumps(value) for name, value in connections.items()},
        }

    def _write_clusters(self) -> None:
        cluster = {
            "consul_service": SERVICE,
            "group_id": GROUP,
            "topics": [TOPIC, COUNTS],
            "long_poll_timeout": "15s",
            "stuck_after": f"{STUCK_AFTER}s",
            "advance_budget": "10s",
            "consumers": {
                "count": CONSUMERS,
                "handler": "journaled_sink.JournaledSink",
                "handler_options": {"path": str(self.disk.folder), "journal": str(self.journal)},
                "handlers": {
                    COUNTS: {
                        "handler": "muster.sinks.DeltaSink",
                        "handler_options": {"path": str(self.counts)},
                    }
                },
                "state": [TOPIC],
                "state_folder": str(self.folder / "state"),
                "trigger_interval": "1s",
                "graceful_timeout": "20s",
                "startup_timeout": "5m",
                "spark_conf": {"spark.driver.memory": "512m", "spark.ui.enabled": False},
            },
        }
        text = yaml.safe_dump({"clusters": {CLUSTER: cluster}})
        (self.folder / "clusters.yaml").write_text(text, encoding="utf-8")
