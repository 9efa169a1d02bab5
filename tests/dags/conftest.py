"""What the tests of the Airflow part share. Airflow reads its home when it is first imported, so it is set here."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="muster-airflow-home-"))
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "false"

from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.dags.dag_runner import ROOT
from tests.support.airflow_home import environment_of
from tests.support.hand_coordinator import HandCoordinator, coordinating

LIGHT_CONSUMER = Path(__file__).parent / "light_consumer.py"

WriteClusters = Callable[..., Path]


@pytest.fixture
def cluster_name() -> str:
    """A cluster of its own for each test, because the servers are shared."""
    return f"c{uuid.uuid4().hex[:8]}"


@pytest.fixture
def discovery(consul: ConsulSettings, cluster_name: str) -> ConsulCluster:
    return ConsulCluster(consul, cluster_name, f"{cluster_name}-service")


@pytest.fixture
def coordinator(
    zookeeper: ZooKeeperSettings, kafka: KafkaSettings, cluster_name: str
) -> Iterator[HandCoordinator]:
    """Assigns the cluster's topics by hand."""
    with coordinating(zookeeper, kafka, cluster_name, f"{cluster_name}-group") as made:
        yield made


@pytest.fixture(scope="module")
def airflow_environment(airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("airflow")
    shutil.copyfile(airflow_database, home / "airflow.db")
    return environment_of(home) | {"AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins")}


@pytest.fixture
def write_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteClusters:
    """Write a `clusters.yaml` with one cluster, and have it used."""

    def write(name: str, count: int = 1, **settings: Any) -> Path:
        consumers = {
            "count": count,
            "handler": "muster.handlers.nothing",
            "startup_timeout": "40s",
            "lost_after": "3s",
            "graceful_timeout": "10s",
            "spark_conf": {"spark.ui.enabled": False},
        }
        entry: dict[str, Any] = {
            "consul_service": f"{name}-service",
            "group_id": f"{name}-group",
            "topics": ["flights"],
            "long_poll_timeout": "1s",
            "advance_budget": "20s",
        }
        consumers |= settings.pop("consumers", {})
        path = tmp_path / "clusters.yaml"
        path.write_text(yaml.safe_dump({"clusters": {name: entry | settings | {"consumers": consumers}}}))
        monkeypatch.setenv("MUSTER_CLUSTERS", str(path))
        return path

    return write


def connection(**values: Any) -> str:
    """An Airflow connection as its environment variable holds it."""
    return json.dumps(values)


@pytest.fixture
def connections(
    monkeypatch: pytest.MonkeyPatch,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
) -> None:
    """The four Airflow connections, to the real servers."""
    extra = kafka.config
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_KAFKA", connection(conn_type="kafka", extra=extra))
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_ZOOKEEPER", connection(conn_type="generic", host=zookeeper.hosts))
    consul_and_spark(monkeypatch, consul)


@pytest.fixture
def light_connections(monkeypatch: pytest.MonkeyPatch, consul: ConsulSettings) -> None:
    """Connections for tests that only need Consul; no server listens at the other two."""
    nowhere = {"bootstrap.servers": "127.0.0.1:9"}
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_KAFKA", connection(conn_type="kafka", extra=nowhere))
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_ZOOKEEPER", connection(conn_type="generic", host="127.0.0.1:9"))
    consul_and_spark(monkeypatch, consul)


def consul_and_spark(monkeypatch: pytest.MonkeyPatch, consul: ConsulSettings) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_CONSUL", connection(conn_type="http", host=consul.host, port=consul.port)
    )
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_SPARK", connection(conn_type="spark", host="local[1]"))
    monkeypatch.setenv("MUSTER_APPLICATION", str(LIGHT_CONSUMER))
