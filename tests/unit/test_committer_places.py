"""One worker for each Kafka and group that something is to be claimed or committed at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from muster.consumer import committer as committing
from muster.consumer.agent import Agent
from muster.consumer.commits import GuardedCommits
from muster.consumer.committer import Committer, PlaceWorker
from muster.core.model import TopicAssignment
from muster.core.ownership import Place
from muster.edges.kafka import KafkaError
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.claiming import claim

KAFKA = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:3", "client.id": "me"}, operation_timeout=7.0)
PLACES = (Place("127.0.0.1:1", "g"), Place("127.0.0.1:2", "h"))


class Worker:
    """Notes what it is made with, and serves nothing."""

    made: list[Worker]

    def __init__(self, agent: Agent, cluster: str, place: Place, *parts: Any) -> None:
        self.agent, self.cluster, self.place = agent, cluster, place
        self.group, self.commits, self.stopped, self.letters, self.states = parts
        self.alive = self.started = self.closed = False
        self.made.append(self)

    def start(self) -> None:
        self.alive = self.started = True

    def close(self) -> None:
        self.closed = True
        self.group.close()


@pytest.fixture
def agent() -> Agent:
    return Agent("me")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    Worker.made = []
    monkeypatch.setattr(committing, "PlaceWorker", Worker)
    return Worker.made


class Running:
    """A committer whose loop runs in a thread."""

    def __init__(self, committer: Committer, pool: ThreadPoolExecutor) -> None:
        self.committer, self.beats = committer, 0
        self.end: Future[None] = pool.submit(committer.run, self.beat)

    def beat(self) -> None:
        self.beats += 1


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


def assign(agent: Agent, topic: str, place: Place) -> None:
    node = TopicAssignment(place.bootstrap_servers, place.group_id, {0: "me"}, 1)
    agent.assigned(topic, node, 1)


def test_place_gets_one_worker_with_its_own_kafka_and_group(
    agent: Agent, workers: list[Worker], pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    running = Running(Committer(agent, KAFKA, "c", True, "letters"), pool)
    assign(agent, "t", PLACES[0])
    eventually(lambda: len(workers) == 1)
    assign(agent, "u", PLACES[1])
    eventually(lambda: len(workers) == 2 and all(worker.started for worker in workers))
    seen = running.beats
    eventually(lambda: running.beats > seen + 1, what="it goes on")
    running.committer.stop()
    running.end.result(10)
    assert {worker.place for worker in workers} == set(PLACES), "no second one for a place"
    for worker in workers:
        assert (worker.agent, worker.cluster) == (agent, "c")
        assert worker.group.group_id == worker.place.group_id
        assert isinstance(worker.commits, FencedCommits)
        assert worker.commits._config["bootstrap.servers"] == worker.place.bootstrap_servers
        assert worker.commits._config["client.id"] == "me"
        assert worker.commits._timeout == 7.0
        assert worker.letters.topic.name == "letters"
        for part in (worker.letters.topic, worker.letters.records):
            assert part._settings.config == {
                **KAFKA.config,
                "bootstrap.servers": worker.place.bootstrap_servers,
            }
        assert worker.letters.records._group_id == worker.place.group_id
        assert worker.stopped.is_set()
        assert worker.closed


@pytest.mark.parametrize(
    ("fencing", "topic", "commits"),
    [(False, "letters", GuardedCommits), (False, "", GuardedCommits), (True, "", FencedCommits)],
)
def test_dead_letters_need_fencing_and_a_topic(
    agent: Agent,
    workers: list[Worker],
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    fencing: bool,
    topic: str,
    commits: type,
) -> None:
    running = Running(Committer(agent, KAFKA, "c", fencing, topic), pool)
    assign(agent, "t", PLACES[0])
    eventually(lambda: workers)
    running.committer.stop()
    running.end.result(10)
    assert type(workers[0].commits) is commits
    assert workers[0].letters is None


def test_worker_that_dies_ends_the_committer_and_all_others(
    agent: Agent, workers: list[Worker], pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    running = Running(Committer(agent, KAFKA, "c", True), pool)
    for topic, place in zip(("t", "u"), PLACES, strict=True):
        assign(agent, topic, place)
    eventually(lambda: len(workers) == 2)
    workers[0].alive = False
    with pytest.raises(RuntimeError, match="has ended"):
        running.end.result(10)
    assert all(worker.closed and worker.stopped.is_set() for worker in workers)


class Group:
    """`GroupOffsets`, of which nothing is asked."""

    topics = None

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.fixture
def worker(agent: Agent) -> PlaceWorker:
    group: Any = Group()
    return PlaceWorker(agent, "c", PLACES[0], group, GuardedCommits(group), threading.Event())


def test_pauses_between_failed_attempts_grow_and_begin_again(worker: PlaceWorker, agent: Agent) -> None:
    fails = iter([True] * 8 + [False] + [True] * 2)
    pauses: list[float] = []
    waits: list[int] = []
    said: list[dict[str, str]] = []

    def wait() -> bool:
        said.append(agent.view().problems)
        waits.append(len(pauses))
        return len(waits) != 2

    def work() -> None:
        if next(fails):
            raise KafkaError("Kafka is away")

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 10:
            worker._stopped.set()

    worker._serve("k", wait, work, sleep)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 0.2, 0.4]
    assert waits == [0, 8, 8], "it waits for work where none has failed"
    assert said == [{}, {}, {}]
    assert agent.view().problems == {"k": "Kafka is away"}


def test_commit_that_reaches_no_kafka_counts_as_failed(
    agent: Agent, worker: PlaceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def positions(*_: object) -> None:
        raise KafkaError("Kafka is away")

    monkeypatch.setattr(Group, "positions", positions, raising=False)
    assign(agent, "t", PLACES[0])
    with agent.shared.change() as own:
        claim(own)
        own.held["t", 0].processed = 10
    for attempts in (1, 2):
        with pytest.raises(KafkaError, match="away"):
            worker.commit()
        assert agent.view().counters.failed_commits == attempts
    assert worker._commit_failed


def test_worker_with_a_thread_that_died_is_not_alive(
    worker: PlaceWorker, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = threading.Event()

    def look_at_topics(_: PlaceWorker) -> None:
        died.set()
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(PlaceWorker, "look_at_topics", look_at_topics)
    worker.start()
    eventually(died.is_set)
    eventually(lambda: not worker.alive)
    worker._stopped.set()
    worker.close()
    assert not any(thread.is_alive() for thread in worker._threads)
