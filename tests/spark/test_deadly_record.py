"""A record that kills real Spark jobs: three consumers, a coordinator, and jobs that come back as Airflow's do.

A record that kills a Python worker only is found by one job.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer

from devstack.guard import guard
from devstack.process import ServerProcess
from muster.core.deaths import ALONE, PAUSE
from muster.core.parking import Answer
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.hosts import coordinate
from tests.spark.consumer_job import ROOT, ConsumerJob, Servers
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long

pytestmark = [pytest.mark.spark, only_long]

PARTITIONS, DEADLY = 6, 1
"""The partitions, and the one with the record that kills."""
OTHERS = frozenset(range(PARTITIONS)) - {DEADLY}
KILLS, RECORDS = 5_432, 150_000
"""The offset of that record, and how many its partition has."""
LOOK = 0.2


@pytest.fixture(scope="module")
def servers(zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings) -> Servers:
    return Servers(zookeeper, consul, kafka)


@contextmanager
def coordinated(servers: Servers, group: GroupOffsets, topic: str, folder: Path) -> Iterator[str]:
    """A process coordinates a cluster with this topic meanwhile; gives the name of the cluster and its service."""
    name = group.group_id
    settings = {
        "consul_service": name,
        "group_id": name,
        "topics": [topic],
        "long_poll_timeout": "5s",
        "consumers": {"handler": "started.by.the.test"},
    }
    file, log = folder / "clusters.yaml", folder / "coordinator.log"
    file.write_text(json.dumps({"clusters": {name: settings}}), encoding="utf-8")
    connections = {
        kind: getattr(servers, kind).model_dump(mode="json", exclude_defaults=True)
        for kind in ("zookeeper", "consul", "kafka")
    }
    environment = {
        **os.environ,
        coordinate.VARIABLE: json.dumps(connections),
        "MUSTER_CLUSTERS": str(file),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
    }
    command = [sys.executable, "-m", coordinate.__name__, name]
    process = ServerProcess.spawn(command, log, folder, environment, guarded=True)
    try:
        yield name
    finally:
        process.kill()
        print(log.read_text(encoding="utf-8")[-2000:])


class Watch:
    """Starts each job again that has died, and notes when one died, when it was back, how many were down at once, and
    for how long no offset of a partition moved that has records. More records arrive in all but one partition."""

    def __init__(
        self, jobs: list[ConsumerJob], group: GroupOffsets, topic: str, kafka: KafkaSettings
    ) -> None:
        self.jobs = jobs
        self.deaths: list[float] = []
        self.took: list[float] = []
        """Seconds until each was back."""
        self.down: dict[str, float] = {}
        self.most_down: dict[int, int] = {}
        """How many were down at once at most, by the number of deaths."""
        self.stood = dict.fromkeys(range(PARTITIONS), 0.0)
        self._moved: dict[int, tuple[int, float]] = {}
        self.topic, self._group = topic, group
        self._producer = Producer(dict(kafka.config))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)

    def committed(self) -> dict[int, int]:
        found = self._group.committed([(self.topic, p) for p in range(PARTITIONS)])
        return {p: offset or 0 for (_, p), offset in found.items()}

    def begin(self) -> None:
        """Forget what was measured."""
        self.deaths, self.took, self.most_down = [], [], {}
        self.stood = dict.fromkeys(range(PARTITIONS), 0.0)

    @property
    def others_stood(self) -> float:
        return max(self.stood[p] for p in OTHERS)

    @property
    def notes(self) -> Path:
        return Path(self.jobs[0].options["notes"])

    def apart(self) -> list[str]:
        """What the status pages say of partitions that are read apart."""
        return [error for job in self.jobs for error in job.status()["errors"] if "apart" in error]

    def produce(self, partition: int, values: Iterable[bytes]) -> None:
        for value in values:
            self._producer.produce(self.topic, value, partition=partition)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stopped.wait(LOOK):
            for job in self.jobs:
                self._look(job)
            self.most_down[len(self.deaths)] = max(self.most_down.get(len(self.deaths), 0), len(self.down))
            for p in OTHERS:
                self.produce(p, [b"good"] * 4)
            now = time.monotonic()
            for p, offset in self.committed().items():
                before, at = self._moved.get(p, (-1, now))
                self.stood[p] = max(self.stood[p], now - at)
                if offset > before:
                    self._moved[p] = offset, now

    def _look(self, job: ConsumerJob) -> None:
        assert job.process is not None
        if job.exit_code() is not None:
            self.deaths.append(time.monotonic())
            self.down[job.consumer] = self.deaths[-1]
            guard.forget(job.process.pid)
            job.incarnation = str(uuid.uuid4())
            job.start()
        elif job.consumer in self.down and job.registered():
            self.took.append(time.monotonic() - self.down.pop(job.consumer))


def failing(jobs: list[ConsumerJob], topic: str) -> dict[str, object]:
    """What the status pages say of the deadly partition's record, once a person is asked about it."""
    for job in jobs:
        try:
            found = job.topic(topic).get("failing", {}).get(str(DEADLY))
        except (httpx.HTTPError, AssertionError):
            continue  # it is down
        if found is not None and found["parked"]:
            return dict(found)
    return {}


