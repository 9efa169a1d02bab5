"""Cluster mode: the driver runs in a container of a real YARN, and Airflow only hands the job over."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowFailException
from pydantic import SecretStr

from devstack.guard import guard
from devstack.leftovers import MARKER, end_all
from devstack.yarn import NodeManager, ResourceManager
from muster.airflow.submission import Submission, SubmissionError, submit_to_cluster
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import VARIABLE, ConsumerSettings
from tests.conftest import Eventually
from tests.dags.conftest import LIGHT_CONSUMER, WriteClusters, connection
from tests.support.hand_coordinator import HandCoordinator
from tests.support.only_long import only_long
from tests.support.operator_task import Task, first_event
from tests.support.spark_topics import committed, create_topic, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.airflow]

INCLUDE = Path(__file__).resolve().parents[2] / "include"
NOTE = "back\\slash, 'quotes', \"more\", a=b # and é"
"""Comes through Spark's properties file, which has escapes of its own."""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResourceManager]:
    """A YARN of one node. Its containers are marked, so that none outlives the tests."""
    folder = tmp_path_factory.mktemp("yarn")
    guard.watch_marker(MARKER, str(folder))
    manager = ResourceManager(folder / "manager", guarded=True)
    node = NodeManager(folder / "node", manager, guarded=True)
    try:
        manager.start()
        node.start()
        yield manager
    finally:
        node.stop()
        manager.stop()
        end_all(folder)


@pytest.fixture
def on_yarn(
    yarn: ResourceManager,
    connections: None,
    write_clusters: WriteClusters,
    cluster_name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The cluster's Spark connection leads to YARN, and its job is the real one."""
    monkeypatch.delenv("MUSTER_APPLICATION")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_SPARK",
        connection(conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"}),
    )
    mark = str(yarn.data_dir.parent)
    write_clusters(
        cluster_name,
        consumers={
            "handler": "muster.handlers.parquet.ParquetHandler",
            "handler_options": {"path": str(tmp_path / "data")},
            "metadata": {"note": NOTE},
            "startup_timeout": "180s",
            "graceful_timeout": "30s",
            "spark_conf": {
                "spark.ui.enabled": False,
                "spark.driver.memory": "512m",
                "spark.executor.memory": "512m",
                "spark.executor.instances": 1,
                # Where the jars are on every node, so that nothing has to be copied there.
                "spark.yarn.jars": f"local:{_spark_home()}/jars/*",
                "spark.pyspark.python": sys.executable,
                "spark.yarn.appMasterEnv.PYTHONPATH": str(INCLUDE),
                "spark.executorEnv.PYTHONPATH": str(INCLUDE),
                f"spark.yarn.appMasterEnv.{MARKER}": mark,
                f"spark.executorEnv.{MARKER}": mark,
                # A container gets none of the environment.
                "spark.driver.extraJavaOptions": os.environ["JDK_JAVA_OPTIONS"],
                "spark.executor.extraJavaOptions": os.environ["JDK_JAVA_OPTIONS"],
            },
        },
    )


def _spark_home() -> Path:
    return (
        Path(sys.executable).parents[1]
        / "lib"
        / f"python3.{sys.version_info.minor}"
        / "site-packages/pyspark"
    )


@only_long
@pytest.mark.usefixtures("on_yarn")
def test_a_consumer_runs_on_yarn_reads_its_partitions_and_stops_in_order(
    yarn: ResourceManager,
    coordinator: HandCoordinator,
    discovery: ConsulCluster,
    kafka: KafkaSettings,
    cluster_name: str,
    eventually: Eventually,
    capfd: pytest.CaptureFixture[str],
) -> None:
    task = Task(cluster_name, discovery)
    topic = create_topic(kafka, 2)
    produce(kafka, topic, {0: numbered("a", 100), 1: numbered("b", 50)})
    coordinator.assign(topic, dict.fromkeys((0, 1), task.consumer))

    trigger = task.execute()  # it is live, and the task is deferred, long before the job's end

    name = f"muster {cluster_name} {task.consumer}"
    assert yarn.applications()[name] == "RUNNING"
    assert task.submission.process is None  # there is no process on this machine to watch
    registration = discovery.catalog.members().registered[task.consumer]

    def both_are_read() -> bool:
        url = f"http://{registration.address}:{registration.port}/status"
        on_topic = httpx.get(url, timeout=5, trust_env=False).json()["topics"].get(topic, {})
        return on_topic.get("running") == [0, 1]

    eventually(both_are_read, 60)
    eventually(lambda: committed(kafka, f"{cluster_name}-group", topic, (0, 1)) == {0: 100, 1: 50}, 60)
    assert registration.meta["note"] == NOTE
    assert NOTE not in capfd.readouterr().out  # the settings hold secrets, and are on no command line

    discovery.jobs.request_stop(task.consumer, task.submission.incarnation, by="ann", why="enough")
    event = asyncio.run(first_event(trigger))

    assert event["stopped_by"] == {"who": "ann", "why": "enough"}
    assert not task.registered()
    eventually(lambda: yarn.applications()[name] == "FINISHED/SUCCEEDED", 60)


TOKEN = str(uuid.uuid4())
RECORDER = """#!/bin/sh
# Stands for spark-submit where there is no Kubernetes: keeps what it was given.
echo "$@" > "$RECORD/arguments"
env > "$RECORD/environment"
while [ $# -gt 0 ]; do
  if [ "$1" = --properties-file ]; then cp -p "$2" "$RECORD/properties"; echo "$2" > "$RECORD/name"; fi
  shift
done
echo "23/01/01 INFO LoggingPodStatusWatcherImpl: State changed, new state:"
echo "	 pod name: muster-c1-0f1e2d3c-driver"
"""


def _submit(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consul: ConsulSettings, **more: Any
) -> Submission:
    monkeypatch.setenv(
        "AIRFLOW_CONN_ELSEWHERE", connection(conn_type="spark", host=host, extra={"deploy-mode": "cluster"})
    )
    binary = tmp_path / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(RECORDER)
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path))
    settings = ConsumerSettings(
        cluster="c",
        consumer="c-1",
        incarnation="i",
        consul_service="s",
        zookeeper=ZooKeeperSettings(hosts="z:2181"),
        consul=consul.model_copy(update={"token": SecretStr(TOKEN)}),
        kafka=KafkaSettings(config={"bootstrap.servers": "k:9092"}),
        handler="muster.handlers.nothing",
    )
    hook = SparkSubmitHook(
        conn_id="elsewhere", name="muster c c-1", conf={"spark.app.colour": "blue"}, **more
    )
    return submit_to_cluster(hook, settings, str(LIGHT_CONSUMER), now=1.0)


