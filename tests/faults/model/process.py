"""One consumer process: the real agent, registrar, assignment watch and end; Spark, Kafka and the network simulated.

Where the real process has threads, the model calls one round of each loop when it likes. The end of the job is the
real `Job._end`, in a thread that is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kazoo.protocol.states import KazooState

from muster.consumer import predecessor
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch, AwayError
from muster.consumer.blocks import STOPPING
from muster.consumer.lifecycle import Ending
from muster.consumer.registration import Registrar
from muster.consumer.serial_handler import SerialHandler
from muster.consumer.snapshot import AgentSnapshot
from muster.consumer.stateless import Stateless
from muster.core.copies import Copies, ShardCopy
from muster.core.model import ConsumerStatus, PartitionLoad, TopicPartition, TopicStatus
from muster.core.ownership import Place
from muster.core.positions import Committed
from muster.edges.consul_api import ConsulError
from muster.edges.status import StatusFailure, StatusResult
from muster.settings.consumer import ConsumerSettings
from tests.faults.model.commits import SimulatedPlace
from tests.faults.model.consul import Api, SimulatedConsul
from tests.faults.model.kafka import Record
from tests.faults.model.query import Query
from tests.faults.model.state import States, keeper
from tests.faults.model.threads import TIME, Threads, at_work, copy_of, now, process_at_work, wait_until
from tests.faults.model.zookeeper import CLUSTER, Session
from tests.support.consumer_settings import consumer_settings

if TYPE_CHECKING:
    from tests.faults.model.world import Model

CHANGELOG = 1_000_000
"""Where each changelog ends."""
WARM_AFTER = 6.0
"""Seconds until a copy that is brought on from nothing has all."""
SETTINGS = consumer_settings(
    cluster=CLUSTER, consumer="x", incarnation="x", consul_service="consumers", graceful_timeout=20.0
)


def _exit_after(seconds: float, exit_code: int) -> None:
    """`muster.consumer.lifecycle.exit_after`."""
    process_at_work().dies_at = now() + seconds


ending = copy_of("muster.consumer.main", time=TIME, exit_after=_exit_after)
"""The job, of which the model plays the end."""


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
    slow_claims: bool = False
    """What it claims is on its way to Kafka, or queued."""
    commits_fail: bool = False
    """Kafka refuses its commits, which trying again does not mend."""
    old_offsets: bool = False
    """Of what it has claimed it hears only what it has committed itself, by a broker that was cut off with it."""
    unheard_commits: bool = False
    """Its commits are made, but it does not hear of it."""
    slow_restores: bool = False
    """What it restores does not come further."""


class _Waiting:
    """A part of the process as the end of the job sees it: to wait for something is to let the world go on."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    @staticmethod
    def _wait(reached: Callable[[], bool], timeout: float) -> bool:
        until = now() + timeout
        wait_until(lambda: reached() or now() >= until)
        return reached()


class _WaitingAgent(_Waiting):
    def wait_closed(self, timeout: float) -> bool:
        return self._wait(lambda: self._part.wait_closed(0.0), timeout)


class _WaitingRegistrar(_Waiting):
    def wait_for_predecessors(self, timeout: float) -> bool:
        return self._wait(self._part.look_at_predecessors, timeout)