@pytest.fixture(scope="module")
def world(
    servers: Servers, kafka: KafkaSettings, tmp_path_factory: pytest.TempPathFactory, eventually: Eventually
) -> Iterator[Watch]:
    """Three jobs of a cluster that is coordinated, and that are back by themselves."""
    folder = tmp_path_factory.mktemp("world")
    group, topic = GroupOffsets(kafka, f"deadly-{uuid.uuid4().hex[:8]}"), make_topic(kafka, PARTITIONS)
    with ExitStack() as stack:
        name = stack.enter_context(coordinated(servers, group, topic, folder))
        jobs = []
        for consumer in ("a", "b", "c"):
            (folder / consumer).mkdir()
            job = ConsumerJob(
                *(servers, name, consumer, folder / consumer),
                handler="failing_handlers.KillsItsProcess",
                options={"notes": str(folder / "notes")},
                service=name,
            )
            jobs.append(stack.enter_context(job))
        for job in jobs:
            eventually(job.registered, 300, "registered")
        watch = stack.enter_context(Watch(jobs, group, topic, kafka))
        watch.produce(DEADLY, [b"good"] * 1000)
        eventually(lambda: all(watch.committed().values()), 300, "all flow")
        yield watch


def test_kill_for_another_reason_costs_nothing(world: Watch, eventually: Eventually) -> None:
    (victim,) = [job for job in world.jobs if DEADLY in job.lists(world.topic)[0]]
    world.begin()
    world.produce(DEADLY, [b"good"] * 1000)
    assert victim.process is not None
    os.killpg(victim.process.pid, signal.SIGKILL)
    eventually(lambda: world.committed()[DEADLY] == 2000, 300, "its partition is read on")
    eventually(lambda: world.took, 300, "it is back")
    print(f"the others stood still for {world.others_stood:.1f} s, it was back after {world.took[0]:.1f} s")
    assert world.others_stood < PAUSE
    assert world.apart() == []


@pytest.mark.timeout(3000)
def test_record_that_kills_jobs_is_found_while_others_flow(world: Watch, eventually: Eventually) -> None:
    world.begin()
    world.produce(DEADLY, (b"kills" if at == KILLS else b"good" for at in range(2000, RECORDS)))
    found = eventually(lambda: failing(world.jobs, world.topic), 1800, "a person is asked")
    gaps = [after - at for at, after in pairwise(world.deaths)]
    print(
        f"deaths {len(world.deaths)}, s between them {[round(gap) for gap in gaps]}, back after "
        f"{[round(took) for took in world.took]}, down at once by deaths {world.most_down}, the others stood still "
        f"for {world.others_stood:.1f} s at most"
    )
    assert (found["offset"], found["attempts"]) == (KILLS, 2)
    assert f"the process died {ALONE} times at it" in str(found["error"])
    assert len(world.deaths) == ALONE
    assert min(gaps[1:]) >= PAUSE
    if max(world.took) < PAUSE:
        assert max(down for deaths, down in world.most_down.items() if deaths > 2) == 1
    assert max(world.most_down.values()) <= 2, "the first two deaths are not waited for"
    assert world.others_stood < PAUSE
    assert world.committed()[DEADLY] == KILLS
    tried = [json.loads(line) for line in world.notes.read_text(encoding="utf-8").splitlines()]
    sizes = [end - begin for p, begin, end in tried if p == DEADLY and begin <= KILLS < end]
    assert sizes[2:] == [1000, 10, 1, 1]

    answers = world.jobs[0].discovery.answers
    answers.give((world.topic, DEADLY), KILLS, Answer.SKIP, "ann", "a test", time.time())
    eventually(lambda: world.committed()[DEADLY] == RECORDS, 300, "it is skipped, and the rest is read")
    eventually(lambda: not world.down, 300, "all are back")
    assert len(world.deaths) == ALONE
    assert world.apart() == []


@pytest.mark.timeout(900)
def test_record_that_kills_workers_is_found_by_one_job(
    servers: Servers, tmp_path: Path, eventually: Eventually
) -> None:
    kafka = servers.kafka
    group, topic = GroupOffsets(kafka, f"deadly-{uuid.uuid4().hex[:8]}"), make_topic(kafka, PARTITIONS)
    with ExitStack() as stack:
        name = stack.enter_context(coordinated(servers, group, topic, tmp_path))
        job = stack.enter_context(
            ConsumerJob(
                *(servers, name, "a", tmp_path),
                handler="failing_handlers.KillsItsWorker",
                service=name,
            )
        )
        producer = Producer(dict(kafka.config))
        for at in range(100):
            for p in range(PARTITIONS):
                value = b"kills" if (p, at) == (DEADLY, 70) else b"good"
                producer.produce(topic, value, partition=p)
        assert producer.flush(60) == 0
        found = eventually(lambda: failing([job], topic), 600, "a person is asked")
        assert (found["offset"], found["attempts"]) == (70, 2)
        assert "Python worker exited unexpectedly" in str(found["error"])
        keys = [(topic, p) for p in range(PARTITIONS)]
        expected = {(topic, p): 70 if p == DEADLY else 100 for p in range(PARTITIONS)}
        eventually(lambda: group.committed(keys) == expected, 60, "the others are read")
        assert job.exit_code() is None
