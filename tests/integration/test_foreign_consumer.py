"""Consumers that share no code with Muster take part in rebalances: the wire protocol is all they know.

`foreign_consumer.py` does every step of docs/protocol.md; `plain_foreign_consumer.py` does what the page had before
it named epochs, claims and isolation.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.consul import Consul
from devstack.zookeeper import ZooKeeper
from muster.coordinator.opening import open_coordinator
from muster.coordinator.reports import ConsumersReport
from muster.core.model import ConsumerStatus, TopicSnapshot
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets, KafkaError, librdkafka_logger
from muster.edges.status import poll_statuses
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.only_long import only_long

pytestmark = pytest.mark.timeout(300)

FULL = Path(__file__).with_name("foreign_consumer.py")
PLAIN = Path(__file__).with_name("plain_foreign_consumer.py")
PARTITIONS = 4
NEVER = "3600"
"""Seconds between commits: a consumer commits only what it closes."""


class Foreign:
    """A running foreign consumer and what it has printed."""

    def __init__(self, arguments: list[str]) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            assert stream is not None
            threading.Thread(target=self._collect, args=(stream, lines), daemon=True).start()

    @staticmethod
    def _collect(stream: Iterator[str], lines: list[str]) -> None:
        lines.extend(line.strip() for line in stream)

    def leave(self) -> int:
        """Ask it to leave in order; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @property
    def refusals(self) -> list[str]:
        return [line for line in self.errors if line.startswith("refused ")]

    def end(self) -> None:
        self.thaw()
        self.process.kill()
        self.process.wait()


