"""One consumer process: the real agent, registrar and assignment watch; Spark, Kafka and the network simulated.

Where the real process has threads, the model calls one round of each loop when it likes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.consumer import predecessor
from muster.consumer.agent import STOPPING, Agent
from muster.consumer.assignment_watch import AssignmentWatch, AwayError
from muster.consumer.lifecycle import Ending
from muster.consumer.registration import Registrar
from muster.core.model import ConsumerStatus
from muster.core.ownership import Plan, Source
from muster.edges.consul_http import ConsulError
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings
from tests.faults.model.commits import Place
from tests.faults.model.consul import Api, SimulatedDiscovery
from tests.faults.model.kafka import TopicPartition
from tests.faults.model.zookeeper import CLUSTER, Session

if TYPE_CHECKING:
    from tests.faults.model.world import World

ZOOKEEPER = ZooKeeperSettings(hosts="z:2181")
SETTINGS = ConsumerSettings(
    cluster=CLUSTER,
    consumer="x",
    incarnation="x",
    consul_service="consumers",
    zookeeper=ZOOKEEPER,
    consul=ConsulSettings(),
    kafka=KafkaSettings(config={"bootstrap.servers": "k:9092"}),
    handler="a.b",
    graceful_timeout=20.0,
)
GRACE = SETTINGS.graceful_timeout


@dataclass
class Faults:
    """What is wrong with one process or the network around it."""

    hung: bool = False
    """Stopped like by SIGSTOP: nothing of it runs."""
    no_consul: bool = False
    """It cannot reach Consul, nor can Consul's check reach it."""
    check_fails: bool = False
    """Only Consul's check cannot reach it."""
    no_answer: bool = False
    """Nobody gets an answer of its status page, though Consul's check passes."""
    no_zookeeper: bool = False
    """Its session is suspended."""
    lags: bool = False
    """Its ZooKeeper server does not see new writes, except by a sync."""
    slow: bool = False
    """Its handler does not come to an end of the batch."""
    no_kafka: bool = False
    """It cannot reach Kafka's brokers."""
    unheard_commits: bool = False
    """Its commits are made, but it does not hear of it."""


