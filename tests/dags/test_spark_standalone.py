"""One consumer that is larger than a machine: its executors run on both workers of a real Spark standalone cluster.

The driver stays with Airflow, which submits it through its Spark connection. The workers have no PYTHONPATH: `muster`
and the handler come to the executors in a zip file.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import psutil
import pyarrow.dataset
import pytest

from devstack.leftovers import MARKER
from devstack.spark_standalone import SparkWorker
from muster.edges.consul import ConsulCluster
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.dags.conftest import WriteClusters, connection
from tests.support.hand_coordinator import HandCoordinator
from tests.support.only_long import only_long
from tests.support.operator_task import Task, first_event
from tests.support.spark_cluster import SparkCluster, standing
from tests.support.spark_topics import committed, create_topic, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.airflow, only_long]

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PARTITIONS = range(4)
ROUND = 300
"""Records a partition and round: enough that a batch is two tasks, one for each worker."""
ROUNDS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers with one core each."""
    with standing(tmp_path_factory.mktemp("spark-standalone")) as made:
        yield made


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """`muster` and a handler, as they are sent to executors."""
    archive = tmp_path / "shipped.zip"
    with ZipFile(archive, "w") as file:
        for source in sorted((INCLUDE / "muster").rglob("*.py")):
            file.write(source, source.relative_to(INCLUDE))
        file.write(Path(__file__).with_name("shipped_handler.py"), "shipped_handler.py")
    return archive


@pytest.fixture
def on_cluster(
    cluster: SparkCluster,
    connections: None,
    write_clusters: WriteClusters,
    cluster_name: str,
    shipped: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The Spark connection leads to the standalone cluster, and the job is the real one."""
    monkeypatch.delenv("MUSTER_APPLICATION")
    monkeypatch.setenv(MARKER, str(cluster.folder))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_SPARK",
        connection(conn_type="spark", host="spark://127.0.0.1", port=cluster.master.port),
    )
    write_clusters(
        cluster_name,
        consumers={
            "handler": "shipped_handler.TellingHandler",
            "handler_options": {"path": str(tmp_path / "data"), "told": str(tmp_path / "told")},
            "startup_timeout": "120s",
            "graceful_timeout": "30s",
            "spark_conf": {
                "spark.ui.enabled": False,
                "spark.driver.memory": "512m",
                "spark.executor.memory": "512m",
                "spark.executor.cores": 1,
                "spark.cores.max": len(cluster.workers),
                "spark.scheduler.minRegisteredResourcesRatio": 1.0,
                "spark.submit.pyFiles": str(shipped),
            },
        },
    )


def kafka_connections(worker: SparkWorker, port: int) -> set[tuple[int, int]]:
    """Process and own port of each connection to Kafka that the processes of `worker`'s executors have."""
    assert worker.process is not None
    found: set[tuple[int, int]] = set()
    for process in worker.process.members():
        try:
            found |= {
                (process.pid, one.laddr.port)
                for one in process.net_connections(kind="tcp")
                if one.raddr and one.raddr.port == port and one.status == psutil.CONN_ESTABLISHED
            }
        except psutil.NoSuchProcess:
            continue
    return found


def held(discovery: ConsulCluster, consumer: str, topic: str) -> dict[str, Any]:
    """What the consumer's status page says of `topic`, without what is empty."""
    there = discovery.catalog.members().registered[consumer]
    url = f"http://{there.address}:{there.port}/status"
    on_topic = httpx.get(url, timeout=5, trust_env=False).json()["topics"].get(topic, {})
    return {key: on_topic[key] for key in ("running", "starting", "closing") if on_topic.get(key)}


@pytest.mark.usefixtures("on_cluster")
def test_executors_on_two_workers_read_a_topic_keep_their_consumers_and_hand_over_in_order(
    cluster: SparkCluster,
    coordinator: HandCoordinator,
    discovery: ConsulCluster,
    kafka: KafkaSettings,
    cluster_name: str,
    shipped: Path,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    task = Task(cluster_name, discovery)
    group, name = f"{cluster_name}-group", f"muster {task.consumer}"
    broker = int(kafka.bootstrap_servers.rpartition(":")[2])
    topic = create_topic(kafka, len(PARTITIONS))
    written = 0

    def one_round() -> None:
        nonlocal written
        produce(kafka, topic, {p: numbered(f"{p}-", ROUND, written) for p in PARTITIONS})
        written += ROUND

    one_round()
    coordinator.assign(topic, dict.fromkeys(PARTITIONS, task.consumer))
    trigger = task.execute()  # it is live, and the task is deferred

    def all_committed() -> bool:
        return committed(kafka, group, topic, PARTITIONS) == dict.fromkeys(PARTITIONS, written)

    eventually(all_committed, 60)
    assert cluster.master.applications()[name] == "RUNNING"
    assert [len(worker.executors()) for worker in cluster.workers] == [1, 1]
    # Executors are known from the first batch on, so a task may change its executor once; then it prefers it.
    one_round()
    eventually(all_committed, 60)

    # Each worker's executor reads in one process, and batch after batch over the same connections to Kafka. One that
    # is not used any more may end meanwhile.
    first = [kafka_connections(worker, broker) for worker in cluster.workers]
    assert [len({pid for pid, _ in of_worker}) for of_worker in first] == [1, 1], first
    for _ in range(ROUNDS):
        one_round()
        eventually(all_committed, 60)
    for before, worker in zip(first, cluster.workers, strict=True):
        now = kafka_connections(worker, broker)
        assert now, "each executor reads"
        assert now <= before, "no new connection"

    # Two partitions go to somebody else: all is committed when they are reported closed, and they are left alone.
    kept, given = [0, 1], [2, 3]
    coordinator.assign(topic, dict.fromkeys(kept, task.consumer) | dict.fromkeys(given, "somebody-else"))
    eventually(lambda: held(discovery, task.consumer, topic) == {"running": kept}, 30)
    at_hand_over = committed(kafka, group, topic, PARTITIONS)
    assert at_hand_over == dict.fromkeys(PARTITIONS, written)
    one_round()
    eventually(
        lambda: committed(kafka, group, topic, PARTITIONS) == at_hand_over | dict.fromkeys(kept, written), 60
    )

    # The rest goes when it is stopped, and the Spark cluster has its cores back.
    discovery.jobs.request_stop(task.consumer, task.submission.incarnation, by="ann", why="enough")
    event = asyncio.run(first_event(trigger))
    assert event["stopped_by"] == {"who": "ann", "why": "enough"}
    assert not task.registered()
    eventually(lambda: cluster.master.applications()[name] == "FINISHED", 30)
    eventually(lambda: not any(worker.executors() for worker in cluster.workers), 30)

    expected = {(p, n): 1 for p in PARTITIONS for n in range(written if p in kept else at_hand_over[p])}
    table = pyarrow.dataset.dataset(tmp_path / "data", format="parquet").to_table(["partition", "offset"])
    read = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert Counter(read) == expected
    assert f"/{shipped.name}/muster/" in (tmp_path / "told").read_text()
