"""Everything at once: servers, coordinators, consumers, faults and the clock. Each public method is one event.

A history is a list of events with plain arguments. `World.do` plays one and looks whether all that is promised still
holds; `story` tells it in words.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache

from muster.core.assignors import load_assignor
from muster.core.model import Consumer, ConsumerStatus, State, TopicSnapshot, Transition
from muster.edges.status import StatusFailure
from muster.settings.clusters import ClusterSettings
from tests.faults.model.consul import Servers
from tests.faults.model.coordinator import CoordinatorProcess
from tests.faults.model.kafka import Brokers, TopicPartition
from tests.faults.model.process import Faults, Process
from tests.faults.model.watchman import Watchman
from tests.faults.model.zookeeper import Ensemble

IDS = ("a", "b", "c")
COORDINATORS = ("first", "second")
TICKS = 40
"""So many rounds may pass, with all faults over, until everything is Stable."""
TICK = 2.0
"""Seconds; longer than it takes until an older process that is silent counts as gone, in three of them."""

Event = tuple[str, ...]


@cache
def cluster(rebalance_delay: float) -> ClusterSettings:
    return ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "consumers",
            "group_id": "g",
            "topics": ["t", "u"],
            "consumers": {"handler": "a.b"},
            "rebalance_delay": rebalance_delay,
        }
    )


class World:
    def __init__(
        self,
        assignor: str = "sticky",
        rebalance_delay: float = 0.0,
        only_u: str = "",
        commits: str = "fenced",
    ) -> None:
        logging.disable(logging.CRITICAL)  # the story says what happened
        self.now = 1_000_000.0
        self.setting = (assignor, rebalance_delay, only_u, commits)
        self.fencing = commits == "fenced"
        self.history: list[Event] = []
        self.story: list[str] = [f"assignor {assignor}, rebalance_delay {rebalance_delay:g} s, {commits}"]
        self.only_u = only_u
        """The consumer that subscribes to topic u only, if any."""
        self.watchman = Watchman(self)
        self.zookeeper = Ensemble(self._written)
        self.consul = Servers()
        self.kafka = Brokers({"t": frozenset(range(3)), "u": frozenset(range(2))})
        self.processes: list[Process] = []
        self._started: dict[str, int] = dict.fromkeys(IDS, 0)
        self._answers: dict[str, ConsumerStatus] = {}
        self._moment = 0
        self._cluster = cluster(rebalance_delay)
        self._assignor = load_assignor(assignor, {})
        self.coordinators = {name: self._coordinator(name) for name in COORDINATORS}

    def _coordinator(self, name: str) -> CoordinatorProcess:
        return CoordinatorProcess(self, name, self._cluster, self._assignor)

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
        there = self.at_port(consumer.port)
        if there is None or not there.answers():
            return StatusFailure(consumer.id, "no answer")
        if there.id != consumer.id:
            return StatusFailure(consumer.id, f"{there.id} answers")
        self._answers[consumer.id] = there.status()
        return self._answers[consumer.id]

    def commit(self, process: Process, key: TopicPartition, offset: int) -> None:
        """Kafka has not refused this commit, so it counts."""
        self.watchman.commits(process, key, offset)
        self.kafka.committed[key] = offset

    def moment(self) -> int:
        """A number that grows with everything that happens."""
        self._moment += 1
        return self._moment

    def _written(self, transitions: Sequence[Transition], writer: object) -> None:
        self.watchman.written(transitions, writer if isinstance(writer, CoordinatorProcess) else None)
        for transition in transitions:
            self.say(
                f"  written: topic {transition.topic}: {transition.state.state}, epoch "
                f"{transition.assignment.epoch}, owners {dict(sorted(transition.assignment.owners.items()))}, "
                f"toClose {_lists(transition.state.to_close)}, toStart {_lists(transition.state.to_start)}"
            )

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

    def start(self, consumer: str, server: str = "current", place: str = "new") -> None:
        """A process is submitted; its ZooKeeper server lags, or not; its port is that of the one before, if it is
        free, or a new one."""
        before = next((p for p in reversed(self.processes) if p.id == consumer), None)
        if sum(p.alive and p.id == consumer for p in self.processes) >= 3:
            return
        self._started[consumer] += 1
        port = 1000 * (IDS.index(consumer) + 1) + self._started[consumer]
        if place == "same" and before is not None and not before.alive:
            port = before.port
        view = self.zookeeper.last if server == "current" else max(0, self.zookeeper.last - int(server))
        topics = "u" if consumer == self.only_u else ""
        process = Process(self, consumer, self._started[consumer], port, view, topics)
        process.faults.lags = server != "current"
        self.processes.append(process)

    def crash(self, incarnation: str) -> None:
        if process := self._find(incarnation):
            process.alive = False

    def stop(self, incarnation: str) -> None:
        """It is asked to end in order."""
        if process := self._find(incarnation):
            process.ending.ask("SIGTERM received")

    def fault(self, incarnation: str, what: str) -> None:
        """Something begins to be wrong with a process, or ends."""
        if process := self._find(incarnation):
            setattr(process.faults, what, not getattr(process.faults, what))

    def work(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.work()

    def fail_query(self, incarnation: str) -> None:
        if (process := self._find(incarnation)) and process.runs:
            process.fail_query()

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

    def isolate(self, consumer: str, how: str) -> None:
        """A person isolates a consumer or restores it, by key or by maintenance mode."""
        key = f"muster/c/isolated/{consumer}"
        if how == "maintenance":
            if service := self.consul.services.get(consumer):
                service.maintenance = not service.maintenance
        elif self.consul.keys.pop(key, None) is None:
            self.consul.keys[key] = (b"{}", self.consul.next())

    def pin(self, topic: str, partition: str, consumer: str) -> None:
        """A person pins a partition, or takes the pin back."""
        self._decide(f"pinned/{topic}/{partition}", {"consumer": consumer})

    def exclude(self, consumer: str, topic: str) -> None:
        """A person keeps a consumer from a topic, or takes that back."""
        self._decide(f"excluded/{consumer}/{topic}", {})

    def _decide(self, name: str, value: dict[str, str]) -> None:
        key = f"muster/c/{name}"
        if self.consul.keys.pop(key, None) is None:
            said = {**value, "who": "ann", "when": "2026-01-01T00:00:00+00:00", "why": "w"}
            self.consul.keys[key] = (json.dumps(said).encode(), self.consul.next())

    def forget(self, consumer: str) -> None:
        """Consul's agent loses a registration."""
        self.consul.services.pop(consumer, None)

    def empty_list(self, times: str) -> None:
        self.consul.empty = int(times)

    def consul_away(self) -> None:
        self.consul.away = not self.consul.away

    def zookeeper_away(self) -> None:
        self.zookeeper.away = not self.zookeeper.away

    def kafka_away(self) -> None:
        self.kafka.away = not self.kafka.away

    def partitions(self, topic: str, count: str) -> None:
        """From now on a topic has so many partitions."""
        now = frozenset(range(int(count)))
        self.kafka.vanished |= {(topic, p) for p in self.kafka.topics[topic] - now}
        self.kafka.topics[topic] = now

    def coordinate(self, name: str, until: str, how: str = "") -> None:
        """A coordinator goes on to a point. `how` is what is odd about its next calls."""
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
        self.coordinators[name].die()
        self.coordinators[name] = self._coordinator(name)

    def late_writes(self) -> None:
        """Writes that nobody knew of any more happen now."""
        for transitions in self.zookeeper.delayed:
            self.zookeeper.apply(transitions)
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
        """All faults are over; within `TICKS` rounds everything is Stable, read by its owner, and rests."""
        self.say("all faults are over")
        self._mend()
        for tick in range(TICKS):
            self.now += TICK
            # Somebody has to be there for each topic; who was replaced by a process that is dead ends, too.
            able = [c for c in IDS if c != self.only_u and not self._excluded(c)]
            if not any(p.alive and not p.ending.asked and p.id in able for p in self.processes):
                self.start(able[0])
            self.everybody()
            self.coordinators[COORDINATORS[tick % 2]].go_on("end")
            self.watchman.look()
            if self._settled() and not self._unrest():
                self._flows()
                self._obeys()
                return
        self.watchman.fail(f"not Stable {TICKS} rounds after all faults were over")

    def _mend(self) -> None:
        self.late_writes()
        self.consul.away = self.zookeeper.away = self.kafka.away = False
        self.consul.empty = 0
        decided = ("muster/c/pinned/", "muster/c/excluded/")
        self.consul.keys = {key: v for key, v in self.consul.keys.items() if key.startswith(decided)}
        if all(self._excluded(consumer) for consumer in IDS if consumer != self.only_u):
            self.consul.keys.clear()
        for service in self.consul.services.values():
            service.maintenance = False
        for process in self.processes:
            process.faults = Faults()
            process.api.answer_lost = False
        for coordinator in self.coordinators.values():
            coordinator.store.answer, coordinator.store.lag, coordinator.stale_answers = "comes", 0, False

    def _settled(self) -> bool:
        """Everything is Stable, each partition in the hands of its owner, and of nobody else, and nobody is waited
        for."""
        held: dict[TopicPartition, list[str]] = {}
        for process in self.processes:
            if process.alive:
                for key in process.held:
                    held.setdefault(key, []).append(process.id if key in process.running else "")
        wanted = {(topic, p) for topic, partitions in self.kafka.topics.items() for p in partitions}
        if any(p.alive and p.id not in self.consul.services for p in self.processes):
            return False
        return (
            all(topic in self.zookeeper.tree for topic in self.kafka.topics)
            and all(self._at_rest(topic) for topic in self.zookeeper.tree)
            and not any(
                p.alive and self.consul.services[p.id].incarnation != p.incarnation for p in self.processes
            )
            and held == {key: [self.zookeeper.owner(*key)] for key in wanted}
        )

    def _at_rest(self, topic: str) -> bool:
        snapshot = self.zookeeper.snapshot(topic, self.zookeeper.last)
        state = snapshot.state if isinstance(snapshot, TopicSnapshot) else None
        return state is not None and state.state is State.STABLE and not state.missing

    def _unrest(self) -> bool:
        """Whether a coordinator run still finds something to write."""
        before = self.zookeeper.last
        for coordinator in self.coordinators.values():
            coordinator.go_on("end")
        return self.zookeeper.last != before

    def _flows(self) -> None:
        before = dict(self.kafka.committed)
        for process in self.processes:
            if process.alive:
                process.work()
        for topic, partitions in self.kafka.topics.items():
            for partition in partitions:
                key = (topic, partition)
                if self.kafka.committed.get(key, 0) <= before.get(key, 0):
                    self.watchman.fail(f"all is Stable, but {key} does not flow")

    def _excluded(self, consumer: str) -> set[str]:
        """The topics that a person keeps a consumer from."""
        prefix = f"muster/c/excluded/{consumer}/"
        return {key.removeprefix(prefix) for key in self.consul.keys if key.startswith(prefix)}

    def _obeys(self) -> None:
        """Who reads what is as persons decided, as far as those they named are there."""
        live = {c for c in IDS if self.consul.live(c)}
        able = {
            topic: {c for c in live if topic not in self._excluded(c) and (c != self.only_u or topic == "u")}
            for topic in self.kafka.topics
        }
        for topic, partitions in self.kafka.topics.items():
            for partition in partitions:
                owner = self.zookeeper.owner(topic, partition)
                if able[topic] and owner not in able[topic]:
                    self.watchman.fail(f"{topic, partition} is with {owner}, which is excluded from it")
                value, _ = self.consul.keys.get(f"muster/c/pinned/{topic}/{partition}", (b"{}", 0))
                pinned = json.loads(value).get("consumer")
                if pinned in able[topic] and owner != pinned:
                    self.watchman.fail(f"{topic, partition} is with {owner}, but is pinned to {pinned}")

    def close(self) -> None:
        """End what is under way, and let others log again."""
        logging.disable(logging.NOTSET)
        for coordinator in self.coordinators.values():
            coordinator.die()


def _lists(by_consumer: Mapping[str, frozenset[int]]) -> dict[str, list[int]]:
    return {consumer: sorted(partitions) for consumer, partitions in by_consumer.items()}