class Process:
    def __init__(
        self, world: Model, consumer: str, number: int, host: str, port: int, zk_view: int, topics: str = ""
    ) -> None:
        self.world = world
        self.id = consumer
        self.incarnation = f"{consumer}#{number}"
        self.token = f"{consumer}{number:x}"
        """What it notes of itself with the offsets of what it has."""
        self.host = host
        self.port = port
        self.faults = Faults()
        self.alive = True
        self.dies_at: float | None = None
        self._disk: dict[TopicPartition, int] = {}
        self._copied = world.now
        self.read: dict[TopicPartition, Record] = {}
        """What the last batch with a partition reads."""
        self.processed: dict[TopicPartition, Record] = {}
        """What the handler was done with last."""
        self.own_commits: dict[TopicPartition, Committed] = {}
        """What it has committed last."""
        self.query_failed = False
        self.watch_everything = True
        self.watches = self.commits = True
        """Whether it reads ZooKeeper and commits still; the end of the job ends both."""
        settings = SETTINGS.model_copy(
            update={
                "consumer": consumer,
                "incarnation": self.incarnation,
                "advertise": host,
                "metadata": {"topics": topics} if topics else {},
            }
        )
        self.threads = Threads(self)
        self.folder: Path | None = None
        """Where its stores are, if it has some."""
        self.states: Any = States(self) if world.state else None
        self.agent = Agent(
            consumer,
            fencing=world.fencing,
            states=self.states or Stateless(),
            fail_on_data_loss=world.data_loss_fails,
            max_batch_time=world.max_batch_time,
            holder=self.token,
            clock=world.clock,
        )
        self.keeper: Any = keeper.Keeper(self.agent, self.states) if self.states else None
        self.places: dict[Place, SimulatedPlace] = {}
        self.ending = Ending()
        self.api = Api(
            world.consul,
            host=host,
            registers=lambda: world.watchman.registers(self),
            leaves=lambda: world.watchman.leaves(self),
        )
        self.discovery = SimulatedConsul(self.api)
        self.registrar = Registrar(
            settings,
            self.discovery,
            self.agent,
            self.ending,
            port,
            ask=self._ask,
            clock=world.clock,
        )
        self.watch = AssignmentWatch(SETTINGS.zookeeper, CLUSTER, self.agent, 5.0)
        self.session = Session(
            world.zookeeper,
            zk_view,
            lambda: self.watch._on_state(KazooState.CONNECTED),
        )
        self.query = Query(self)
        self._job = self._made_job(settings)
        self.ends_since: float | None = None
        """When it has begun to end."""
        self.registrar.open()

    def _made_job(self, settings: ConsumerSettings) -> Any:
        """As much of a job as its end needs."""
        job = object.__new__(ending.Job)
        job._settings = settings
        job._ending = self.ending
        job._agent = _WaitingAgent(self.agent)
        job._handler = SerialHandler([], self.agent)
        job._registrar = _WaitingRegistrar(self.registrar)
        job._poison = ""
        job._keeper = job._follower = None
        job._supervisor = SimpleNamespace(stop=lambda: setattr(self.query, "stopping", True))
        job._query = SimpleNamespace(join=self._join_query)
        job._watch = SimpleNamespace(stop=lambda: setattr(self, "watches", False))
        job._committer = SimpleNamespace(stop=lambda: setattr(self, "commits", False))
        job._page = job._local_api = job._answers = SimpleNamespace(stop=lambda: None)
        return job

    def _join_query(self, timeout: float) -> bool:
        until = now() + timeout
        wait_until(lambda: self.query.ended or now() >= until)
        return self.query.ended

    @property
    def runs(self) -> bool:
        return self.alive and not self.faults.hung

    @property
    def has_left(self) -> bool:
        """Whether it takes its registration away, or has."""
        return not self.alive or self.registrar._stopped.is_set()

    @property
    def is_out_of_time(self) -> bool:
        """Whether it has waited for all that it may wait for at its end."""
        since = self.world.now if self.ends_since is None else self.ends_since
        return self.world.now - since >= SETTINGS.graceful_timeout

    @property
    def cut(self) -> bool:
        """Whether its host is cut off."""
        return self.world.consul.agents[self.host].cut

    @property
    def held(self) -> set[TopicPartition]:
        return set(self.agent._ownership.held)

    @property
    def stuck(self) -> set[TopicPartition]:
        """What it commits with producers that are stuck."""
        fenced = [worker.fenced for worker in self.places.values() if worker.fenced is not None]
        return {key for each in fenced for key in each.stuck()}

    @property
    def running(self) -> set[TopicPartition]:
        return {
            tp
            for tp, partition in self.agent._ownership.held.items()
            if partition.planned is not None and not partition.closing
        }

    @property
    def cut_off_from_kafka(self) -> bool:
        return self.faults.no_kafka or self.cut or self.world.kafka.away

    @property
    def differing(self) -> set[TopicPartition]:
        """The shards that it does not run, because changelog and group differ."""
        shards = self.agent.states.status() if self.runs else {}
        return {tp for tp, shard in shards.items() if shard.differs and tp in self.held}

    def healthy(self) -> bool:
        """What the check of its host's agent finds."""
        return self.runs and not self.faults.no_consul and not self.faults.check_fails

    def answers(self) -> bool:
        """Whether others get an answer of its status page."""
        return self.runs and not self.faults.no_answer and not self.cut

    def status(self) -> ConsumerStatus:
        """What its status page says."""
        view = self.agent.view()
        topics = {name: _topic(view, name) for name in view.topics}
        return ConsumerStatus(
            self.id,
            self.incarnation,
            topics,
            epochs=True,
            leaving=STOPPING in view.blocks,
            batch_seconds=view.batch_seconds if view.in_batch else None,
            max_batch_time=self.agent.max_batch_time,
            copies=self._copies(),
        )

    def _copies(self) -> Copies | None:
        """The copies of state that it has: of what it runs, and of what it has stood by for, for long enough."""
        if not self.world.state:
            return None
        took, self._copied = self.world.now - self._copied, self.world.now
        for tp in self.agent._ownership.standing_by:
            self._disk[tp] = min(CHANGELOG, self._disk.get(tp, 0) + round(took * CHANGELOG / WARM_AFTER))
        self._disk |= dict.fromkeys(self.running, CHANGELOG)
        return {
            topic: {p: ShardCopy(upto, CHANGELOG) for (name, p), upto in self._disk.items() if name == topic}
            for topic in self.world.state
        }

    def read_zookeeper(self, full: bool, writes: int = 1_000_000, watches_lost: bool = False) -> None:
        """Its server gets to see up to `writes` more writes, and the watch's loop makes a round."""
        if not self.watches:
            return
        self.session.away = self.faults.no_zookeeper or self.cut
        if not self.session.away and not self.faults.lags:
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
        """What the main thread does: nothing until the end is asked for, then the end of the job."""
        if self.ending.asked and self.ends_since is None:
            self.ends_since = self.world.now
            self.api.away = self.faults.no_consul
            self.threads.start(self._end)

    def _end(self) -> None:
        spark = SimpleNamespace(stop=self.query.end)
        code = self._job._end(spark, lambda: None)
        self.world.say(f"{self.incarnation} exits with {code}: {self.ending.reason}")
        self.die()

    def die(self) -> None:
        """The process is gone."""
        self.alive = False

    def crash(self) -> None:
        """It is killed."""
        self.die()
        self.threads.end()

    def work(self) -> None:
        """The query goes on by up to two batches, as far as handler and Kafka let it."""
        self.api.away = self.faults.no_consul
        if self.dies_at is not None and self.world.now >= self.dies_at:
            self.die()
            return
        for _ in range(2):
            if not self.faults.slow and self.query.records & self.world.deadly:
                self.claim_and_commit()  # while the handler is at work
                self.crash()
                return
            if not self.faults.slow:
                self.query.finish()
            self.claim_and_commit()
            self.query.go_on()

    def claim_and_commit(self) -> None:
        """The committer's round: a place for each source, which claims what is taken up and commits what is due."""
        self.threads.go_on()
        if not self.commits or not self.alive:
            return
        for place in self.agent.wait_for_place(self.places.keys(), timeout=0.0):
            self.places[place] = SimulatedPlace(self, place)
        for worker in self.places.values():
            worker.go_on()
        if self.keeper is not None:
            with at_work(self):
                self.keeper.look()

    # -- what it tells the watchman of its claims and commits -----------------------------------------------

    def refusal(self, key: TopicPartition) -> set[str] | None:
        return self.world.watchman.refusal(self, key)

    def claims(self, key: TopicPartition, refusal: set[str] | None) -> None:
        self.world.watchman.claims(self, key, refusal)

    def calls(self, key: TopicPartition) -> None:
        self.world.watchman.calls(self, key)

    def refused(self, key: TopicPartition, own_doing: bool = False) -> None:
        self.world.watchman.refused(self, key, own_doing)

    def stick(self) -> None:
        """Its producers get stuck."""
        for worker in self.places.values():
            if worker.fenced is not None:
                worker.fenced.stick()

    def free(self) -> None:
        """Its producers that are stuck go on."""
        for worker in self.places.values():
            if worker.fenced is not None:
                worker.fenced.free()

    def fail_query(self) -> None:
        self.query_failed = True
        self.query.fail()

    def fail_batch(self) -> None:
        self.query.fail_batch()

    def everything(self) -> None:
        """One round of all its threads."""
        if not self.runs:
            return
        self.read_zookeeper(full=True)
        self.hear_consul()
        self.registrar.look_at_predecessors()
        self.work()
        if self.alive:
            self.end()

    def _ask(self, older: predecessor.Predecessor) -> StatusResult:
        there = self.world.at_port(older.port)
        host = older.address
        if host != self.host and (self.cut or self.world.consul.agents[host].cut):
            return StatusFailure(older.incarnation, "no answer in time")
        if there is None or not there.alive:
            return StatusFailure(older.incarnation, "refused", refused=True)
        if not there.runs or there.faults.no_answer:
            return StatusFailure(older.incarnation, "no answer in time")
        return there.status()


def _topic(view: AgentSnapshot, name: str) -> TopicStatus:
    """What the page says of a topic. Each partition that runs has always the same load."""
    topic = view.topics[name]
    return replace(
        topic,
        loads={p: PartitionLoad(lag=1.0 + p, rate=10.0 * (1 + p)) for p in topic.running},
        failing={p: record for (of, p), record in view.failing.items() if of == name},
        batch_seconds={p: view.batch_seconds for of, p in view.in_batch if of == name},
        shards={p: shard for (of, p), shard in view.shards.items() if of == name},
    )