class ForeignCluster:
    """A cluster of one topic, its consumers, and a coordinator that makes run after run, as the DAG does."""

    def __init__(
        self,
        zookeeper: ZooKeeperSettings,
        consul: ConsulSettings,
        kafka: KafkaSettings,
        eventually: Eventually,
    ) -> None:
        self.name = name = f"foreign-{uuid.uuid4().hex[:8]}"
        self.cluster = ClusterSettings.model_validate(
            {
                "name": name,
                "consul_service": name,
                "group_id": name,
                "topics": [name],
                "consumers": {"handler": "not.used"},
                "long_poll_timeout": "2s",
                # Standbys stand beside the owners in the topic node; the plain consumer does not know that key.
                "assignor": {"name": "co-partitioned", "options": {"standbys": 1}},
            }
        )
        self.zookeeper, self.consul, self.kafka, self.eventually = zookeeper, consul, kafka, eventually
        self.discovery = ConsulCluster(consul, name, name)
        self.group = GroupOffsets(kafka, name)
        self.admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
        self.produced = 0
        self.consumers: list[Foreign] = []
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._coordinator = threading.Thread(target=self._coordinate)

    def _coordinate(self) -> None:
        try:
            while not self._stop.is_set():
                with open_coordinator(self.cluster, self.zookeeper, self.consul, self.kafka) as coordinator:
                    coordinator.fetch_partitions()
                    ConsumersReport.of(coordinator.catalog.members())
                    if coordinator.compute_assignment(1).needed:
                        coordinator.advance(10)
        except BaseException as error:
            self._failures.append(error)

    def start_coordinator(self) -> None:
        self._stop.clear()
        self._coordinator = threading.Thread(target=self._coordinate)
        self._coordinator.start()

    def stop_coordinator(self) -> None:
        self._stop.set()
        if self._coordinator.is_alive():
            self._coordinator.join(60)
        assert not self._failures, self._failures

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.end()
        for left in self.registered():
            self.discovery.catalog.deregister(
                left
            )  # an agent has one registration of an id, whatever its service
        self.stop_coordinator()
        self.group.close()

    def start(self, script: Path, name: str, commit_every: str = "1") -> Foreign:
        where = [self.zookeeper.hosts, f"http://{self.consul.host}:{self.consul.port}"]
        arguments = [str(script), name, self.name, self.name, *where]
        if script == PLAIN:
            arguments += [self.kafka.bootstrap_servers, self.name]
        else:
            arguments.append(commit_every)
        self.consumers.append(Foreign(arguments))
        return self.consumers[-1]

    def create_topic(self) -> None:
        self.admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(30)

    def produce(self, count: int) -> None:
        """Append `count` records, as many to each partition."""
        producer = Producer(dict(self.kafka.config), logger=librdkafka_logger())
        for number in range(count):
            producer.produce(self.name, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        self.produced += count

    def read(self) -> list[str]:
        return [line for consumer in self.consumers for line in consumer.lines]

    def all_read(self) -> bool:
        return len(set(self.read())) == self.produced

    def twice(self) -> list[str]:
        return [place for place, times in Counter(self.read()).items() if times > 1]

    def committed(self) -> int | None:
        """The sum of what the group has committed."""
        with suppress(KafkaError):
            offsets = self.group.committed([(self.name, number) for number in range(PARTITIONS)])
            return sum(offset or 0 for offset in offsets.values())
        return None

    def stamps(self) -> set[str]:
        """The metadata of what the group has committed."""
        with suppress(KafkaError):
            found = self.group.positions([(self.name, number) for number in range(PARTITIONS)])
            return {there.metadata for there in found.values() if there is not None}
        return set()

    def snapshot(self) -> TopicSnapshot | None:
        with TopicStore(self.zookeeper, self.name) as store:
            found = store.snapshots().get(self.name)
            return found if isinstance(found, TopicSnapshot) else None

    def shares(self) -> dict[str, int]:
        """How many partitions each consumer has, nothing unless the topic is Stable."""
        found = self.snapshot()
        if found is None or found.name != "Stable" or found.assignment is None:
            return {}
        return dict(Counter(found.assignment.owners.values()))

    def until(self, **shares: int) -> None:
        self.eventually(lambda: self.shares() == shares, 60, f"Stable with {shares}")

    def stands(self, consumer: str) -> tuple[int | None, frozenset[int]] | None:
        """The epoch and the partitions that a live consumer reports, None if it reports none."""
        membership = self.discovery.catalog.members().membership
        there = membership.live.get(consumer) if membership is not None else None
        answer = None if there is None else poll_statuses([there], 5.0)[consumer]
        if not isinstance(answer, ConsumerStatus) or self.name not in answer.topics:
            return None
        return answer.topics[self.name].epoch, answer.topics[self.name].held

    def registered(self) -> set[str]:
        return set(self.discovery.catalog.members().registered)


@pytest.fixture
def world(
    zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings, eventually: Eventually
) -> Iterator[ForeignCluster]:
    made = ForeignCluster(zookeeper, consul, kafka, eventually)
    made.create_topic()
    made.start_coordinator()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PLAIN, FULL),
        pytest.param(FULL, PLAIN, marks=only_long),
        pytest.param(PLAIN, PLAIN, marks=only_long),
        pytest.param(FULL, FULL, marks=only_long),
    ],
)
def test_hand_overs_read_nothing_twice_and_lose_nothing(
    world: ForeignCluster, eventually: Eventually, first: Path, second: Path
) -> None:
    alpha = world.start(first, "alpha")
    world.until(alpha=PARTITIONS)
    world.produce(500)
    eventually(world.all_read, 30, "alpha reads all")
    beta = world.start(second, "beta")
    world.produce(500)
    world.until(alpha=2, beta=2)
    found = world.snapshot()
    assert found is not None
    assert found.assignment is not None
    assert set(found.assignment.standbys.values()) == {("alpha",), ("beta",)}
    world.produce(500)
    eventually(world.all_read, 30, "both read")
    assert beta.lines
    world.produce(500)
    assert alpha.leave() == 0
    world.until(beta=PARTITIONS)
    world.produce(500)
    eventually(world.all_read, 30, "beta reads all")
    assert beta.leave() == 0
    assert world.twice() == [], "a planned hand-over reads nothing twice"
    assert world.committed() == world.produced
    assert world.registered() == set()


def test_note_in_the_metadata_stays_there(world: ForeignCluster, eventually: Eventually) -> None:
    eventually(lambda: world.snapshot() is not None, 30, "the topic is taken up")
    found = world.snapshot()
    assert found is not None
    assert found.assignment is not None
    stamp = f"muster:{world.name}:{found.assignment.topic_id}:9f0c::1764338460"
    places = [(world.name, number) for number in range(PARTITIONS)]
    world.group.commit(dict.fromkeys(places, 0), dict.fromkeys(places, stamp))
    world.start(FULL, "alpha")
    world.until(alpha=PARTITIONS)
    world.produce(100)
    eventually(lambda: world.committed() == 100, 30, "alpha commits")
    world.start(FULL, "beta")
    world.until(alpha=2, beta=2)
    world.produce(100)
    eventually(lambda: world.committed() == 200, 30, "both commit")
    assert world.stamps() == {stamp}