class Query:
    """The Spark query and its planner: one batch at a time, one more record of each partition in each."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.agent = process.agent
        self.token = ""
        self.stands: dict[str, dict[int, tuple[int, int]]] = {}
        self.batch: Plan | None = None
        self.first = True
        self.start()

    def start(self) -> None:
        self.token = self.agent.query_started()
        self.stands = {}
        self.batch = None
        self.first = True
        self.plan()

    def fail(self) -> None:
        if self.batch is not None:
            self.agent.batch_done(self.batch, processed=False)
        self.agent.query_ended(failed=True)
        self.start()

    def plan(self) -> None:
        """Ask what may be read, plan a batch and begin it. With nothing to read, nothing is planned."""
        world = self.process.world
        offer = self.agent.offer(self.token)
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for name, topic in offer.topics.items():
            for partition in sorted(topic.partitions):
                before = self.stands.get(name, {}).get(partition)
                if before is None and self.process.cut_off_from_kafka:
                    continue
                begin = world.kafka.committed.get((name, partition), 0) if before is None else before[1]
                ranges.setdefault(name, {})[partition] = (begin, begin + 1)
        self.agent.planned(self.token, offer.asked, self.stands, ranges, {}, [])
        if ranges or self.stands or self.first:
            self.first = False
            self.batch = self.agent.batch_started()
            for name, planned in ranges.items():
                for partition, (begin, _) in planned.items():
                    anew = partition not in self.stands.get(name, {})
                    world.watchman.begins(self.process, (name, partition), begin, anew)
        self.stands = ranges

    def finish(self) -> None:
        """The handler returns."""
        if self.batch is None:
            return
        batch, self.batch = self.batch, None
        self.agent.batch_done(batch, processed=True)
        for name, ranges in batch.offsets.items():
            for partition, (_, end) in ranges.items():
                self.process.world.watchman.processed(self.process, (name, partition), end)


class Process:
    def __init__(
        self, world: World, consumer: str, number: int, port: int, zk_view: int, topics: str = ""
    ) -> None:
        self.world = world
        self.id = consumer
        self.incarnation = f"{consumer}#{number}"
        self.port = port
        self.faults = Faults()
        self.alive = True
        self.ended_at: float | None = None
        self.query_failed = False
        self.watch_everything = True
        settings = SETTINGS.model_copy(
            update={
                "consumer": consumer,
                "incarnation": self.incarnation,
                "metadata": {"topics": topics} if topics else {},
            }
        )
        self.agent = Agent(consumer, claims=True, fencing=world.fencing, clock=world.clock)
        self.places: dict[Source, Place] = {}
        self.ending = Ending()
        self.api = Api(world.consul)
        self.registrar = Registrar(
            settings,
            SimulatedDiscovery(self.api),
            self.agent,
            self.ending,
            port,
            ask=self._ask,
            clock=world.clock,
        )
        self.session = Session(world.zookeeper, zk_view)
        self.watch = AssignmentWatch(ZOOKEEPER, CLUSTER, self.agent, 5.0)
        self.query = Query(self)
        self.registrar.open()

    @property
    def runs(self) -> bool:
        return self.alive and not self.faults.hung

    @property
    def held(self) -> set[TopicPartition]:
        topics = self.agent._ownership.topics
        return {(name, number) for name, topic in topics.items() for number in topic.held}

    @property
    def running(self) -> set[TopicPartition]:
        status = self.agent._ownership.status()
        return {(name, p) for name, topic in status.items() for p in topic.running}

    @property
    def cut_off_from_kafka(self) -> bool:
        return self.faults.no_kafka or self.world.kafka.away

    def healthy(self) -> bool:
        """What Consul's check finds."""
        return self.runs and not self.faults.no_consul and not self.faults.check_fails

    def answers(self) -> bool:
        return self.runs and not self.faults.no_answer

    def status(self) -> ConsumerStatus:
        """What its status page says."""
        view = self.agent.view()
        return ConsumerStatus(
            self.id, self.incarnation, view.topics, epochs=True, leaving=STOPPING in view.bars
        )

    def read_zookeeper(self, full: bool, writes: int = 1_000_000, watches_lost: bool = False) -> None:
        """Its server gets to see up to `writes` more writes, and the watch's loop makes a round."""
        self.session.away = self.faults.no_zookeeper
        if self.session.connected and not self.faults.lags:
            self.session.catch_up(writes, watches_lost)
        try:
            self.watch.look(self.session, full or self.watch_everything)
        except AwayError:
            self.watch_everything = True
        else:
            self.watch_everything = False

    def hear_consul(self) -> None:
        self.api.away = self.faults.no_consul
        try:
            self.registrar.look()
        except ConsulError:
            return
        self.world.watchman.heard(self)

    def end(self) -> None:
        """What the main thread does: nothing until the end is asked for, then close, leave, exit."""
        if not self.ending.asked:
            return
        if self.ended_at is None:
            self.ended_at = self.world.now
        self.agent.bar(STOPPING)
        if not self.held or self.world.now - self.ended_at > GRACE:
            self.api.away = self.faults.no_consul
            with suppress(ConsulError):
                self.registrar.leave()
            self.world.say(f"{self.incarnation} exits: {self.ending.reason}")
            self.alive = False

    def work(self) -> None:
        """The query goes on by up to two batches, as far as handler and Kafka let it."""
        for _ in range(2):
            if not self.faults.slow:
                self.query.finish()
            self.claim_and_commit()
            if self.query.batch is None:
                self.query.plan()

    def claim_and_commit(self) -> None:
        """The committer's round: a place for each source, which claims what is taken up and commits what is due."""
        for source in self.agent.wait_for_source(self.places.keys(), timeout=0.0):
            self.places[source] = Place(self, source)
        for place in self.places.values():
            place.go_on()

    def fail_query(self) -> None:
        self.query_failed = True
        self.query.fail()

    def everything(self) -> None:
        """One round of all its threads."""
        if not self.runs:
            return
        self.read_zookeeper(full=True)
        self.hear_consul()
        self.registrar.look_at_predecessors()
        self.work()
        self.end()

    def _ask(self, older: predecessor.Older) -> predecessor.Answer:
        there = self.world.at_port(older.port)
        if there is None or not there.alive:
            return predecessor.Refused()
        return there.status() if there.answers() else "no answer in time"
