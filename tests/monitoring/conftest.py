"""The stack whose metrics are looked at: ZooKeeper, Consul, Kafka, two consumers, real runs of the coordinator's DAG
with a StatsD server, `/muster/metrics` beside Airflow's database, and a real Prometheus with the configuration that
Muster ships. One for all tests that ask for `stack`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.monitoring import FILES
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.dags.dag_runner import DagRunner, Run
from tests.monitoring.prometheus_server import Prometheus
from tests.monitoring.sparkless import Sparkless
from tests.monitoring.statsd_listener import StatsdListener
from tests.support.airflow_home import environment_of
from tests.support.debian_programs import needed

ROOT = Path(__file__).resolve().parents[2]
TOKEN, STATUS_TOKEN = "token-of-metrics", "token-of-status-pages"
PARTITIONS = 4


@dataclass
class Stack:
    """`topic` has consumers, `lonely` has no subscriber."""

    cluster: ClusterSettings
    topic: str
    lonely: str
    kafka: KafkaSettings
    environment: dict[str, str]
    runner: DagRunner
    statsd: StatsdListener
    metrics_url: str
    folder: Path
    consumers: dict[str, Sparkless] = field(default_factory=dict)

    def coordinate(self) -> Run:
        """One run of the coordinator's DAG."""
        dag_id = f"muster_coordinator__{self.cluster.name}"
        return self.runner.run(dag_id, self.environment, self.folder / "run.log")

    def produce(self, topic: str, count: int) -> None:
        """Write records, evenly over the partitions."""
        producer = Producer(dict(self.kafka.config))
        for number in range(count):
            producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
        assert producer.flush(20) == 0

    def get(self, path: str, token: str | None = TOKEN, **params: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.get(
            f"{self.metrics_url}{path}", headers=headers, params=params, timeout=20, trust_env=False
        )


def _connection(**values: Any) -> str:
    return json.dumps(values)


def _write_clusters(folder: Path, name: str) -> None:
    entry = {
        "consul_service": f"{name}-service",
        "group_id": f"{name}-group",
        "topics": [f"flights-{name}", f"lonely-{name}"],
        "long_poll_timeout": "1s",
        "advance_budget": "15s",
        "stuck_after": "5m",
        "status": "muster_status",
        "consumers": {"count": 3, "handler": "not.used"},
    }
    wrong = {"consul_service": "x"}
    (folder / "clusters.yaml").write_text(yaml.safe_dump({"clusters": {name: entry, "wrong": wrong}}))


@pytest.fixture(scope="module")
def stack(
    airflow_database: Path,
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    eventually: Eventually,
) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("monitoring")
    name = f"m{uuid.uuid4().hex[:8]}"
    _write_clusters(folder, name)
    cluster = load_clusters(folder / "clusters.yaml")[name]
    topic, lonely = cluster.topics.names
    admin = AdminClient(dict(kafka.config))
    for created in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in (topic, lonely)]).values():
        created.result(20)
    with ExitStack() as closing:
        statsd = closing.enter_context(StatsdListener())
        environment = os.environ | environment_of(folder)
        environment |= {
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
            "AIRFLOW__METRICS__STATSD_ON": "true",
            "AIRFLOW__METRICS__STATSD_PORT": str(statsd.port),
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "MUSTER_CLUSTERS": str(folder / "clusters.yaml"),
            "AIRFLOW_CONN_MUSTER_KAFKA": _connection(conn_type="kafka", extra=kafka.config),
            "AIRFLOW_CONN_MUSTER_ZOOKEEPER": _connection(conn_type="generic", host=zookeeper.hosts),
            "AIRFLOW_CONN_MUSTER_CONSUL": _connection(conn_type="http", host=consul.host, port=consul.port),
            "AIRFLOW_CONN_MUSTER_METRICS": _connection(conn_type="generic", password=TOKEN),
            "AIRFLOW_CONN_MUSTER_STATUS": _connection(conn_type="generic", password=STATUS_TOKEN),
        }
        shutil.copyfile(airflow_database, folder / "airflow.db")
        runner = DagRunner(environment)
        closing.callback(runner.close)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.monitoring.serve"],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "serve.log").open("w"),
            text=True,
        )
        closing.callback(server.communicate, timeout=20)
        assert server.stdout is not None
        consumers = {
            each: closing.enter_context(
                Sparkless(each, cluster, zookeeper, consul, kafka, STATUS_TOKEN, topics=topic)
            )
            for each in cluster.consumer_ids()[:2]
        }
        made = Stack(
            cluster, topic, lonely, kafka, environment, runner, statsd, "", folder, consumers=consumers
        )
        made.produce(topic, 400)
        made.produce(lonely, 40)
        first = made.coordinate()
        assert first.state == "success", first.log
        port = next(
            line.strip() for line in server.stdout if line.strip().isdigit()
        )  # Airflow logs there too
        made.metrics_url = f"http://127.0.0.1:{port}"
        yield made


@pytest.fixture(scope="module")
def prometheus(stack: Stack, eventually: Eventually) -> Iterator[Prometheus]:
    """Scrapes the stack with the shipped example and rules; only addresses and intervals are put in."""
    program, _ = needed("prometheus", "promtool")
    folder = stack.folder / "prometheus"
    folder.mkdir()
    example = (FILES / "prometheus.yml").read_text()
    address = stack.metrics_url.removeprefix("http://")
    for written, here in (("airflow.example:8080", address), (": 15s", ": 3s")):
        assert written in example
        example = example.replace(written, here)
    (folder / "prometheus.yml").write_text(example)
    (folder / "rules.yml").write_text((FILES / "rules.yml").read_text())
    (folder / "muster.token").write_text(TOKEN)
    (folder / "muster-status.token").write_text(STATUS_TOKEN)
    server = Prometheus(program, folder / "prometheus.yml", folder / "data")
    server.start()
    try:
        yield server
    finally:
        server.stop()