def test_job_is_submitted_to_kubernetes_without_waiting_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consul: ConsulSettings
) -> None:
    # The hook wants Airflow's Kubernetes provider, which takes part only when a job is watched to its end.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    note = _submit("k8s://https://cluster.example", tmp_path, monkeypatch, consul)

    arguments = (tmp_path / "arguments").read_text()
    properties = dict(line.split("=", 1) for line in (tmp_path / "properties").read_text().splitlines())
    assert "--master k8s://https://cluster.example" in arguments
    assert "--deploy-mode cluster" in arguments
    assert properties["spark.kubernetes.submission.waitAppCompletion"] == "false"
    assert properties["spark.app.colour"] == "blue"
    monkeypatch.setenv(VARIABLE, properties[f"spark.kubernetes.driverEnv.{VARIABLE}"])
    assert ConsumerSettings.from_environment().consul.token == SecretStr(TOKEN)
    assert TOKEN not in arguments
    assert (tmp_path / "properties").stat().st_mode & 0o077 == 0
    assert not Path((tmp_path / "name").read_text().strip()).exists()
    assert note.application == "muster-c1-0f1e2d3c-driver"
    assert note.log_hint == "kubectl logs muster-c1-0f1e2d3c-driver"


@pytest.mark.parametrize(
    ("host", "prefix"),
    [("yarn", "spark.yarn.appMasterEnv."), ("k8s://https://cluster.example", "spark.kubernetes.driverEnv.")],
)
def test_environment_variables_of_the_operator_reach_the_driver_and_leave_spark_submit_its_own(
    host: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consul: ConsulSettings
) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    variables = {"HADOOP_CONF_DIR": "/etc/hadoop\\a", "MOTD": "two\nlines"}
    _submit(host, tmp_path, monkeypatch, consul, env_vars=variables)

    properties = (tmp_path / "properties").read_text().splitlines()
    assert f"{prefix}HADOOP_CONF_DIR=/etc/hadoop\\\\a" in properties
    assert f"{prefix}MOTD=two\\nlines" in properties
    assert any(line.startswith(f"{prefix}{VARIABLE}=") for line in properties)
    environment = (tmp_path / "environment").read_text()
    path = next(line for line in environment.splitlines() if line.startswith("PATH="))
    assert path.startswith(f"PATH={tmp_path / 'bin'}{os.pathsep}")
    assert path.endswith(str(Path(sys.executable).parent))
    assert ("HADOOP_CONF_DIR=/etc/hadoop\\a" in environment) is (host == "yarn")


def test_a_master_that_takes_no_python_driver_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consul: ConsulSettings
) -> None:
    with pytest.raises(SubmissionError, match=r"spark://m:7077 takes no Python drivers .* set 'deploy-mode'"):
        _submit("spark://m:7077", tmp_path, monkeypatch, consul)


def test_missing_kubernetes_provider_is_named(
    write_clusters: WriteClusters,
    light_connections: None,
    cluster_name: str,
    discovery: ConsulCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_clusters(cluster_name)
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_SPARK",
        connection(conn_type="spark", host="k8s://https://cluster.example", extra={"deploy-mode": "cluster"}),
    )
    task = Task(cluster_name, discovery)

    with pytest.raises(AirflowFailException, match="install apache-airflow-providers-cncf-kubernetes"):
        task.operator.execute(task.context)

    assert task.discovery.jobs.submission(task.consumer) is None
