"""Consumer jobs with state by key whose tasks run in executors on two hosts of a real Spark cluster."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from devstack.leftovers import MARKER
from devstack.ports import free_port
from devstack.spark_standalone import SparkWorker
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ROOT, ConsumerJob, Servers
from tests.support.hand_coordinator import HandCoordinator, coordinating
from tests.support.key_counts import KeyCounts
from tests.support.only_long import only_long
from tests.support.spark_cluster import SparkCluster, standing
from tests.support.state_query import begin_at_the_first_record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = range(4)
KEYS = 500
PASSWORD = f"pass-{uuid.uuid4().hex}"
"""A secret of the Kafka connection. The brokers do not ask for it."""
_COMPUTES = re.compile(r"partition (\d+): executor (\d+) on \S+ computes its state, after (\d+) offsets")


class Stand(KeyCounts):
    """A Spark cluster and one consumer job on it, which counts the records of each key."""

    def __init__(
        self, cluster: SparkCluster, servers: Servers, coordinator: HandCoordinator, folder: Path
    ) -> None:
        self.cluster, self.servers, self.coordinator, self.folder = cluster, servers, coordinator, folder
        super().__init__(servers.kafka, len(PARTITIONS), KEYS)
        self.page = f"http://127.0.0.1:{free_port()}"
        self.events = folder / "events"
        self.events.mkdir()
        group = GroupOffsets(servers.kafka, coordinator.group)
        begin_at_the_first_record(group, self.topic, len(PARTITIONS), coordinator.cluster)
        group.close()

    def job(self, most: int) -> ConsumerJob:
        """A job whose batches have at most so many records."""
        kafka = {
            **self.servers.kafka.config,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": PASSWORD,
        }
        return ConsumerJob(
            Servers(self.servers.zookeeper, self.servers.consul, KafkaSettings(config=kafka)),
            self.coordinator.cluster,
            "one",
            self.folder,
            handler="state_counting.Counting",
            options={"topic": self.counts},
            service=self.coordinator.cluster,
            master=self.cluster.master.url,
            conf={
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.cores.max": "2",
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                "spark.locality.wait": "20s",
                "spark.executorEnv.PYTHONPATH": f"{ROOT / 'include'}:{Path(__file__).parent}",
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": str(self.events),
                "spark.ui.enabled": "true",
                "spark.ui.port": self.page.rpartition(":")[2],
            },
            more={
                "state": [".*"],
                "state_folder": str(self.folder / "state"),
                "max_records_per_batch": most,
            },
        )

    def check(self) -> None:
        """Each record has been counted once."""
        assert self.counted()
        assert all(counts == sorted(set(counts)) for counts in self.written().values())


@pytest.fixture
def stand(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stand]:
    name = f"executors-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    with ExitStack() as stack:
        coordinator = stack.enter_context(coordinating(zookeeper, kafka, name, name))
        cluster = stack.enter_context(standing(tmp_path / "spark", ("127.0.0.1", "127.0.0.2")))
        monkeypatch.setenv(MARKER, str(cluster.folder))
        yield Stand(cluster, Servers(zookeeper, consul, kafka), coordinator, tmp_path)


def places(job: ConsumerJob) -> list[tuple[int, int, int]]:
    """Partition, executor, and offsets that were read, each time that another executor computed a partition or its
    store was restored."""
    return [(int(p), int(e), int(n)) for p, e, n in _COMPUTES.findall(job.log.read_text(errors="replace"))]


def executor_of(worker: SparkWorker) -> str:
    (found,) = worker.executors()
    return found


def executors(page: str) -> set[str]:
    """The executors that the driver knows."""
    with httpx.Client(base_url=page, timeout=20, trust_env=False) as client:
        (application,) = client.get("/api/v1/applications").json()
        found = client.get(f"/api/v1/applications/{application['id']}/executors").json()
    return {one["id"] for one in found} - {"driver"}


def secrets_in(folder: Path) -> list[Path]:
    """The files that hold the password: what Spark wrote, also for itself."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (Path(place) / name for name in names):
            if path.is_file() and not path.is_symlink() and PASSWORD.encode() in path.read_bytes():
                found.append(path)
    return found


