"""One stack for all faults, brought up once: three consumers that share six partitions, and numbers that flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.airflow_api import AirflowApi
from devstack.demo.cluster_view import ClusterView
from muster.edges.consul import ConsulCluster
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.faults.real.deliveries import Journal
from tests.faults.real.stack import CLUSTER, GROUP, PARTITIONS, SERVICE, TOPIC, FaultStack
from tests.faults.real.world import CONSUMERS_DAG, COORDINATOR_DAG, World
from tests.support.airflow_home import give_database
from tests.support.commit_log import CommitLog
from tests.support.timed_numbers import NumberProducer


@pytest.fixture(scope="module")
def world(airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    stack = FaultStack(tmp_path_factory.mktemp("faults").resolve())
    give_database(stack.airflow, airflow_database)
    with stack.up():
        cluster = load_clusters(stack.folder / "clusters.yaml")[CLUSTER]
        consul = ConsulSettings(port=stack.consul.port)
        servers = stack.kafka_proxy.address
        with (
            AirflowApi(stack.airflow.url, "admin", stack.airflow.passwords()["admin"]) as api,
            ClusterView(
                cluster,
                ZooKeeperSettings(hosts=stack.ensemble.hosts, session_timeout=4, operation_timeout=3),
                consul,
                KafkaSettings(config={"bootstrap.servers": servers}),
            ) as view,
        ):
            world = World(
                stack,
                api,
                cluster,
                view,
                ConsulCluster(consul, CLUSTER, SERVICE),
                NumberProducer(servers, TOPIC, PARTITIONS),
                CommitLog(servers, GROUP, TOPIC),
                Journal(stack.journal),
            )
            for dag in (CONSUMERS_DAG, COORDINATOR_DAG):
                world.eventually(f"{dag} is parsed", lambda dag=dag: api.has_dag(dag), 90)  # type: ignore[misc]
                api.set_paused(dag, False)
            world.producer.start()
            world.commits.start()
            try:
                world.eventually("three consumers share the partitions", world.even, 400)
                world.standstills.start()
                yield world
            finally:
                world.close()
