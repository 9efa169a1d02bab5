"""Everything at once: servers, coordinators, consumers, faults and the clock. Each public method is one event.

A history is a list of events with plain arguments. `Model.do` plays one and looks whether all that is promised still
holds; `story` tells it in words.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import cache, wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any

from muster.core.assignors import Assignor, load_assignor
from muster.core.deaths import PAUSE
from muster.core.model import Consumer, ConsumerStatus, State, TopicPartition, TopicSnapshot
from muster.core.ownership import PAUSED
from muster.core.positions import Committed
from muster.edges.status import StatusFailure
from muster.settings.cluster_settings import ClusterSettings
from tests.faults.model.consul import HOSTS, Servers
from tests.faults.model.coordinator import CoordinatorProcess
from tests.faults.model.kafka import Brokers
from tests.faults.model.persons import Persons
from tests.faults.model.process import Faults, Process
from tests.faults.model.seeks import Desk, Seeking
from tests.faults.model.state import Harm
from tests.faults.model.watchman import Watchman
from tests.faults.model.zookeeper import SESSION, Ensemble

IDS = ("a", "b", "c")
RESERVE = "d"
"""Is started in the end where no other can take a topic."""
TOPICS = ("t", "u")
COORDINATORS = ("first", "second")
ROUNDS = 40
"""So many rounds may pass, with all faults over, until everything is Stable."""
ROUND_SECONDS = 2.0
"""Seconds; longer than it takes until an older process that is silent counts as gone, in three of them."""

BY_HAND = 60.0
"""Seconds that a person takes to change something in ZooKeeper; more than a topic has seen epochs by then."""
ASSIGNORS = {
    "sticky": {},
    "range": {},
    "round-robin": {},
    "failover": {},
    "co-partitioned": {"standbys": 1},
    "load-aware": {},
}
"""With their options."""

Event = tuple[str, ...]


@cache
def cluster(rebalance_delay: float, group: str, state: tuple[str, ...] = ()) -> ClusterSettings:
    return ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "consumers",
            "group_id": group,
            "topics": list(TOPICS),
            "consumers": {"handler": "a.b", "state": state},
            "rebalance_delay": rebalance_delay,
        }
    )


def _unreliable(name: str, fails: Callable[[], bool]) -> Assignor:
    """The assignor `name`, which raises while it `fails`."""
    assignor = load_assignor(name, ASSIGNORS[name])

    @wraps(assignor.assign)
    def assign(*arguments: Any, **further: Any) -> Any:
        if fails():
            raise KeyError("zone")
        return assignor.assign(*arguments, **further)

    # Every plan looks at the signature, and to find it behind `wraps` takes long.
    vars(assign)["__signature__"] = signature(assignor.assign)
    found: Any = SimpleNamespace(name=name, assign=assign)
    if hasattr(assignor, "standbys"):
        found.standbys = assignor.standbys
    if hasattr(assignor, "measure"):
        found.measure = assignor.measure
    return found  # type: ignore[no-any-return]


class Model(Persons, Harm):
    def __init__(
        self,
        assignor: str = "sticky",
        rebalance_delay: float = 0.0,
        only_u: str = "",
        commits: str = "fenced",
    ) -> None:
        Persons.__init__(self)
        Harm.__init__(self)
        logging.disable(logging.CRITICAL)  # the story says what happened
        self.now = 1_000_000.0
        self.setting = (assignor, rebalance_delay, only_u, commits)
        self.fencing = commits == "fenced"
        self.history: list[Event] = []
        self.story: list[str] = [f"assignor {assignor}, rebalance_delay {rebalance_delay:g} s, {commits}"]
        self.only_u = only_u
        """The consumer that subscribes to topic u only, if any."""
        self.watchman = Watchman(self)
        self.zookeeper = Ensemble(self.watchman)
        self.consul = Servers()
        self.kafka = Brokers()
        self.kafka.create("t", frozenset(range(3)))
        self.kafka.create("u", frozenset(range(2)))
        self.processes: list[Process] = []
        self.saw: set[str] = set()
        """What happened in this history that `tally` counts."""
        self.assignor_fails = self.faults_last = self.data_loss_fails = False
        self.state: tuple[str, ...] = ()
        """The topics with state by key."""
        self.max_batch_time: float | None = None
        self._started: dict[str, int] = dict.fromkeys((*IDS, RESERVE), 0)
        self._answers: dict[str, ConsumerStatus] = {}
        self._moment = 0
        self._delay = rebalance_delay
        self._group = "g"
        self._assignor = _unreliable(assignor, lambda: self.assignor_fails)
        self.coordinators = {name: self._coordinator(name) for name in COORDINATORS}

    def _coordinator(self, name: str) -> CoordinatorProcess:
        return CoordinatorProcess(self, name, cluster(self._delay, self._group, self.state), self._assignor)

    # -- what others ask ----------------------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def say(self, what: str) -> None:
        self.story.append(f"{self.now - 1_000_000:6.1f}  {what}")

    def process(self, incarnation: str) -> Process:
        return next(p for p in self.processes if p.incarnation == incarnation)

    def newest(self, consumer: str) -> Process | None:
        return next((p for p in reversed(self.processes) if p.id == consumer and p.alive), None)

    def at_port(self, port: int) -> Process | None:
        return next((p for p in reversed(self.processes) if p.port == port and p.alive), None)

    def answer(self, consumer: Consumer, old: bool) -> ConsumerStatus | StatusFailure:
        """What a coordinator that asks gets, `old`: what was answered under this id the last time."""
        if old and consumer.id in self._answers:
            return self._answers[consumer.id]
        found = self.present_answer(consumer)
        if isinstance(found, ConsumerStatus):
            self._answers[consumer.id] = found
        return found

    def present_answer(self, consumer: Consumer) -> ConsumerStatus | StatusFailure:
        """What one that reaches every host gets."""
        if self.consul.agents[consumer.address].cut:
            return StatusFailure(consumer.id, "no answer")
        there = self.at_port(consumer.port)
        if there is None:
            return StatusFailure(consumer.id, "refused", refused=True)
        if not there.answers():
            return StatusFailure(consumer.id, "no answer")
        if there.id != consumer.id:
            return StatusFailure(consumer.id, f"{there.id} answers")
        return there.status()

    def commit(
        self,
        process: Process | Seeking,
        key: TopicPartition,
        group: str,
        committed: Committed,
        written: Sequence[tuple[bytes, bytes | None]] = (),
    ) -> None:
        """Kafka has not refused this commit, so it counts, with what was `written` to a changelog with it."""
        record = self.kafka.record(key, group)
        self.watchman.commits(process, key, record, committed)
        if key[0] in self.state:
            self.watchman.state.lands(process, key, record, committed, written)
        self.kafka.committed[record] = process.own_commits[key] = committed

    def moment(self) -> int:
        """A number that grows with everything that happens."""
        self._moment += 1
        return self._moment

    def all_work(self) -> None:
        for process in list(self.processes):
            process.everything()
            self.watchman.look()

    # -- events ---------------------------------------------------------------------------------------------------

    def do(self, event: Event) -> None:
        name, *arguments = event
        self.say(" ".join(event))
        self.history.append(event)
        getattr(self, name)(*arguments)
        self.watchman.look()

    def start(self, consumer: str, server: str = "current", place: str = "new", host: str = HOSTS[0]) -> None:
        """A process is submitted to a host; its ZooKeeper server lags, or not; its place is that of the one before,
        if it is free, or a new one."""
        before = next((p for p in reversed(self.processes) if p.id == consumer), None)
        if sum(p.alive and p.id == consumer for p in self.processes) >= 3:
            return
        self._started[consumer] += 1
        port = 1000 * (ord(consumer) - ord("a") + 1) + self._started[consumer]
        if place == "same" and before is not None and not before.alive:
            port, host = before.port, before.host
        last = self.zookeeper.zxid
        view = last if server == "current" else max(0, last - int(server))
        topics = "u" if consumer == self.only_u else ""
        process = Process(self, consumer, self._started[consumer], host, port, view, topics)
        process.faults.lags = server != "current"
        self.processes.append(process)

    def crash(self, incarnation: str) -> None:
        if process := self._find(incarnation):
            process.crash()

    def stop(self, incarnation: str) -> None:
        """It is asked to end in order."""
        if process := self._find(incarnation):
            process.ending.ask("SIGTERM received")

    def fault(self, incarnation: str, what: str) -> None:
        """Something begins to be wrong with a process, or ends."""
        if process := self._find(incarnation):
            setattr(process.faults, what, not getattr(process.faults, what))

    def stick(self, incarnation: str) -> None:
        """The producers that a process has get stuck: their commits wait in librdkafka, without end."""
        if process := self._find(incarnation):
            process.stick()

    def free(self, incarnation: str) -> None:
        """What is stuck in a process goes on."""
        if process := self._find(incarnation):
            process.free()

    def work(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.work()

    def fail_query(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.fail_query()

    def fail_batch(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.fail_batch()

    def zookeeper_round(self, incarnation: str, how: str) -> None:
        """One round of the assignment watch: 'full', or by watches that fire or are 'lost', or 'one' more write."""
        if (process := self._find(incarnation)) and process.runs:
            process.read_zookeeper(how == "full", 1 if how == "one" else 1_000_000, how == "lost")

    def consul_round(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.hear_consul()

    def takeover_round(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.registrar.look_at_predecessors()

    def everything(self, incarnation: str) -> None:
        if process := self._find(incarnation):
            process.everything()

    def everybody(self) -> None:
        """Every process makes a round of everything, and Consul its checks."""
        self.all_work()
        self.checks()

    def answer_lost(self, incarnation: str) -> None:
        """Its next registration succeeds without its knowing."""
        if process := self._find(incarnation):
            process.api.answer_lost = True

    def checks(self) -> None:
        """Consul makes every check."""
        self.consul.check(lambda _, port: (p := self.at_port(port)) is not None and p.healthy())

    def _desk(self) -> Desk:
        return Desk(self, cluster(self._delay, self._group, self.state))

    def forget(self, consumer: str) -> None:
        """Consul's agents lose a registration."""
        for agent in self.consul.agents.values():
            agent.services.pop(consumer, None)

    def agent(self, host: str, what: str) -> None:
        """The agent of a host is 'restarted', or something begins or ends: its host is 'cut' off, it is 'behind' with
        what it tells the servers, or 'away'."""
        agent = self.consul.agents[host]
        if what == "restarted":
            agent.restart()
            return
        agent.separate()
        setattr(agent, what, not getattr(agent, what))
        if what == "away" and not agent.away:
            agent.restart()
        agent.agree()

    def empty_list(self, times: str) -> None:
        self.consul.empty = int(times)

    def consul_away(self) -> None:
        self.consul.away = not self.consul.away

    def zookeeper_away(self) -> None:
        self.zookeeper.away = not self.zookeeper.away

    def kafka_away(self) -> None:
        self.kafka.away = not self.kafka.away

    def partitions(self, topic: str, count: str) -> None:
        """From now on a topic has so many partitions, if it is there."""
        if topic in self.kafka.topics:
            self.kafka.topics[topic] = frozenset(range(int(count)))

    def delete_topic(self, topic: str) -> None:
        """A topic is deleted in Kafka."""
        if topic in self.kafka.topics:
            self.kafka.delete(topic)

    def recreate_topic(self, topic: str, count: str, size: str) -> None:
        """A topic is deleted, and made again, 'small' (it has no records yet) or 'large'."""
        self.delete_topic(topic)
        self.kafka.create(topic, frozenset(range(int(count))), size == "small")

    def records(self, topic: str) -> None:
        """Records are written to a small topic."""
        self.kafka.small.discard(topic)

    def retention(self, topic: str, partition: str) -> None:
        """Kafka deletes some records of a partition that were not read."""
        record = self.kafka.record((topic, int(partition)), self._group)
        if topic in self.kafka.topics and topic not in self.kafka.small:
            self.kafka.begins[record[1:]] = max(self.kafka.begin(record), self.watchman.read_to(record)) + 3

    def forget_producers(self) -> None:
        """Kafka forgets all producers: they were idle for too long, or its log of them was lost."""
        self.kafka.producers.clear()

    def delete_offsets(self, topic: str, partition: str) -> None:
        """A person deletes what the group has committed: of a partition, or of 'all' of a topic. With that goes what
        is known of seeks that were taken back."""
        for number in self.kafka.topics.get(topic, ()):
            record = self.kafka.record((topic, number), self._group)
            if partition in {"all", str(number)} and self.kafka.committed.pop(record, None) is not None:
                self.watchman.deleted((topic, number), record)
                self.over -= {
                    i for i, each in self.given.items() if (each.topic, each.partition) == (topic, number)
                }

    def keep_state(self) -> None:
        """From the beginning topic t has state by key, and a plan waits for copies of it, which take time to become
        warm."""
        self.state = ("t",)
        self.coordinators = {name: self._coordinator(name) for name in COORDINATORS}

    def fail_on_data_loss(self) -> None:
        """From now on all consumers have that setting."""
        self.data_loss_fails = True
        for process in self.processes:
            process.agent.parked.fail_on_data_loss = True

    def batches_within(self, seconds: str) -> None:
        """From now on all consumers have that `max_batch_time`."""
        self.max_batch_time = float(seconds)
        for process in self.processes:
            process.agent.max_batch_time = self.max_batch_time

    def delete_node(self, topic: str, which: str) -> None:
        """A person deletes a topic's 'state' node, its 'assignment' node, or 'both' nodes."""
        self.now += BY_HAND
        zookeeper = self.zookeeper
        delete = {
            "state": zookeeper.delete_state,
            "assignment": zookeeper.delete_assignment,
            "both": zookeeper.delete,
        }
        if zookeeper.snapshot(topic) is not None:
            delete[which](topic)

    def restore(self, writes: str, how: str = "") -> None:
        """ZooKeeper is as it was so many writes ago. Its servers are restored, and go on from there or behind an
        election ('elects'): coordinators lose their sessions. Or a person writes back a topic, or the 'assignments'
        or the 'states' of all."""
        self.now += BY_HAND
        if how not in {"", "elects"}:
            self.zookeeper.write_back(int(writes), how)
            return
        for name in COORDINATORS:
            self.die(name)
        self.zookeeper.restore(int(writes), how == "elects")

    def group(self, group: str) -> None:
        """Another group is written into clusters.yaml, which coordinators read when they begin."""
        self._group = group

    def clock_of(self, name: str, seconds: str) -> None:
        """The next runs of a coordinator are on a worker whose clock is so many seconds ahead."""
        self.die(name)
        self.coordinators[name].skew = float(seconds)

    def assignor(self, how: str) -> None:
        """The assignor begins to 'fail', or 'works'."""
        self.assignor_fails = how == "fails"

    def last(self) -> None:
        """What is wrong with processes, agents and the assignor in the end is never mended."""
        self.faults_last = True

    def coordinate(self, name: str, until: str, how: str = "") -> None:
        """A coordinator goes on to a point. `how` is what is odd about its next calls."""
        coordinator = self.coordinators[name]
        if coordinator.cluster.group_id != self._group and not coordinator.under_way:
            self.die(name)
            coordinator = self.coordinators[name]
        if how.startswith("lags"):
            coordinator.store.lag = int(how.removeprefix("lags "))
        elif how in {"lost", "delayed"}:
            coordinator.store.answer = how
        elif how == "old answers":
            coordinator.stale_answers = True
        coordinator.go_on(until)

    def die(self, name: str) -> None:
        """A coordinator process dies where it stands; another one takes its place."""
        skew = self.coordinators[name].skew
        self.coordinators[name].die()
        self.coordinators[name] = self._coordinator(name)
        self.coordinators[name].skew = skew

    def late_writes(self) -> None:
        """Writes that nobody knew of any more happen now."""
        for write, sent in self.zookeeper.delayed:
            if self.now - sent <= SESSION:
                write()
        self.zookeeper.delayed.clear()

    def time(self, seconds: str) -> None:
        self.now += float(seconds)

    def _find(self, incarnation: str) -> Process | None:
        """A process that lives, by name; 'a' is the newest of a, 'a-' the one before, 'a--' the one before that."""
        consumer = incarnation.rstrip("-")
        living = [p for p in self.processes if p.id == consumer and p.alive]
        back = len(incarnation) - len(consumer) + 1
        return living[-back] if len(living) >= back else None

    # -- the end --------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """All faults are over but those that last; within `ROUNDS` rounds all that these do not concern is Stable,
        read by its owner, and rests."""
        self.say("all faults are over" + (", but those that last" if self.faults_last else ""))
        self._mend()
        for number in range(ROUNDS):
            self.now += PAUSE if number == ROUNDS // 4 and self._in_doubt() else ROUND_SECONDS
            # A consumer has to be there for each topic; who was replaced by a process that is dead ends, too.
            if not any(p.alive and not p.ending.asked and self._able(p) for p in self.processes):
                self.start(self._to_start(), host=self._whole_host())
            self.accept_losses()
            self.skip_records()
            self.choose()
            self.everybody()
            self.coordinate(COORDINATORS[number % 2], "end")
            self.watchman.look()
            waits = (
                self._is_stuck() or self._waits_for_persons() or self._seeks_wait() or bool(self._in_doubt())
            )
            if self._settled() and not self._unrest() and not waits:
                self._flows()
                self._obeys()
                self._says_what_is_wrong()
                return
        self.watchman.fail(
            f"not Stable {ROUNDS} rounds after all faults were over: {self._why_not_settled()}"
        )

    def _mend(self) -> None:
        self.late_writes()
        self.consul.away = self.zookeeper.away = self.kafka.away = False
        self.consul.empty = 0
        self.kafka.small.clear()
        counted = ("muster/c/generations/", "muster/c/coordination/epochs")
        decided = ("muster/c/pinned/", "muster/c/excluded/", "muster/c/seeks/", *counted)
        self.deadly.clear()
        self.bad.clear()
        self.consul.keys = {key: v for key, v in self.consul.keys.items() if key.startswith(decided)}
        if all(self._excluded(consumer) for consumer in IDS if consumer != self.only_u):
            self.consul.keys = {k: v for k, v in self.consul.keys.items() if k.startswith(counted)}
        for agent in self.consul.agents.values():
            agent.behind = False
            for service in agent.services.values():
                service.maintenance = False
            if not self.faults_last:
                agent.cut = False
                if agent.away:
                    agent.restart()
            agent.agree()
        if not self.faults_last:
            self.assignor_fails = False
        for process in self.processes:
            process.api.answer_lost = False
            if not self.faults_last:
                process.faults = Faults()
        for coordinator in self.coordinators.values():
            coordinator.store.answer, coordinator.store.lag, coordinator.stale_answers = "comes", 0, False

    def _whole_host(self) -> str:
        whole = [host for host in HOSTS if not self._broken(host)]
        if not whole:
            self.agent(HOSTS[0], "cut" if self.consul.agents[HOSTS[0]].cut else "away")
        return (whole or list(HOSTS))[0]

    def _broken(self, host: str) -> bool:
        return self.consul.agents[host].cut or self.consul.agents[host].away

    def _impaired(self, process: Process) -> bool:
        """Whether something is wrong with a process that lives, or with its host."""
        return process.alive and (process.faults != Faults() or self._broken(process.host))

    def _able(self, process: Process) -> bool:
        """Whether it can be counted on for every topic."""
        able = process.id != self.only_u and not self._excluded(process.id)
        return able and not self._impaired(process)

    def _to_start(self) -> str:
        impaired = {process.id for process in self.processes if self._impaired(process)}
        able = [c for c in IDS if c != self.only_u and not self._excluded(c) and c not in impaired]
        return (able or [RESERVE])[0]

    def _concerned(self) -> set[TopicPartition]:
        """The partitions of consumers that are counted on though something is wrong with them; all of a topic of
        which it is not known who holds them, because each consumer that is counted on has to say so first."""
        ids = {p.id for p in self.processes if self._impaired(p) and self.consul.live(p.id)}
        found: set[TopicPartition] = set()
        for topic, partitions in self.kafka.topics.items() if ids else ():
            snapshot = self.zookeeper.snapshot(topic)
            if (
                snapshot is None
                or snapshot.assignment is None
                or snapshot.state is None
                or self._asked_of(snapshot) & ids
            ):
                found |= {(topic, p) for p in partitions}
                found |= {key for process in self.processes for key in process.held if key[0] == topic}
                continue
            named = {**snapshot.assignment.owners}
            lists = (snapshot.state.to_close, snapshot.state.to_start)
            found |= {(topic, p) for p, c in named.items() if c in ids}
            found |= {(topic, p) for each in lists for c in each.keys() & ids for p in each[c]}
        return found

    def _asked_of(self, snapshot: TopicSnapshot) -> set[str]:
        """The consumers that have to say what they hold, because a higher epoch of a topic than ZooKeeper's was
        noted, or is known to a process: all, or those that gain by what was noted over this very epoch."""
        assignment, state = snapshot.assignment, snapshot.state
        assert assignment is not None and state is not None
        value, _ = self.consul.keys.get("muster/c/coordination/epochs", (b"{}", 0))
        notes = json.loads(value)
        noted, note = notes.get(snapshot.topic, 0), notes.get("/pending", {}).get(snapshot.topic, {})
        pending = note.get("over") == assignment.epoch == state.epoch
        known = max(noted, self._reported(snapshot.topic), state.epoch)
        if known == assignment.epoch == state.epoch:
            return set()
        holds_more = any(
            tp[0] == snapshot.topic and self.zookeeper.owner(*tp) != p.id
            for p in self.processes
            for tp in p.held
        )
        return set(note["gaining"]) if pending and known == noted and not holds_more else {*IDS, RESERVE}

    def _reported(self, topic: str) -> int:
        """The highest epoch of a topic that a process knows."""
        known = [p.agent._ownership.topics.get(topic) for p in self.processes if p.alive]
        return max((each.epoch or 0 for each in known if each is not None), default=0)

    def _stands_unseen(self, topic: str) -> list[TopicPartition]:
        """The partitions of a Stable topic that the registered process of their live owner answers not to run."""
        snapshot = self.zookeeper.snapshot(topic)
        if snapshot is None or snapshot.assignment is None or not self._at_rest(topic):
            return []
        if self._of_another_group(topic) or self._asked_of(snapshot):
            return []
        found = []
        for partition, owner in snapshot.assignment.owners.items():
            standing = self.consul.newest(owner) if self.consul.live(owner) else None
            there = None if standing is None else self.at_port(standing.port)
            if there is not None and there.answers() and (topic, partition) not in there.running:
                found.append((topic, partition))
        return found

    def _settled(self) -> bool:
        return not self._why_not_settled()

    def _why_not_settled(self) -> str:
        """What is not as it has to be: everything Stable, each partition in the hands of its owner, and of no other,
        and none waited for. What lasting faults concern is left out."""
        concerned = self._concerned()
        held: dict[TopicPartition, list[str]] = {}
        for process in self.processes:
            if not process.alive or self._impaired(process):
                continue
            newest = self.consul.newest(process.id)
            if newest is None or newest.incarnation != process.incarnation:
                return f"{process.incarnation} is not registered"
            for key in process.held - concerned:
                held.setdefault(key, []).append(process.id if key in process.running else "")
        wanted = self._wanted()
        for topic in self.kafka.topics:
            if why := self._why_unrest(topic, any(topic == t for t, _ in concerned)):
                return why
        for key in wanted - concerned:
            if held.get(key, []) != [self.zookeeper.owner(*key)]:
                return f"{key} belongs to {self.zookeeper.owner(*key)}, and is held by {held.get(key)}"
        known = {topic for topic in self.kafka.topics if not self._of_another_group(topic)}
        if extra := {key: held[key] for key in held.keys() - wanted if key[0] in known}:
            return f"{extra} are held"
        closing = {k: h for k, h in held.items() if k[0] not in self.kafka.topics and self._closes(k)}
        return f"{closing} are not closed" if closing else self._why_unseen()

    def _why_unrest(self, topic: str, concerned: bool) -> str:
        if self.zookeeper.snapshot(topic) is None:
            return f"topic {topic} is unknown"
        if concerned or (self._of_another_group(topic) and not self._kept(topic)):
            return ""
        if not self._at_rest(topic):
            return f"topic {topic} is not Stable"
        # What warms up while the assignor fails stays as it is: nothing says where to.
        return (
            f"a copy of the state of topic {topic} warms up"
            if self._warms_up(topic) and not self.assignor_fails
            else ""
        )

    def _why_unseen(self) -> str:
        unseen = [key for topic in self.kafka.topics for key in self._stands_unseen(topic)]
        return f"{unseen} are Stable, but their owners answer and do not run them" if unseen else ""

    def _wanted(self) -> set[TopicPartition]:
        """What has to be read: all there is; of a topic of another group what is known, if it was not created again,
        because it stays as it is; and no partition that has no owner yet while the assignor fails."""
        wanted: set[TopicPartition] = set()
        for topic, present in self.kafka.topics.items():
            known = self._kept(topic) if self._of_another_group(topic) else present
            wanted |= {(topic, p) for p in present & known}
        if self.assignor_fails:
            wanted = {key for key in wanted if self.zookeeper.owner(*key) is not None}
        return wanted

    def _kept(self, topic: str) -> frozenset[int]:
        """The partitions of a topic that ZooKeeper knows, if it is still the same topic in Kafka."""
        snapshot = self.zookeeper.snapshot(topic)
        assert snapshot is not None and snapshot.assignment is not None
        same = snapshot.assignment.topic_id in {"", self.kafka.ids[topic]}
        return snapshot.partitions if same else frozenset()

    def _of_another_group(self, topic: str) -> bool:
        """Whether a topic is read for another group than the settings name."""
        snapshot = self.zookeeper.snapshot(topic)
        assignment = None if snapshot is None else snapshot.assignment
        return assignment is not None and assignment.group_id != self._group

    def _closes(self, key: TopicPartition) -> bool:
        return any(key in p.held and self.zookeeper.owner(*key) != p.id for p in self.processes if p.alive)

    def _at_rest(self, topic: str) -> bool:
        snapshot = self.zookeeper.snapshot(topic)
        state = None if snapshot is None else snapshot.state
        return state is not None and state.state is State.STABLE and not state.missing

    def _warms_up(self, topic: str) -> bool:
        snapshot = self.zookeeper.snapshot(topic)
        return snapshot is not None and snapshot.assignment is not None and bool(snapshot.assignment.warm_ups)

    def _unrest(self) -> bool:
        """Whether a coordinator run still finds something to write."""
        before = self.zookeeper.zxid
        for name in COORDINATORS:
            if self.coordinators[name].under_way:
                self.coordinate(name, "end")
            self.coordinate(name, "end")
        return self.zookeeper.zxid != before

    def _is_stuck(self) -> bool:
        """Whether a producer is stuck, and not replaced yet, in a consumer that nothing else is wrong with. One of a
        partition that ZooKeeper does not know, of a topic of another group, is replaced when a person has confirmed
        that, and its owner is known."""
        due = self._wanted() - self._concerned()
        working = [p for p in self.processes if p.alive and not self._impaired(p)]
        return any(process.stuck & process.held & due for process in working)

    def _waits_for_persons(self) -> bool:
        """Whether a process does not know yet that consumption was resumed, or that a loss was accepted. A loss of a
        topic that is not there any more is not to be carried out; a topic of another group than the settings' is not
        written before a person has confirmed that."""
        for process in self.processes:
            own = process.agent._ownership
            if not process.alive or self._impaired(process):
                continue
            if process.differing:
                return True
            paused = [
                (tp, own.held[tp].source) for tp, why in own.not_read(self.now).items() if why == PAUSED
            ]
            if any(source.group_id == self._group or self._is_resumed(tp) for tp, source in paused):
                return True
            losses = [tp for tp in process.agent.parked.losses if tp in own.held]
            if any(self.kafka.is_the_topic(tp[0], own.held[tp].source) for tp in losses):
                return True
        return False

    def _in_doubt(self) -> set[TopicPartition]:
        """The partitions of which a record may have killed processes: they are read apart, after a while."""
        working = (p for p in self.processes if p.alive and not self._impaired(p))
        return {key for p in working for key in p.agent._ownership.in_doubt()}

    def _seeks_wait(self) -> bool:
        """Whether a seek of a partition that is read is not carried out, or taken back, yet."""
        for topic, partition in self._wanted() - self._concerned():
            value, _ = self.consul.keys.get(f"muster/c/seeks/{topic}/{partition}", (b"{}", 0))
            if json.loads(value).get("topic.id") == self.kafka.ids[topic] and not self._of_another_group(
                topic
            ):
                return True
        return False

    def _is_resumed(self, key: TopicPartition) -> bool:
        """Whether an assignment that its owner obeys says that a partition is not paused any more."""
        snapshot = self.zookeeper.snapshot(key[0])
        if snapshot is None or snapshot.assignment is None:
            return False
        if self._reported(key[0]) > snapshot.assignment.epoch:
            return False
        return key[1] not in snapshot.assignment.paused

    def _flows(self) -> None:
        before = {record: self.kafka.stands(record) for record in self.kafka.committed}
        for process in self.processes:
            if process.alive and not self._impaired(process):
                process.work()
        for key in self._wanted() - self._concerned():
            snapshot = self.zookeeper.snapshot(key[0])
            assert snapshot is not None and snapshot.assignment is not None
            record = self.kafka.record(key, snapshot.assignment.group_id)
            if self.kafka.stands(record) <= before.get(record, 0):
                self.watchman.fail(f"all is Stable, but {key} does not flow")

    def _says_what_is_wrong(self) -> None:
        """A group that was changed in the settings is either in use, or a run says that it is not."""
        told = [coordinator.name for coordinator in self.coordinators.values() if "group" in coordinator.told]
        other = [topic for topic in self.kafka.topics if self._of_another_group(topic)]
        if other and len(told) < len(COORDINATORS):
            what = f"topics {other} are not read for group {self._group}, which the settings name; no run says so"
            self.watchman.fail(what)

    def may_read(self, consumer: str, topic: str) -> bool:
        """Whether persons and the consumer itself let it read a topic."""
        return topic not in self._excluded(consumer) and (consumer != self.only_u or topic == "u")

    def kept_from_all(self, topic: str) -> bool:
        """Whether persons keep every consumer from a topic that is live and would take it."""
        able = [c for c in (*IDS, RESERVE) if self.consul.live(c) and (c != self.only_u or topic == "u")]
        return bool(able) and not any(self.may_read(consumer, topic) for consumer in able)

    def _excluded(self, consumer: str) -> set[str]:
        """The topics that a person keeps a consumer from."""
        prefix = f"muster/c/excluded/{consumer}/"
        return {key.removeprefix(prefix) for key in self.consul.keys if key.startswith(prefix)}

    def _obeys(self) -> None:
        """Who reads what is as persons decided, as far as those they named are there and plans can be made."""
        if self.assignor_fails or self.faults_last:
            return
        live = {c for c in (*IDS, RESERVE) if self.consul.live(c)}
        for topic, partition in sorted(self._wanted()):
            able = {c for c in live if self.may_read(c, topic)}
            owner = self.zookeeper.owner(topic, partition)
            if able and owner not in able:
                self.watchman.fail(f"{topic, partition} is with {owner}, which is excluded from it")
            value, _ = self.consul.keys.get(f"muster/c/pinned/{topic}/{partition}", (b"{}", 0))
            pinned = json.loads(value).get("consumer")
            if pinned in able - self.watchman.leaving_since.keys() and owner != pinned:
                self.watchman.fail(f"{topic, partition} is with {owner}, but is pinned to {pinned}")

    def close(self) -> None:
        """End what is under way, and let others log again."""
        logging.disable(logging.NOTSET)
        for coordinator in self.coordinators.values():
            coordinator.die()
        for process in self.processes:
            process.threads.end()
