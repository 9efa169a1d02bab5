"""A consumer whose tasks run in executors on two hosts of a real Spark cluster: they are lost, run twice, and need no
Python.

The handler writes again what is delivered again, so its files show each record that came twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from devstack.leftovers import MARKER
from devstack.spark_standalone import SparkWorker
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ROOT, ConsumerJob, Servers
from tests.spark.job_topic import PARTITIONS, Topic
from tests.support.hand_coordinator import HandCoordinator, coordinating
from tests.support.only_long import only_long
from tests.support.spark_cluster import SparkCluster, standing
from tests.support.spark_topics import delete_before

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), only_long]

COUNT = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two hosts, because Spark runs no second copy of a task on the host of the first."""
    with standing(tmp_path_factory.mktemp("spark"), ("127.0.0.1", "127.0.0.2")) as made:
        yield made


@pytest.fixture
def coordinator(zookeeper: ZooKeeperSettings, kafka: KafkaSettings) -> Iterator[HandCoordinator]:
    name = f"job-{uuid.uuid4().hex[:8]}"
    with coordinating(zookeeper, kafka, name, name) as made:
        yield made


@pytest.fixture
def topic(kafka: KafkaSettings, coordinator: HandCoordinator) -> Topic:
    return Topic(kafka, coordinator.group)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    return tmp_path / "trap"


@pytest.fixture
def make_job(
    cluster: SparkCluster,
    coordinator: HandCoordinator,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    trap: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., ConsumerJob]]:
    """Start a job with an executor on each host, whose first attempts of `tasks` wait when they are asked to.

    Without any the handler writes Parquet, and the executors are given no code in Python.
    """
    monkeypatch.setenv(MARKER, str(cluster.folder))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    stack = ExitStack()

    def make(*tasks: int, **conf: str) -> ConsumerJob:
        waiting: dict[str, Any] = {}
        if tasks:
            handler = "failing_handlers.TasksWaitWhenAsked"
            waiting = {"handler": handler, "options": {"trap": str(trap), "tasks": tasks}}
            conf["spark.executorEnv.PYTHONPATH"] = f"{ROOT / 'include'}:{Path(__file__).parent}"
        job = ConsumerJob(
            Servers(zookeeper, consul, kafka),
            coordinator.cluster,
            "one",
            tmp_path,
            **waiting,
            service=coordinator.cluster,
            master=cluster.master.url,
            conf={
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.cores.max": str(len(cluster.workers)),
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                **conf,
            },
        )
        return stack.enter_context(job)

    with stack:
        yield make


def executor(worker: SparkWorker) -> psutil.Process | None:
    """The process of the executor that runs on `worker`."""
    assert worker.process is not None
    for process in worker.process.members():
        if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
            return process
    return None


def attempts(trap: Path) -> set[str]:
    """`[TASK].[ATTEMPT]` of those that have read something."""
    return {path.name.removeprefix("trap.") for path in trap.parent.glob("trap.*.*")}


def test_executor_that_is_killed_in_the_middle_of_a_batch_costs_no_record_and_doubles_none(
    cluster: SparkCluster,
    coordinator: HandCoordinator,
    topic: Topic,
    trap: Path,
    make_job: Callable[..., ConsumerJob],
    eventually: Eventually,
) -> None:
    job = make_job(0, 1)
    eventually(job.registered, 120)
    topic.produce(COUNT)
    coordinator.assign(topic.name, dict.fromkeys(range(PARTITIONS), job.consumer))
    eventually(lambda: topic.committed() == topic.written, 90)

    for path in trap.parent.glob("trap.*"):
        path.unlink()
    trap.touch()
    topic.produce(COUNT)
    eventually(lambda: attempts(trap) == {"0.0", "1.0"}, 60, "both tasks are in the middle of their ranges")
    worker = cluster.workers[0]
    killed = executor(worker)
    assert killed is not None
    killed.kill()
    trap.unlink()
    eventually(lambda: topic.committed() == topic.written, 90)
    assert attempts(trap) & {"0.1", "1.1"}, "the task of the executor that was lost ran again"
    assert job.offsets_read() == topic.expected(*range(PARTITIONS))
    assert job.metric("muster_consumer_query_failures_total") == 0
    assert job.metric("muster_consumer_lost_records_total") == 0

    replaced = eventually(lambda: executor(worker), 60, "Spark starts another executor")
    assert replaced.pid != killed.pid
    topic.produce(COUNT)
    eventually(lambda: topic.committed() == topic.written, 60)
    assert job.offsets_read() == topic.expected(*range(PARTITIONS))


def test_second_copy_of_a_slow_task_reads_the_same_and_counts_no_loss_twice(
    coordinator: HandCoordinator,
    topic: Topic,
    trap: Path,
    kafka: KafkaSettings,
    make_job: Callable[..., ConsumerJob],
    eventually: Eventually,
) -> None:
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    job = make_job(0, **speculation)
    eventually(job.registered, 120)
    topic.produce(COUNT)
    hold, held = Path(f"{trap}.hold"), Path(f"{trap}.held")
    hold.touch()
    trap.touch()
    coordinator.assign(topic.name, dict.fromkeys(range(PARTITIONS), job.consumer))
    eventually(held.exists, 60, "the batch is planned")
    delete_before(kafka, topic.name, 0, COUNT // 2)
    hold.unlink()
    eventually(lambda: "0.1" in attempts(trap), 60, "a second copy of the task runs")
    eventually(
        lambda: topic.committed() == topic.written, 60, "the copy's result counts, the other still waits"
    )
    trap.unlink()
    topic.produce(COUNT)
    eventually(lambda: topic.committed() == topic.written, 60)
    deleted = {(topic.name, 0, offset) for offset in range(COUNT // 2)}
    expected = topic.expected(*range(PARTITIONS))
    assert job.offsets_read() == {record: n for record, n in expected.items() if record not in deleted}
    assert job.metric("muster_consumer_query_failures_total") == 0
    assert job.metric("muster_consumer_lost_records_total") == COUNT // 2


def test_executors_read_without_any_python(
    cluster: SparkCluster,
    coordinator: HandCoordinator,
    topic: Topic,
    make_job: Callable[..., ConsumerJob],
    eventually: Eventually,
) -> None:
    job = make_job()
    eventually(job.registered, 120)
    topic.produce(COUNT)
    coordinator.assign(topic.name, dict.fromkeys(range(PARTITIONS), job.consumer))
    eventually(lambda: topic.committed() == topic.written, 90)
    assert job.offsets_read() == topic.expected(*range(PARTITIONS))
    for worker in cluster.workers:
        assert executor(worker) is not None
        assert worker.process is not None
        assert not [one for one in worker.process.members() if "python" in one.name()]
