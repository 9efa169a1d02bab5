"""The consumer job on real ZooKeeper, Consul, Kafka and Spark, with its assignment written by hand."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pyarrow.dataset
import pytest

from devstack.server import Server
from muster.airflow.driver_log import PER_LINE
from muster.consumer.measures import STALLED_AFTER
from muster.consumer.output import LARGEST
from muster.core.model import Seek
from muster.core.starting import Stage
from muster.core.wire import assignment_path
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import TopicHandler
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.spark.job_topic import PARTITIONS, Topic
from tests.support.hand_coordinator import HandCoordinator, coordinating
from tests.support.only_long import only_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ALSO = TopicHandler(
    handler="muster.handlers.parquet.ParquetHandler", handler_options={"path": "${JOB_DATA}-also"}
)


@pytest.fixture(scope="module")
def servers(zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings) -> Servers:
    return Servers(zookeeper, consul, kafka)


@pytest.fixture(scope="module")
def group() -> str:
    return f"job-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def cluster() -> str:
    return f"job-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def coordinator(servers: Servers, cluster: str, group: str) -> Iterator[HandCoordinator]:
    with coordinating(servers.zookeeper, servers.kafka, cluster, group) as made:
        yield made


@pytest.fixture
def topic(kafka: KafkaSettings, group: str, coordinator: HandCoordinator) -> Iterator[Topic]:
    made = Topic(kafka, group)
    yield made
    coordinator.client.delete(assignment_path(coordinator.cluster, made.name), recursive=True)


@pytest.fixture(scope="module")
def make_job(
    servers: Servers, cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., ConsumerJob]]:
    stack = ExitStack()

    def make(consumer: str, folder: Path | None = None, **more: object) -> ConsumerJob:
        job = ConsumerJob(servers, cluster, consumer, folder or tmp_path_factory.mktemp(consumer), **more)  # type: ignore[arg-type]
        return stack.enter_context(job)

    with stack:
        yield make


@pytest.fixture(scope="module")
def job(make_job: Callable[..., ConsumerJob], eventually: Eventually) -> ConsumerJob:
    """One job for the tests that leave it running."""
    made: ConsumerJob = make_job("one")
    began = time.monotonic()
    eventually(made.registered, 120, "registered")
    print(f"registered and passing after {time.monotonic() - began:.1f} s")
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the traps of failing handlers: the file `[CONSUMER]` sets that consumer's."""
    return tmp_path_factory.mktemp("traps")


@pytest.fixture(scope="module")
def others(make_job: Callable[..., ConsumerJob], folder: Path) -> dict[str, ConsumerJob]:
    """Start the jobs of the later tests, all at once: while the log of the first is measured there is time for it."""

    def trapped(name: str, handler: str, **more: object) -> ConsumerJob:
        options = {"trap": str(folder / name)}
        return make_job(name, handler=f"failing_handlers.{handler}", options=options, **more)

    return {
        "killed": make_job("killed"),
        "hangs": trapped("hangs", "HangsWhenAsked", graceful_timeout=2),
        "twice": make_job("twice"),
        "fails": trapped("fails", "FailsWhenAsked", handlers={"also-.*": ALSO}),
    }