def isolate(world: ForeignCluster) -> None:
    assert world.discovery.overrides.isolate("alpha", by="test", why="frozen", at=0.0)


def replace(world: ForeignCluster) -> None:
    world.start(FULL, "alpha")


def frozen(world: ForeignCluster, script: Path, *commit_every: str) -> Foreign:
    """A consumer that is frozen when it has read all and committed nothing."""
    consumer = world.start(script, "alpha", *commit_every)
    world.until(alpha=PARTITIONS)
    world.produce(200)
    world.eventually(world.all_read, 30, "alpha reads all, and commits nothing")
    consumer.freeze()
    return consumer


@pytest.mark.parametrize("take_over", [isolate, pytest.param(replace, marks=only_long)])
def test_late_commit_of_a_frozen_consumer_is_refused_if_it_is_fenced(
    world: ForeignCluster, eventually: Eventually, take_over: Callable[[ForeignCluster], None]
) -> None:
    late = frozen(world, FULL, NEVER)
    if take_over is isolate:
        world.start(FULL, "beta")
    take_over(world)
    world.produce(200)
    eventually(lambda: world.committed() == world.produced, 60, "the next owner reads all again and commits")
    late.thaw()

    def refused() -> bool:
        partitions = {line.split()[2] for line in late.refusals}
        assert len(partitions) == PARTITIONS, "\n".join(late.errors)
        return True

    # librdkafka may take its 30 s for one of them, if a request was under way when the process was frozen.
    eventually(refused, 4 * 30, "its commits are refused")
    assert world.committed() == world.produced
    if take_over is replace:
        assert late.process.wait(30) == 0
        assert world.registered() == {"alpha"}, "the newer process's registration stays"
    world.produce(200)
    eventually(world.all_read, 30, "the next owner goes on")
    eventually(lambda: world.committed() == world.produced, 30, "and commits")


def test_late_commit_of_a_frozen_plain_consumer_counts_until_the_owner_commits_again(
    world: ForeignCluster, eventually: Eventually
) -> None:
    late = frozen(world, PLAIN)
    beta = world.start(FULL, "beta")
    isolate(world)
    world.produce(200)
    eventually(lambda: world.committed() == 400, 60, "beta reads all again and commits")
    found = world.snapshot()
    assert found is not None
    assert found.assignment is not None
    stamp = f"muster:{world.name}:{found.assignment.topic_id}"
    assert world.stamps() == {stamp}
    late.thaw()
    eventually(
        lambda: world.stamps() == {""}, 30, "its late commit counts: the plain consumer writes no metadata"
    )
    world.produce(200)
    eventually(lambda: world.stamps() == {stamp} and world.committed() == 600, 30, "until beta commits again")
    assert beta.refusals == [], "a plain commit is no claim"
    assert len(set(beta.lines)) == 600, "nothing is lost"


def test_late_commit_of_a_frozen_consumer_counts_if_the_next_owner_claims_nothing(
    world: ForeignCluster, eventually: Eventually
) -> None:
    late = frozen(world, FULL, NEVER)
    beta = world.start(PLAIN, "beta")
    isolate(world)
    eventually(lambda: len(beta.lines) == 200, 60, "beta reads all again")
    assert world.committed() == 0
    late.thaw()
    eventually(lambda: world.committed() == 200, 30, "the late commit counts")
    assert late.refusals == []


@pytest.mark.parametrize("records", [40, pytest.param(800, marks=only_long)])
def test_topic_created_again_is_read_from_its_first_record(
    world: ForeignCluster, eventually: Eventually, records: int
) -> None:
    consumer = world.start(FULL, "alpha")
    world.until(alpha=PARTITIONS)
    world.produce(400)
    eventually(lambda: world.all_read() and world.committed() == 400, 30, "alpha reads and commits")
    before = world.snapshot()
    world.stop_coordinator()
    world.admin.delete_topics([world.name])[world.name].result(30)

    def created() -> bool:
        try:
            world.create_topic()
        except Exception:
            return False
        return True

    eventually(created, 30, "created again")
    consumer.lines.clear()
    world.produced = 0
    world.produce(records)
    world.start_coordinator()
    eventually(world.all_read, 60, "alpha reads every record of the new topic")
    after = world.snapshot()
    assert before is not None
    assert after is not None
    assert before.assignment is not None
    assert after.assignment is not None
    assert before.assignment.topic_id != after.assignment.topic_id
    eventually(lambda: world.committed() == records, 30, "and commits them")


