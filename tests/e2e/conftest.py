"""A whole stack of its own for the end-to-end tests, with a cluster of two consumers; started once for all of them.

`__init__.py` makes this folder the package that the fixture's scope names.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.airflow_api import AirflowApi
from devstack.certificates import Authority
from devstack.demo.arrivals import count_numbers
from devstack.demo.cluster_view import ClusterView
from devstack.stack import Stack
from muster.edges.consul import ConsulCluster
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.support.airflow_home import give_database
from tests.support.number_producer import NumberProducer
from tests.support.secured import connection

TOPIC = "numbers"
PARTITIONS = 6

CLUSTERS = """
clusters:
  numbers:
    consul_service: muster-numbers
    consul_prefix: dev/muster
    group_id: numbers-parquet
    status: muster_status
    topics: [numbers]
    long_poll_timeout: 5s
    consumers:
      count: 2
      handler: muster.handlers.parquet.ParquetHandler
      handler_options: {path: "${MUSTER_DATA}/numbers"}
      spark_conf: {spark.driver.memory: 512m, spark.ui.enabled: false}
      each:
        numbers-2: {weight: 2, priority: 1, zone: b, topics: [numbers], metadata: {disks: 4}}
"""
SHARES = {"numbers-1": 2, "numbers-2": 4}
"""Partitions a consumer: the second one has twice the weight."""
TOKEN = secrets.token_hex(12)
"""Of the status pages, which speak TLS."""
RACK = "b"
"""Of the broker, and so of all leaders: the zone of the second consumer."""


@dataclass
class RunningStack:
    """Everything the steps of the test look at and act on."""

    stack: Stack
    api: AirflowApi
    view: ClusterView
    discovery: ConsulCluster
    cluster: ClusterSettings
    producer: NumberProducer
    trust: ssl.SSLContext

    def page(self, consumer: str, scheme: str = "https", token: str = TOKEN) -> httpx.Response:
        """The status page of a consumer."""
        there = self.discovery.catalog.members().registered[consumer]
        return httpx.get(
            f"{scheme}://{there.address}:{there.port}/status",
            headers={"Authorization": f"Bearer {token}"},
            verify=self.trust,
            timeout=5,
            trust_env=False,
        )

    def incarnations(self) -> dict[str, str]:
        """Consumer to incarnation, of those that are live."""
        return {c: str(self.page(c).json()["incarnation"]) for c in sorted(self.view.live())}

    def shares(self) -> dict[str, int]:
        """Partitions a consumer if the topic is Stable, else nothing."""
        return self.view.shares(TOPIC) if self.view.stable(TOPIC) else {}

    def arrived(self) -> int:
        """The first number that does not stand in the Parquet files."""
        return count_numbers(self.stack.data / "numbers").complete_to

    def describe(self) -> str:
        """How things stand, for messages."""
        return self.view.describe(TOPIC)


@pytest.fixture(scope="package")
def world(
    airflow_database: Path,
    authority: Authority,
    server_certificate: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("e2e")
    clusters = folder / "clusters.yaml"
    clusters.write_text(CLUSTERS, encoding="utf-8")
    files = {"CERTIFICATE": str(server_certificate), "KEY": str(server_certificate), "CA": str(authority.ca)}
    environment = {
        "MUSTER_CLUSTERS": str(clusters),
        "AIRFLOW_CONN_MUSTER_STATUS": json.dumps(connection("status-connection-tls", TOKEN=TOKEN, **files)),
        # The DAG files stay as they are; reading them again takes seconds of a processor.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    }
    stack = Stack(folder / "stack", guarded=True, environment=environment, rack=RACK)
    give_database(stack.airflow, airflow_database)
    before = dict(os.environ)
    try:
        stack.up()
        admin = AdminClient({"bootstrap.servers": stack.kafka.address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        cluster = load_clusters(clusters)["numbers"]
        consul = ConsulSettings(port=stack.consul.port)
        with (
            AirflowApi(stack.airflow.url, "admin", stack.airflow.passwords()["admin"]) as api,
            ClusterView(
                cluster,
                ZooKeeperSettings(hosts=stack.zookeeper.address),
                consul,
                KafkaSettings(config={"bootstrap.servers": stack.kafka.address}),
            ) as view,
        ):
            discovery = ConsulCluster.of(consul, cluster)
            producer = NumberProducer(stack.kafka.address, TOPIC)
            trust = ssl.create_default_context(cafile=authority.ca)
            yield RunningStack(stack, api, view, discovery, cluster, producer, trust)
    finally:
        stack.down()
        os.environ.clear()
        os.environ.update(before)
