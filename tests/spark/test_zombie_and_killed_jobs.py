"""Whole consumer jobs that are frozen and replaced, or killed: no offset goes back, every record stands once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from consumer_job import ConsumerJob, Coordinator, Servers

from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import make_client, start_client, stop_client
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.test_consumer_job import Topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

HANDLER = "gated_handlers.GatedSink"


@pytest.fixture(scope="module")
def servers(zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings) -> Servers:
    return Servers(zookeeper, consul, kafka)


@pytest.fixture
def coordinator(servers: Servers) -> Iterator[Coordinator]:
    client = make_client(servers.zookeeper)
    start_client(client, servers.zookeeper)
    name = f"zombie-{uuid.uuid4().hex[:8]}"
    yield Coordinator(client, servers, name, name)
    stop_client(client, 5)


@pytest.fixture
def start(servers: Servers, coordinator: Coordinator, tmp_path: Path) -> Iterator[Callable[..., ConsumerJob]]:
    """Start a job; all write to one place, each waits at a gate of its own."""
    jobs: list[ConsumerJob] = []

    def begin(consumer: str, fencing: bool = True) -> ConsumerJob:
        options = {"gate": str(gate_of(tmp_path, consumer))}
        job = ConsumerJob(servers, coordinator.cluster, consumer, tmp_path, HANDLER, options, fencing)
        jobs.append(job)
        job.start()
        return job

    yield begin
    for job in jobs:
        with suppress(psutil.NoSuchProcess):
            for process in job.tree():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        job.end()


def gate_of(folder: Path, consumer: str) -> Path:
    return folder / f"{consumer}.gate"


def close_gate(gate: Path, point: str) -> Callable[[], bool]:
    """Returns what tells whether a batch waits there."""
    waiting = gate.with_suffix(".waiting")
    waiting.unlink(missing_ok=True)
    gate.write_text(point)
    return waiting.exists


@contextmanager
def never_back(topic: Topic) -> Iterator[list[dict[int, int | None]]]:
    """Read the committed offsets all the time, and fail if one is ever lower than before."""
    seen: list[dict[int, int | None]] = [topic.committed()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            with suppress(KafkaError):
                seen.append(topic.committed())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join(60)
    for number in seen[0]:
        offsets = [found[number] or 0 for found in seen]
        assert offsets == sorted(offsets), f"partition {number} went back"


@pytest.mark.parametrize("fencing", [True, False], ids=["fencing", "epoch guard"])
def test_a_frozen_job_that_was_replaced_takes_no_offset_back(
    start: Callable[..., ConsumerJob],
    kafka: KafkaSettings,
    coordinator: Coordinator,
    eventually: Eventually,
    tmp_path: Path,
    fencing: bool,
) -> None:
    topic = Topic(kafka, coordinator.group)
    zombie, newer = start("zombie", fencing), start("newer", fencing)
    coordinator.assign(topic.name, dict.fromkeys(range(3), "zombie"))
    topic.produce(100)
    eventually(lambda: topic.committed() == dict.fromkeys(range(3), 100), 400, "committed")
    eventually(newer.registered, 400, "the other one is there")
    gate = gate_of(tmp_path, "zombie")
    waits = close_gate(gate, "before")
    topic.produce(50)
    eventually(waits, 180, "in the middle of a batch")

    frozen = zombie.tree()
    for process in frozen:
        process.suspend()
    coordinator.assign(topic.name, {0: "newer", 1: "newer", 2: "zombie"})
    with never_back(topic) as seen:
        topic.produce(50)
        eventually(lambda: topic.committed() == {0: 200, 1: 200, 2: 100}, 240, "taken over")
        gate.unlink()
        for process in frozen:
            process.resume()
        eventually(
            lambda: topic.committed() == dict.fromkeys(range(3), 200), 240, "it goes on with what it has"
        )
        eventually(lambda: zombie.lists(topic.name) == ([2], [], []), 180, "and with nothing else")
        topic.produce(10)
        eventually(lambda: topic.committed() == dict.fromkeys(range(3), 210), 240, "both go on")
        eventually(
            lambda: zombie.status()["errors"] == [], 180, "it has looked at ZooKeeper and Consul again"
        )
        coordinator.assign(topic.name, {1: "newer", 2: "zombie"})
        eventually(lambda: newer.lists(topic.name) == ([1], [], []), 180, "handed back in order")
        coordinator.assign(topic.name, {0: "zombie", 1: "newer", 2: "zombie"})
        topic.produce(10)
        eventually(lambda: topic.committed() == dict.fromkeys(range(3), 220), 240, "and taken up again")
    print(f"committed offsets were read {len(seen)} times")
    if fencing:
        status = zombie.status()
        assert status["refused_commits"] == 2, status
        assert status["topics"][topic.name]["fenced"].keys() == {"0", "1"}
        assert "fenced" in status["topics"][topic.name]["fenced"]["0"]
    else:
        log = zombie.log.read_text()
        assert "not committed any more" in log or "another consumer has committed offset 200" in log, log
    assert newer.status()["refused_commits"] == 0
    assert dict(newer.offsets_read()) == topic.expected(0, 1, 2), "also what the zombie wrote late"


def test_a_job_killed_again_and_again_writes_every_record_once(
    start: Callable[..., ConsumerJob],
    kafka: KafkaSettings,
    coordinator: Coordinator,
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    """Killed with the whole batch in the sink, and with a part of it. Stopped before that, see the frozen job."""
    topic = Topic(kafka, coordinator.group)
    gate = gate_of(tmp_path, "killed")
    coordinator.assign(topic.name, dict.fromkeys(range(3), "killed"))
    with never_back(topic):
        for point in ("after", "middle"):
            job = start("killed")
            topic.produce(100)
            eventually(lambda: topic.committed() == topic.written, 400, "committed")
            waits = close_gate(gate, point)
            topic.produce(70)
            eventually(waits, 180, f"in a batch, {point}")
            for process in job.tree():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            eventually(lambda job=job: job.exit_code() is not None, 180, "dead")  # type: ignore[misc]
            there = sum(job.offsets_read().values())
            committed = sum(offset or 0 for offset in topic.committed().values())
            print(f"killed {point}: {there} rows stand there, {committed} are committed")
            assert there > committed, "the kill hit between the sink and the commit"
            assert point == "after" or there < sum(topic.written.values()), "not all of the batch was there"
            gate.unlink()
            topic.produce(33)  # so the batch that comes again has other bounds
        job = start("killed")
        eventually(lambda: topic.committed() == topic.written, 400, "all is read")
    assert dict(job.offsets_read()) == topic.expected(0, 1, 2)