def ended(process: psutil.Process) -> bool:
    """Whether it has exited, be it that its new parent has not noticed yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def mine(job: ConsumerJob, *partitions: int) -> dict[int, str]:
    return dict.fromkeys(partitions, job.consumer)


def test_consumer_reads_what_is_assigned_and_commits_it(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    topic.produce(100)
    began = time.monotonic()
    epoch = coordinator.assign(topic.name, mine(job, 0, 1) | {2: "somebody-else"})
    eventually(lambda: job.lists(topic.name) == ([0, 1], [], []), 90, "running")
    print(f"assignment to running: {time.monotonic() - began:.2f} s")
    assert job.topic(topic.name)["epoch"] == epoch
    eventually(lambda: job.offsets_read() == topic.expected(0, 1), 90, "read")
    eventually(lambda: topic.committed() == {0: 100, 1: 100, 2: None}, 60, "committed")
    topic.produce(50)
    eventually(lambda: topic.committed() == {0: 150, 1: 150, 2: None}, 60, "committed again")
    assert {k: n for k, n in job.offsets_read().items() if k[0] == topic.name} == topic.expected(0, 1)


def test_last_stage_of_a_start_is_live(job: ConsumerJob, eventually: Eventually) -> None:
    note = {"incarnation": job.incarnation, "at": 0.0, "tries": 1}

    def stage() -> Stage | None:
        starting = job.discovery.jobs.starting(job.consumer, note)
        return starting and starting.stage

    eventually(lambda: stage() is Stage.LIVE, what="noted in Consul")


def test_log_is_rotated_under_the_process_that_writes_it(job: ConsumerJob, eventually: Eventually) -> None:
    with job.log.open("a") as log:
        log.write(f"{'x' * 1023}\n" * (LARGEST // 1024 + 1))
    eventually(lambda: job.log.stat().st_size < LARGEST, 60, "rotated")
    assert job.log.with_name(f"{job.log.name}.1").stat().st_size > LARGEST
    assert job.registered()


def test_a_partition_taken_away_is_closed_and_committed_while_the_others_go_on(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    eventually(lambda: job.lists(topic.name) == ([0, 1, 2], [], []), 90, "running")
    topic.produce(2000)
    began = time.monotonic()
    epoch = coordinator.assign(topic.name, mine(job, 0, 2))

    def closed() -> bool:
        found = job.topic(topic.name)
        return found["epoch"] == epoch and 1 not in found["closing"] + found["running"] + found["starting"]

    eventually(closed, 90, "closed")
    print(f"removal to closed: {time.monotonic() - began:.2f} s")
    at_close = topic.committed()[1]
    assert at_close is not None
    read = [key for key in job.offsets_read() if key[:2] == (topic.name, 1)]
    assert len(read) == at_close, "what is committed when it is reported closed is what was written"
    topic.produce(100)
    eventually(lambda: (topic.committed()[0], topic.committed()[2]) == (2100, 2100), 60, "the others")
    assert topic.committed()[1] == at_close
    # It comes back and begins where it was left.
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    eventually(lambda: topic.committed()[1] == 2100, 60, "taken up again")
    assert {k: n for k, n in job.offsets_read().items() if k[0] == topic.name} == topic.expected(0, 1, 2)


def test_paused_partition_is_not_read_and_resuming_loses_and_doubles_nothing(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    topic.produce(500)
    eventually(lambda: (topic.committed()[0] or 0) > 0, 90, "reading")
    coordinator.pause(topic.name, 0, 1)
    eventually(lambda: job.topic(topic.name)["paused"] == [0, 1], 60, "paused")
    assert job.lists(topic.name) == ([0, 1, 2], [], []), "they stay its own"
    at_pause = topic.committed()
    read = [key for key in job.offsets_read() if key[:2] in {(topic.name, 0), (topic.name, 1)}]
    assert len(read) == (at_pause[0] or 0) + (at_pause[1] or 0), "what the handler was given is committed"
    topic.produce(500)
    eventually(lambda: topic.committed()[2] == 1000, 60, "the other one goes on")
    assert (topic.committed()[0], topic.committed()[1]) == (at_pause[0], at_pause[1])
    coordinator.assign(topic.name, mine(job, 0, 2) | {1: "another"})
    eventually(lambda: job.lists(topic.name) == ([0, 2], [], []), 60, "one is handed over while it is paused")
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    eventually(lambda: job.topic(topic.name)["paused"] == [0, 1], 60, "it is paused with its next owner")
    coordinator.pause(topic.name)
    eventually(lambda: topic.committed() == dict.fromkeys(range(PARTITIONS), 1000), 60, "resumed")
    assert job.topic(topic.name)["paused"] == []
    assert {k: n for k, n in job.offsets_read().items() if k[0] == topic.name} == topic.expected(0, 1, 2)


def test_seek_gives_just_the_sought_range_again_once(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    topic.produce(300)
    eventually(lambda: topic.committed() == dict.fromkeys(range(PARTITIONS), 300), 90, "committed")
    coordinator.seek(topic.name, {0: Seek("s1", 100)})
    expected = topic.expected(0, 1, 2)
    expected |= {(topic.name, 0, offset): 2 for offset in range(100, 300)}
    read = lambda: {k: n for k, n in job.offsets_read().items() if k[0] == topic.name}  # noqa: E731
    eventually(lambda: read() == expected, 60, "read again")
    eventually(lambda: topic.sought() == {0: "s1", 1: "", 2: ""}, 60, "committed with its id")
    coordinator.assign(topic.name, mine(job, 1, 2) | {0: "another"})
    eventually(lambda: job.lists(topic.name) == ([1, 2], [], []), 60, "given away")
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    eventually(lambda: job.lists(topic.name) == ([0, 1, 2], [], []), 60, "back")
    topic.produce(10)
    eventually(lambda: topic.committed() == dict.fromkeys(range(PARTITIONS), 310), 60, "it goes on")
    expected |= {(topic.name, p, offset): 1 for p in range(PARTITIONS) for offset in range(300, 310)}
    assert read() == expected, "the seek that still stands in the node was carried out once"
    coordinator.pause(topic.name, 1)
    eventually(lambda: job.topic(topic.name)["paused"] == [1], 60, "paused")
    topic.produce(20, (1,))
    coordinator.seek(topic.name, {1: Seek("s2", 320)})
    eventually(lambda: topic.sought()[1] == "s2", 60, "committed though it is paused")
    assert topic.committed()[1] == 320
    coordinator.pause(topic.name)
    eventually(lambda: topic.committed()[1] == 330, 60, "resumed")
    expected |= {(topic.name, 1, offset): 1 for offset in range(320, 330)}
    assert read() == expected, "what was left out was not read"


def test_isolation_closes_and_restoring_resumes(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0))
    topic.produce(10)
    eventually(lambda: topic.committed()[0] == 10, 90, "committed")
    job.discovery.overrides.isolate(job.consumer, by="test", why="to see", at=time.time())
    began = time.monotonic()
    eventually(lambda: job.lists(topic.name) == ([], [], []), 60, "closed")
    print(f"isolation to closed: {time.monotonic() - began:.2f} s")
    assert job.status()["state"] == "isolated"
    assert job.registered()
    topic.produce(10)
    assert job.discovery.overrides.restore(job.consumer)
    eventually(lambda: topic.committed()[0] == 20, 60, "resumed")
    assert job.status()["state"] == "running"


def test_topic_with_malformed_node_stays_and_removed_topic_closes(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0))
    eventually(lambda: job.lists(topic.name) == ([0], [], []), 90, "running")
    coordinator.write(topic.name, b"{rubbish")
    eventually(lambda: any(topic.name in error for error in job.status()["errors"]), 60, "error shown")
    assert job.lists(topic.name) == ([0], [], [])
    topic.produce(5)
    eventually(lambda: topic.committed()[0] == 5, 60, "still read")
    coordinator.client.delete(assignment_path(coordinator.cluster, topic.name))
    eventually(lambda: topic.name not in job.status()["topics"], 60, "closed")
    assert job.status()["errors"] == []
    coordinator.client.create(assignment_path(coordinator.cluster, topic.name))


def test_consumes_on_while_zookeeper_is_away(
    job: ConsumerJob,
    topic: Topic,
    coordinator: HandCoordinator,
    zookeeper_server: Server,
    eventually: Eventually,
) -> None:
    coordinator.assign(topic.name, mine(job, 0))
    eventually(lambda: job.lists(topic.name) == ([0], [], []), 90, "running")
    zookeeper_server.pause()
    try:
        eventually(lambda: any("zookeeper" in error for error in job.status()["errors"]), 90, "error shown")
        topic.produce(30)
        eventually(lambda: topic.committed()[0] == 30, 60, "read and committed")
        assert job.registered()
    finally:
        zookeeper_server.resume()
    eventually(lambda: job.status()["errors"] == [], 90, "back")
    eventually(lambda: coordinator.client.connected, 90, "the test's own client is back")
    coordinator.assign(topic.name, mine(job, 0, 1))
    eventually(lambda: job.lists(topic.name) == ([0, 1], [], []), 60, "hears again")


def test_metrics_and_health(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0))
    topic.produce(7)
    eventually(lambda: topic.committed()[0] == 7, 90, "committed")
    found = job.discovery.catalog.own_registration(job.consumer)
    assert found is not None
    assert found.meta["zone"] == "here"
    url = f"http://{found.address}:{found.port}"
    began = time.monotonic()
    assert httpx.get(f"{url}/health", trust_env=False).text == "ok"
    assert time.monotonic() - began < 3
    metrics = httpx.get(f"{url}/metrics", trust_env=False).text
    line = next(
        part
        for part in metrics.splitlines()
        if part.startswith("kafka_consumergroup_group_lag{") and topic.name in part
    )
    assert f'group="{coordinator.group}"' in line
    assert line.endswith(" 0.0")


@only_long
@pytest.mark.usefixtures("others")
def test_log_takes_less_than_a_megabyte_a_day_at_50_records_a_second_a_partition(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    topic.produce(50)
    eventually(lambda: topic.committed() == dict.fromkeys(range(PARTITIONS), 50), 90, "committed")
    before = len(job.log.read_bytes())
    began = time.monotonic()
    for second in range(60):
        topic.produce(50)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
    minutes = (time.monotonic() - began) / 60
    eventually(lambda: topic.committed() == topic.written, 60, "committed again")
    written = job.log.read_bytes()[before:]
    in_airflow = (len(written) + PER_LINE * written.count(b"\n")) / minutes
    print(
        f"{in_airflow:.0f} bytes a minute, {in_airflow * 1440 / 1e6:.2f} MB a day; {written.decode()[:500]}"
    )
    assert in_airflow * 1440 < 1e6


def test_sigterm_closes_everything_in_order(
    job: ConsumerJob, topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    coordinator.assign(topic.name, mine(job, 0, 1, 2))
    eventually(lambda: job.lists(topic.name) == ([0, 1, 2], [], []), 90, "running")
    topic.produce(3000)
    eventually(lambda: (topic.committed()[0] or 0) > 0, 60, "reading")
    driver = job.driver()
    began = time.monotonic()
    driver.send_signal(signal.SIGTERM)
    eventually(lambda: job.discovery.catalog.own_registration(job.consumer) is None, 90, "deregistered")
    print(f"SIGTERM to deregistered: {time.monotonic() - began:.2f} s")
    eventually(lambda: job.exit_code() is not None, 90, "exited")
    print(f"SIGTERM to exit: {time.monotonic() - began:.2f} s")
    assert job.exit_code() == 0, job.log_tail()
    read = [key for key in job.offsets_read().elements() if key[0] == topic.name]
    assert len(read) == len(set(read)), "read twice"
    assert sum(offset or 0 for offset in topic.committed().values()) == len(read)
    assert list(Path(job.folder).glob("muster-query-*")) == []


def test_driver_ends_at_once_when_its_jvm_is_killed(
    others: dict[str, ConsumerJob], topic: Topic, coordinator: HandCoordinator, eventually: Eventually
) -> None:
    job = others["killed"]
    coordinator.assign(topic.name, mine(job, 0))
    topic.produce(10)
    eventually(lambda: topic.committed()[0] == 10, 120, "committed")
    driver = job.driver()
    jvm = driver.parent()
    assert jvm is not None
    assert "java" in jvm.name()
    began = time.monotonic()
    jvm.kill()
    eventually(lambda: ended(driver), 10, "driver gone")
    print(f"JVM killed to driver gone: {time.monotonic() - began:.2f} s")
    # If its query fails before the JVM is missed, and the handler is idle, it closes in order and deregisters.
    eventually(
        lambda: (own := job.discovery.catalog.own_registration(job.consumer)) is None or own.nothing_listens,
        60,
        "Consul notices that nothing listens any more",
    )


def test_handler_that_does_not_end_keeps_the_consumer_registered_until_the_process_has_ended(
    others: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
    folder: Path,
) -> None:
    trap, job = folder / "hangs", others["hangs"]
    coordinator.assign(topic.name, mine(job, 0))
    topic.produce(10)
    eventually(lambda: topic.committed()[0] == 10, 120, "committed")
    trap.touch()
    topic.produce(10)
    hangs = Path(f"{trap}.hangs")
    eventually(hangs.exists, 60, "the handler hangs")
    offsets = lambda: job.status()["topics"][topic.name]["offsets"]["0"]  # noqa: E731
    eventually(lambda: offsets().get("batch", 0) > STALLED_AFTER, 60, "it says how long its batch takes")
    driver = job.driver()
    began = time.monotonic()
    driver.send_signal(signal.SIGTERM)
    while not ended(driver):
        own = job.discovery.catalog.own_registration(job.consumer)
        assert ended(driver) or (own is not None and own.incarnation == job.incarnation), "deregistered first"
        assert time.monotonic() - began < 30, "graceful_timeout, and 15 s"
        time.sleep(0.2)
    eventually(lambda: job.exit_code() is not None, 30, "exited")
    assert job.exit_code() == 1, job.log_tail()
    assert "ending the process without deregistering" in job.log.read_text()


@only_long
def test_newer_process_of_an_id_stays_until_a_stop_request(
    make_job: Callable[..., ConsumerJob],
    others: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
) -> None:
    older = others["twice"]
    coordinator.assign(topic.name, mine(older, 0))
    eventually(lambda: older.lists(topic.name) == ([0], [], []), 120, "running")
    newer = make_job("twice", folder=older.folder)
    topic.produce(500)
    eventually(lambda: older.exit_code() is not None, 120, "the older one is gone")
    assert older.exit_code() == 0, older.log_tail()
    eventually(newer.registered, 90, "the newer one is registered")
    topic.produce(500)
    eventually(lambda: topic.committed()[0] == 1000, 90, "the newer one reads")
    assert newer.status()["incarnation"] == newer.incarnation
    assert dict(newer.offsets_read()) == topic.expected(0)

    newer.discovery.jobs.request_stop(newer.consumer, older.incarnation, by="test", why="not meant for it")
    newer.discovery.jobs.request_stop(newer.consumer, newer.incarnation, by="test", why="enough")
    began = time.monotonic()
    eventually(lambda: newer.exit_code() is not None, 90, "stopped")
    print(f"stop request to exit: {time.monotonic() - began:.2f} s")
    assert newer.exit_code() == 0, newer.log_tail()
    assert newer.discovery.catalog.own_registration(newer.consumer) is None
    request = newer.discovery.jobs.stop_request(newer.consumer)
    assert request is not None, "whoever watches it has to see that it was asked to stop"
    assert (request.incarnation, request.why) == (newer.incarnation, "enough")


def test_handler_that_fails_is_given_the_records_again_and_loses_nothing(
    others: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
    folder: Path,
    kafka: KafkaSettings,
) -> None:
    trap, job = folder / "fails", others["fails"]
    also = Topic(kafka, coordinator.group, "also")
    coordinator.assign(topic.name, mine(job, 0, 1))
    coordinator.assign(also.name, mine(job, 0))
    topic.produce(20)
    eventually(lambda: topic.committed() == {0: 20, 1: 20, 2: None}, 120, "committed")
    trap.touch()
    topic.produce(20)
    also.produce(30)
    eventually(lambda: topic.committed() == {0: 40, 1: 40, 2: None}, 90, "read again")
    assert "ValueError: the trap was set" in job.log.read_text()
    eventually(lambda: also.committed()[0] == 30, 60, "the other handler's committed")
    eventually(lambda: job.status()["errors"] == [], 60, "well again")
    assert (job.status()["handler_failures"], job.status()["query_failures"]) == (1, 0)
    poison = Path(f"{trap}.poison")
    poison.write_text("1 47", encoding="utf-8")
    topic.produce(20)
    eventually(lambda: topic.committed() == {0: 60, 1: 47, 2: None}, 60, "all but the poison record")
    eventually(lambda: "failed 2 times alone" in str(job.status()["errors"]), 60, "a person is told which")
    (error,) = job.status()["errors"]
    assert "ValueError: poison" in error
    assert f"topic {topic.name!r}, partition 1 (its next record" in error
    topic.produce(5, (0,))
    eventually(lambda: topic.committed()[0] == 65, 10, "the others go on")
    poison.unlink()
    eventually(lambda: topic.committed() == {0: 65, 1: 60, 2: None}, 60, "mended")
    eventually(lambda: job.status()["errors"] == [], 60, "well again")
    assert job.status()["query_failures"] == 0
    assert dict(job.offsets_read()) == topic.expected(0, 1)
    elsewhere = pyarrow.dataset.dataset(f"{job.data}-also", format="parquet", partitioning="hive").to_table()
    assert sorted(elsewhere.column("offset").to_pylist()) == list(range(30))
    assert set(elsewhere.column("topic").to_pylist()) == {also.name}
    coordinator.assign(topic.name, mine(job, 0) | {1: "another"}, standbys={1: (job.consumer,)})
    eventually(lambda: job.lists(topic.name) == ([0], [], []), 60, "given away")
    # SIGTERM to the whole process group, as a shell or a cluster manager sends it, is an end in order too.
    assert job.process is not None
    os.killpg(job.process.pid, signal.SIGTERM)
    eventually(lambda: job.exit_code() is not None, 90, "exited")
    assert job.exit_code() == 0, job.log_tail()
    assert not [
        p
        for p in psutil.process_iter(["environ"])
        if str(job.folder) in (p.info["environ"] or {}).get("JOB_DATA", "")
    ]
    notes = [json.loads(line) for line in Path(f"{trap}.notes").read_text(encoding="utf-8").splitlines()]
    for partition in (0, 1):
        told = [name for name, partitions, _ in notes if [topic.name, partition] in partitions]
        told = [name for name in told if name != "standby"]
        assert (told[0], told[-1]) == ("assigned", "revoked")
        assert set(told[1:-1]) == {"batch"}
    assert max(attempt for name, _, attempt in notes if name == "batch") > 2
    standbys = [partitions for name, partitions, _ in notes if name == "standby"]
    assert standbys == [[[topic.name, 1]], []]
    assert [name for name, *_ in notes].index("close") == len(notes) - 1
