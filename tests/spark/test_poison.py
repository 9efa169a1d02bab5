"""A record that the handler of a real job cannot take: parked and skipped, dead-lettered, or the end of the job."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from muster.core.parking import Answer
from muster.core.wire import assignment_path
from muster.edges.consul_jobs import BY_POISON
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.spark.job_topic import Topic
from tests.support.hand_coordinator import HandCoordinator, coordinating
from tests.support.only_long import LONG, only_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LETTERS = f"__letters-{uuid.uuid4().hex[:8]}"
ATTEMPTS = 4
"""With the pauses of 1, 2 and 4 s in between, which are longer than what other partitions may wait for."""
JUDGED = 900
"""Seconds within which a record is poison, after ten minutes."""


@pytest.fixture(scope="module")
def servers(zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings) -> Servers:
    return Servers(zookeeper, consul, kafka)


@pytest.fixture(scope="module")
def coordinator(servers: Servers) -> Iterator[HandCoordinator]:
    name = f"poison-{uuid.uuid4().hex[:8]}"
    with coordinating(servers.zookeeper, servers.kafka, name, name) as made:
        yield made


@pytest.fixture
def topic(kafka: KafkaSettings, coordinator: HandCoordinator) -> Iterator[Topic]:
    made = Topic(kafka, coordinator.group)
    yield made
    coordinator.client.delete(assignment_path(coordinator.cluster, made.name), recursive=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the traps of failing handlers: the file `[CONSUMER]` sets that consumer's."""
    return tmp_path_factory.mktemp("traps")


@pytest.fixture(scope="module")
def jobs(
    servers: Servers,
    coordinator: HandCoordinator,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    eventually: Eventually,
) -> Iterator[dict[str, ConsumerJob]]:
    """One job for each of what may become of a record, all started at once."""
    with ExitStack() as stack:
        made = {
            on_poison: stack.enter_context(
                ConsumerJob(
                    servers,
                    coordinator.cluster,
                    on_poison,
                    tmp_path_factory.mktemp(on_poison),
                    handler="failing_handlers.FailsWhenAsked",
                    options={"trap": str(folder / on_poison)},
                    more={"on_poison": on_poison, "dead_letter_topic": LETTERS},
                )
            )
            for on_poison in ("park", *(["dead_letter", "stop"] if LONG else []))
        }
        for job in made.values():
            eventually(job.registered, 150, "registered")
        yield made


def poison(folder: Path, job: ConsumerJob, offset: int) -> Path:
    """Have the job's handler fail with a record of partition 1."""
    file = folder / f"{job.consumer}.poison"
    file.write_text(f"1 {offset}", encoding="utf-8")
    return file


def batches_took(folder: Path, job: ConsumerJob) -> list[float]:
    """How many seconds Spark took for each batch so far, all but the last one."""
    lines = (folder / f"{job.consumer}.took").read_text(encoding="utf-8").splitlines(keepends=True)
    return [float(line) for line in lines if line.endswith("\n")]