def shown(page: str) -> str:
    """What Spark's pages and its API say."""
    with httpx.Client(base_url=page, timeout=20, trust_env=False, follow_redirects=True) as client:
        (application,) = client.get("/api/v1/applications").json()
        api = f"/api/v1/applications/{application['id']}"
        paths = [
            *("/environment/", "/jobs/", "/stages/", "/executors/", "/SQL/", "/StreamingQuery/"),
            *(
                f"{api}/{kind}"
                for kind in ("environment", "jobs", "stages", "sql?details=true", "allexecutors")
            ),
        ]
        answers = [client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    assert "MapInArrow" in answers[9].text
    return "".join(answer.text for answer in answers)


def begun(stand: Stand, job: ConsumerJob, count: int, eventually: Eventually) -> None:
    """Have the job count so many records on both executors."""
    eventually(job.registered, 240, "registered")
    eventually(lambda: executors(stand.page) == {"0", "1"}, 120, "both executors are there")
    stand.send(count)
    stand.coordinator.assign(stand.topic, dict.fromkeys(PARTITIONS, job.consumer))
    eventually(stand.counted, 240, "counted")


@only_long
def test_state_on_executors_stays_where_its_store_is(stand: Stand, eventually: Eventually) -> None:
    with stand.job(most=1_000) as job:
        begun(stand, job, 2_000, eventually)
        first = places(job)
        assert {partition for partition, _, _ in first} == {*PARTITIONS}
        assert {executor for _, executor, _ in first} == {0, 1}, "both of them have shards"
        assert len(first) == len(PARTITIONS), "each began once"
        for _ in range(3):
            stand.send(1_000)
            eventually(stand.counted, 120, "counted")
        assert places(job) == first, "the next batches run where the stores are, and restore none"
        stand.check()
        stores = {path.parent for path in (stand.folder / "local").rglob("muster-state/*/*/data.mdb")}
        assert len(stores) == len(PARTITIONS)
        assert PASSWORD not in shown(stand.page)
        assert secrets_in(stand.folder) == []
        assert list(stand.events.iterdir()) != []


@only_long
def test_state_survives_executors_and_workers_that_are_killed(stand: Stand, eventually: Eventually) -> None:
    with stand.job(most=500) as job:
        begun(stand, job, 3_000, eventually)
        killed = stand.cluster.workers[0]
        gone = executor_of(killed)
        stand.send(20_000)
        before = len(places(job))
        eventually(lambda: sum(map(max, stand.written().values())) > 6_000, 120, "in the middle")
        assert killed.process is not None
        for process in killed.process.members():
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                process.kill()
        eventually(stand.counted, 240, "counted")
        restored = places(job)[before:]
        print(f"restored after an executor was killed: {restored}")
        assert restored, "its shards are computed elsewhere"
        assert all(str(executor) != gone for _, executor, _ in restored)
        assert all(offsets > 100 for _, _, offsets in restored), "from the changelog"
        stand.check()
        eventually(lambda: len(killed.executors()) == 1, 60, "another executor is there")

        stand.send(20_000)
        before, seen = len(places(job)), sum(map(max, stand.written().values()))
        eventually(lambda: sum(map(max, stand.written().values())) > seen + 3_000, 120, "in the middle")
        stand.cluster.workers[1].process.kill()  # type: ignore[union-attr]  # it runs
        eventually(stand.counted, 240, "counted")
        print(f"restored after a worker was killed: {places(job)[before:]}")
        stand.check()
        assert job.metric("muster_consumer_query_failures_total") == 0
        assert secrets_in(stand.folder) == []