def test_isolated_consumer_closes_and_stays_registered_until_it_is_restored(
    world: ForeignCluster, eventually: Eventually
) -> None:
    for name in ("alpha", "beta"):
        world.start(FULL, name)
    world.until(alpha=2, beta=2)
    isolate(world)
    world.produce(200)
    world.until(beta=PARTITIONS)
    assert world.registered() == {"alpha", "beta"}
    assert world.discovery.overrides.restore("alpha")
    world.until(alpha=2, beta=2)
    world.produce(200)
    eventually(world.all_read, 30, "all is read")
    assert world.twice() == []


def test_consumer_that_is_asked_to_stop_hands_over_and_ends(
    world: ForeignCluster, eventually: Eventually
) -> None:
    alpha, _ = world.start(FULL, "alpha"), world.start(FULL, "beta")
    world.until(alpha=2, beta=2)
    world.produce(200)
    incarnation = world.discovery.catalog.members().registered["alpha"].incarnation
    assert incarnation
    world.discovery.jobs.request_stop("alpha", incarnation, by="test", why="to see it")
    assert alpha.process.wait(60) == 0
    world.until(beta=PARTITIONS)
    world.produce(200)
    eventually(world.all_read, 30, "all is read")
    assert world.twice() == []
    assert world.registered() == {"beta"}


def test_newer_process_of_an_id_waits_until_the_older_one_has_closed(
    world: ForeignCluster, eventually: Eventually
) -> None:
    older = world.start(FULL, "alpha")
    world.until(alpha=PARTITIONS)
    world.produce(200)
    newer = world.start(FULL, "alpha")
    assert older.process.wait(60) == 0
    world.produce(200)
    eventually(world.all_read, 60, "all is read")
    assert newer.lines
    assert world.twice() == []


def test_consumer_goes_on_while_zookeeper_and_consul_are_out_of_reach(
    world: ForeignCluster, eventually: Eventually, zookeeper_server: ZooKeeper, consul_server: Consul
) -> None:
    world.start(FULL, "alpha")
    world.until(alpha=PARTITIONS)
    world.stop_coordinator()
    zookeeper_server.pause()
    consul_server.pause()
    try:
        world.produce(200)
        eventually(lambda: world.all_read() and world.committed() == 200, 30, "read and committed")
    finally:
        zookeeper_server.resume()
        consul_server.resume()


@only_long
def test_consumer_keeps_what_it_has_until_a_restored_zookeeper_is_planned_again(
    consul: ConsulSettings, kafka: KafkaSettings, eventually: Eventually, tmp_path: Path
) -> None:
    server = ZooKeeper(tmp_path / "zookeeper", guarded=True)
    server.start()
    world = ForeignCluster(ZooKeeperSettings(hosts=server.address), consul, kafka, eventually)
    try:
        world.create_topic()
        world.start_coordinator()
        world.start(FULL, "alpha")
        world.until(alpha=PARTITIONS)
        world.stop_coordinator()
        server.stop()
        shutil.copytree(server.data_dir, tmp_path / "backup")
        server.start()
        world.start_coordinator()
        world.start(FULL, "beta")
        world.until(alpha=2, beta=2)
        world.stop_coordinator()
        newest = world.snapshot()
        server.stop()
        shutil.rmtree(server.data_dir)
        shutil.copytree(tmp_path / "backup", server.data_dir)
        server.start()
        assert world.shares() == {"alpha": PARTITIONS}, "ZooKeeper went back"
        world.produce(200)
        eventually(world.all_read, 60, "both go on")
        assert newest is not None and newest.assignment is not None
        world.start(FULL, "alpha")
        assert world.consumers[0].process.wait(60) == 0, "another process has its id"
        noted = newest.assignment.epoch
        eventually(lambda: world.stands("alpha") == (noted, set()), 60, "it takes up nothing of the backup")
        world.start_coordinator()
        world.until(alpha=2, beta=2)
        after = world.snapshot()
        assert after is not None and after.assignment is not None
        assert after.assignment.epoch > noted
        world.produce(200)
        eventually(world.all_read, 60, "all is read")
        assert world.twice() == []
    finally:
        world.close()
        server.stop()