def letters(kafka: KafkaSettings) -> list[tuple[bytes | None, dict[str, bytes | str | None]]]:
    """The values and headers of all dead letters."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "r", "enable.partition.eof": True}
    )
    consumer.assign([KafkaPartition(LETTERS, 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append((message.value(), dict(message.headers() or ())))
    consumer.close()
    return found


@contextmanager
def flowing(topic: Topic, job: ConsumerJob) -> Iterator[Callable[[], float]]:
    """Write to partition 0 meanwhile; gives how long that was not read at most, in seconds."""
    stopped = threading.Event()
    moved, longest, position = time.monotonic(), 0.0, -1

    def flow() -> None:
        while not stopped.wait(0.2):
            topic.produce(5, (0,))

    def watch() -> None:
        nonlocal moved, longest, position
        while not stopped.wait(0.05):
            try:
                found = job.topic(topic.name)["offsets"]["0"]["position"]
            except (httpx.HTTPError, KeyError):
                continue
            now = time.monotonic()
            if found is not None and found > position:
                moved, position = now, found
            longest = max(longest, now - moved)

    threads = [threading.Thread(target=each) for each in (flow, watch)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: longest
    finally:
        stopped.set()
        for thread in threads:
            thread.join(60)


def test_bad_record_is_found_while_others_go_on_and_skipped(
    jobs: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
    folder: Path,
) -> None:
    job = jobs["park"]
    coordinator.assign(topic.name, {0: job.consumer, 1: job.consumer})
    topic.produce(40)
    eventually(lambda: topic.committed() == {0: 40, 1: 40, 2: None}, 120, "committed")
    known = len(batches_took(folder, job))
    with flowing(topic, job) as pause:
        eventually(lambda: (topic.committed()[0] or 0) > 60, 60, "flowing")
        poison(folder, job, 47)
        topic.produce(20, (1,))

        def attempts() -> int:
            return int(job.topic(topic.name)["failing"].get("1", {}).get("attempts", 0))

        eventually(lambda: attempts() >= ATTEMPTS, 120, "tried alone")
        (error,) = job.status()["errors"]
        assert f"topic {topic.name!r}, partition 1 (its next record, at offset 47, failed" in error
        if LONG:
            eventually(lambda: job.metric("muster_consumer_parked") == 1, 200, "a person is asked")
        before = topic.committed()[0] or 0
        eventually(lambda: (topic.committed()[0] or 0) > before + 100, 60, "the others go on")
        assert topic.committed()[1] == 47
        job.discovery.answers.give((topic.name, 1), 47, Answer.SKIP, "ann", "a test", time.time())
        eventually(lambda: topic.committed()[1] == 60, 60, "skipped")
        others_paused, batch = pause(), max(batches_took(folder, job)[known:])
    print(f"others_paused_ms={others_paused * 1000:.0f} longest_batch_ms={batch * 1000:.0f}")
    assert others_paused < 2 + batch
    eventually(lambda: topic.committed()[0] == topic.written[0], 60, "all is read")
    assert job.status()["errors"] == []
    assert job.metric("muster_consumer_skipped_records_total") == 1
    eventually(lambda: job.discovery.answers.all() == {}, 30, "the answer is carried out")
    expected = topic.expected(0, 1)
    del expected[topic.name, 1, 47]
    assert dict(job.offsets_read()) == expected


@only_long
def test_records_that_the_handler_names_get_letters_at_once(
    jobs: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
    folder: Path,
    kafka: KafkaSettings,
) -> None:
    """One by `batch.reject`, one by an exception that carries it."""
    job = jobs["park"]
    coordinator.assign(topic.name, {0: job.consumer, 1: job.consumer})
    (folder / f"{job.consumer}.reject").write_text("1 7", encoding="utf-8")
    (folder / f"{job.consumer}.names").write_text("1 9", encoding="utf-8")
    failures, known = job.status()["handler_failures"], len(letters(kafka))
    topic.produce(20)
    eventually(lambda: topic.committed() == {0: 20, 1: 20, 2: None}, 120, "all is committed")
    assert job.status()["handler_failures"] == failures, "no search"
    expected = topic.expected(0, 1)
    del expected[topic.name, 1, 7], expected[topic.name, 1, 9]
    assert {at: n for at, n in job.offsets_read().items() if at[0] == topic.name} == expected
    said = [
        (value, headers["muster.error"], headers["muster.by"]) for value, headers in letters(kafka)[known:]
    ]
    by = b"the handler, which rejected it"
    assert said == [(b"7", b"ValueError: no date", by), (b"9", b"RejectedRecordsError: not mine", by)]
    for how in ("reject", "names"):
        (folder / f"{job.consumer}.{how}").unlink()


@only_long
@pytest.mark.timeout(JUDGED + 300)
def test_poison_record_goes_to_the_dead_letter_topic_and_its_partition_goes_on(
    jobs: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
    folder: Path,
    kafka: KafkaSettings,
) -> None:
    job = jobs["dead_letter"]
    coordinator.assign(topic.name, {0: job.consumer, 1: job.consumer})
    poison(folder, job, 7)
    topic.produce(20)
    with flowing(topic, job):
        eventually(lambda: topic.committed()[1] == 20, JUDGED, "all is committed")
    eventually(lambda: topic.committed()[0] == topic.written[0], 60, "all is read")
    expected = topic.expected(0, 1)
    del expected[topic.name, 1, 7]
    assert dict(job.offsets_read()) == expected
    found = letters(kafka)
    ((value, headers),) = [each for each in found if each[1]["muster.by"] == b"on_poison"]
    assert value == b"7"
    assert (headers["muster.offset"], headers["muster.by"]) == (b"7", b"on_poison")
    assert headers["muster.error"] == b"ValueError: poison"
    assert job.metric("muster_consumer_dead_letters_total") == 1


@only_long
@pytest.mark.timeout(JUDGED + 300)
def test_poison_record_ends_a_consumer_that_is_to_stop(
    jobs: dict[str, ConsumerJob],
    topic: Topic,
    coordinator: HandCoordinator,
    eventually: Eventually,
    folder: Path,
) -> None:
    job = jobs["stop"]
    coordinator.assign(topic.name, {0: job.consumer, 1: job.consumer})
    poison(folder, job, 7)
    topic.produce(20)
    with flowing(topic, job):
        eventually(lambda: job.exit_code() is not None, JUDGED, "ended")
    assert job.exit_code() == 3, job.log_tail()
    assert topic.committed()[1] == 7
    request = job.discovery.jobs.stop_request(job.consumer)
    assert request is not None
    assert (request.by, request.incarnation) == (BY_POISON, job.incarnation)
    assert f"topic {topic.name!r}, partition 1: the record at offset 7 failed " in request.why
    assert job.discovery.catalog.own_registration(job.consumer) is None
