"""The stack with all that looks at it, and what happens to it in a week."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import httpx
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.silence import silent_logger
from muster.core.model import State, TopicSnapshot
from muster.core.progress import Look
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.consumer import default_dead_letter_topic
from tests.hosts.stack import Consumer
from tests.support.fault_score import Row, Score
from tests.support.fault_world import NOT_YET, FaultWorld
from tests.support.noted_batches import Away, Batches, Key, gaps
from tests.support.timed_numbers import NumberProducer
from tests.week.clock import DAY
from tests.week.growth import Growing, Growth
from tests.week.oracle import Key as Standing
from tests.week.oracle import Oracle
from tests.week.stack import ALPHA, BETA, CONSUMERS, FLOCK, FOREIGN, NAMED, WeekStack

T = TypeVar("T")

CLUSTERS = (ALPHA, BETA)
LONGEST = 120.0
"""Seconds until all partitions must flow again."""
TRICKLES = ("sought", "picky")
"""The topics that get a record a second; `busy` gets twenty a second, the others only what an event writes."""

UNFIT = ("shelved", "sought", "picky")
"""The topics that the foreign consumer does not get."""


class Group:
    """A cluster as one sees it from outside: its nodes and its keys."""

    def __init__(self, stack: WeekStack, name: str) -> None:
        zookeeper, consul, _ = stack.plain()
        settings = stack.clusters()[name]
        self.id = settings.group_id
        self.discovery = ConsulCluster.of(consul, settings)
        self._open = partial(TopicStore, zookeeper, name)
        self._store: TopicStore | None = None

    def close(self) -> None:
        """Disconnect."""
        if self._store is not None:
            self._store.__exit__(None, None, None)
        self._store = None

    def _read(self, read: Callable[[TopicStore], T]) -> T:
        """Read something in ZooKeeper. A restored one refuses those that have seen more of it, so after an error
        there is a new connection."""
        try:
            self._store = self._store or self._open().__enter__()
            return read(self._store)
        except ZooKeeperError:
            self.close()
            raise

    def looked(self) -> Look:
        """The coordinator's last look at Kafka's offsets, an empty one if ZooKeeper is out of reach."""
        try:
            return self._read(TopicStore.look)
        except ZooKeeperError:
            return Look()

    def topics(self) -> dict[str, TopicSnapshot]:
        """What ZooKeeper holds. AssertionError if something cannot be read."""
        found = self._read(TopicStore.snapshots)
        readable = {t: s for t, s in found.items() if isinstance(s, TopicSnapshot)}
        assert len(readable) == len(found), "a node cannot be read"
        return readable

    def owner(self, topic: str, partition: int) -> str:
        """The consumer that has a partition, '' for none."""
        assignment = self.topics()[topic].assignment
        return assignment.owners.get(partition, "") if assignment is not None else ""

    def live(self) -> set[str]:
        """The consumers that are live and not isolated."""
        membership = self.discovery.catalog.members().membership
        return set(membership.live) if membership is not None else set()


@dataclass
class World(FaultWorld):
    """What can happen to, and what is seen of it. A context manager."""

    stack: WeekStack
    longest: float = field(default=LONGEST, kw_only=True)
    groups: dict[str, Group] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    """The topics that there are, with their partitions."""
    poisons: set[tuple[str, int, int]] = field(default_factory=set)
    shelved: bool = False
    """Whether a person has paused `shelved`."""
    moved_at: float = 0.0
    """When partitions moved last, by what was done to consumers; in seconds since the epoch."""
    standing_poison: tuple[str, int, int] | None = None

    def __enter__(self) -> Self:
        """Have two clusters read."""
        self._exit = ExitStack()
        self._lock = threading.Lock()
        self._written: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.batches = Batches(self.stack.journal)
        servers = self.stack.kafka.address
        self.admin = AdminClient({"bootstrap.servers": servers}, logger=silent_logger())
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True}, logger=silent_logger()
        )
        self.create(NAMED)
        self.groups = {name: self._exit.enter_context(closing(Group(self.stack, name))) for name in CLUSTERS}
        for topic in UNFIT:
            why = "it knows neither pauses nor seeks nor poison"
            self.groups[BETA].discovery.overrides.exclude(FOREIGN, topic, "test", why, time.time())
        watched = {name: self._exit.enter_context(closing(Group(self.stack, name))) for name in CLUSTERS}
        self.oracle = Oracle(
            servers,
            {name: group.id for name, group in self.groups.items()},
            self.read_by,
            self._excused,
            self.stack.told,
            lambda cluster: watched[cluster].looked(),
        )
        self.growing = Growing(self.stack)
        self.busy = NumberProducer(servers, "busy", NAMED["busy"])
        self.busy.start()
        self._ended = threading.Event()
        trickling = threading.Thread(target=self._trickle, daemon=True, name="test-trickle")
        trickling.start()
        self._exit.callback(trickling.join, 30)
        self._exit.callback(self._ended.set)
        for topic in ("quiet", "shelved"):
            self.write(topic)
        for name in CLUSTERS:
            self.stack.coordination.start(name)
            for consumer in CONSUMERS[name]:
                self.stack.start_consumer(consumer)
        self.oracle.start()
        self._exit.callback(self.oracle.stop)
        self.eventually("all consumers share the partitions", self.well, 2 * LONGEST)
        self.began = time.time()
        self.oracle.judging = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what looks at the stack."""
        with suppress(AssertionError):
            self.end()
        self._exit.close()

    def end(self) -> None:
        """Write no more. AssertionError if something was not acknowledged."""
        self._ended.set()
        self.busy.stop()

    # -- what is there

    def read_by(self, cluster: str) -> dict[str, int]:
        """The topics that a cluster reads, with their partitions."""
        with self._lock:
            flock = cluster == BETA
            return {t: n for t, n in self.topics.items() if flock or not t.startswith(FLOCK)}

    def consumer(self, name: str) -> Consumer:
        """The newest process of a consumer. AssertionError if none runs."""
        found = self.stack.running(name)
        assert found, f"{name} does not run"
        return found[-1]

    def settled(self, without: Collection[str] = ()) -> bool:
        """Whether every topic is Stable and in the hands of live consumers, and all but those `without` are live."""
        return all(self._settled(name, without) for name in CLUSTERS)

    def _settled(self, name: str, without: Collection[str]) -> bool:
        found, wanted = self.groups[name].topics(), self.read_by(name)
        expected = set(CONSUMERS[name]) - set(without)
        return (
            found.keys() == wanted.keys()
            and self.groups[name].live() - set(without) == expected
            and all(self._owned(found[topic], wanted[topic], expected) for topic in wanted)
        )

    @staticmethod
    def _owned(topic: TopicSnapshot, partitions: int, expected: set[str]) -> bool:
        owners = topic.assignment.owners if topic.assignment is not None else {}
        of = set(owners.values())
        return topic.name is State.STABLE and owners.keys() == set(range(partitions)) and of <= expected

    def well(self) -> bool:
        return self.settled()

    def at_rest(self) -> bool:
        """Whether all is settled, and all that was written and may be read is committed."""
        since = time.time() - 2.0
        return self.settled() and all(self._caught_up(name, since) for name in CLUSTERS)

    def _caught_up(self, cluster: str, since: float) -> bool:
        # What a look did not find out must not count as read.
        keys = [(cluster, t, p) for t, count in self.read_by(cluster).items() for p in range(count)]
        ends, committed = self.ends(), self.oracle.committed
        return self.oracle.looked_at > since and all(
            committed.get(key, 0) >= ends[key[1:]] - self._moving(key[1])
            for key in keys
            if not self._excused(key)
        )

    def _moving(self, topic: str) -> int:
        """How many records a partition may lack, because it gets new ones all the time."""
        if self._ended.is_set():
            return 0
        return {"busy": 200, **dict.fromkeys(TRICKLES, 10)}.get(topic, 0)

    def ends(self) -> dict[tuple[str, int], int]:
        """Where each partition ends that was ever written to or is read, as far as Kafka has acknowledged it."""
        with self._lock:
            found = {(t, p): 0 for t, count in self.topics.items() for p in range(count)}
            found |= {key: len(times) for key, times in self._written.items()}
        return found | {("busy", p): end for p, end in self.busy.ends().items()}

    def committed(self, cluster: str, topic: str, partition: int) -> int:
        """Where a group is, by the last look; 0 where it has committed nothing."""
        return self.oracle.committed.get((cluster, topic, partition), 0)

    def describe(self) -> str:
        """How things stand, for messages."""
        try:
            behind = {
                key: self.oracle.ends[key] - self.oracle.committed.get(key, 0)
                for key in sorted(self.oracle.ends)
                if self.oracle.ends[key] > self.oracle.committed.get(key, 0) + self._moving(key[1])
            }
            states = {
                f"{name} {topic}": str(snapshot.name)
                for name, group in self.groups.items()
                for topic, snapshot in group.topics().items()
                if snapshot.name is not State.STABLE
            }
            live = {name: sorted(group.live()) for name, group in self.groups.items()}
        except NOT_YET as error:
            return f"how things stand cannot be seen: {error}"
        why = [self._why_not_stable(name) for name in {of.partition(" ")[0] for of in states}]
        return f"live {live}; not Stable {states} {' '.join(why)}; behind {behind}"

    def _why_not_stable(self, cluster: str) -> str:
        told = self.stack.told(cluster)
        with suppress(ValueError):
            found = json.loads(told)
            return json.dumps({key: found[key] for key in ("waiting", "stuck", "blind", "doubt")})
        return told

    def said(self, cluster: str, since: float, *words: str) -> bool:
        """Whether the coordinator of a cluster has said something since then that has these words in it."""
        said = self.stack.coordination.said(cluster, since)
        return any(all(word in line for word in words) for line in said)

    # -- what is done

    def flows(self, since: float) -> float:
        """Wait until what came to `busy` at `since` or later is committed everywhere."""

        def reached() -> float | None:
            first = self.busy.first_since(since)
            committed = self.oracle.committed
            keys = [(name, "busy", p) for name in CLUSTERS for p in range(NAMED["busy"])]
            beyond = all(committed.get(key, 0) > first[key[2]] for key in keys)
            return self.oracle.looked_at if beyond else None

        return self.eventually("all of busy is read on", reached, LONGEST) or since

    def create(self, topics: dict[str, int]) -> None:
        """Create topics, and have them read from now on. `picky` keeps its records, in few files: where all is
        slow, a person answers later than the week's retention takes."""
        kept = {"picky": {"retention.ms": "-1", "segment.ms": f"{2**31}"}}
        made = self.admin.create_topics(
            [NewTopic(topic, n, 1, config=kept.get(topic, {})) for topic, n in topics.items()]
        )
        for future in made.values():
            future.result(60)
        with self._lock:
            self.topics |= topics

    def forget(self, topics: Collection[str]) -> None:
        """Expect these topics to be read no more."""
        with self._lock:
            self.topics = {t: n for t, n in self.topics.items() if t not in topics}

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics, and wait until Kafka does not list them."""
        for future in self.admin.delete_topics(list(topics)).values():
            future.result(60)
        self.eventually(
            "they are not listed", lambda: not set(topics) & self.admin.list_topics(timeout=5).topics.keys()
        )

    def write(self, topic: str, **more: object) -> None:
        """Write a record to each partition of a topic."""
        for partition in range(self.topics[topic]):
            self.write_to(topic, partition, **more)

    def write_to(self, topic: str, partition: int, **more: object) -> int:
        """Write a record to a partition; return its offset. AssertionError if it is not acknowledged."""
        with self._lock:
            number = len(self._written[topic, partition])
            value = json.dumps({"number": number, "generation": 0, **more}).encode()
            self._producer.produce(topic, value, partition=partition)
            assert self._producer.flush(60) == 0, f"{topic} [{partition}]: not acknowledged"
            self._written[topic, partition].append(time.time())
            return number

    def read(self, topic: str) -> None:
        """Wait until all that stands in a topic now is committed."""
        wanted = {p: len(self._written[topic, p]) for p in range(self.topics[topic])}

        def all_read() -> bool:
            return all(
                self.committed(name, topic, p) >= end for name in CLUSTERS for p, end in wanted.items()
            )

        self.eventually(f"all of {topic} is read", all_read, LONGEST)

    def stop(self, name: str) -> None:
        """In order: the foreign one by the end of its input, the others by a request."""
        self.moved_at = time.time()
        if name == FOREIGN:
            assert self.stack.foreign is not None
            self.stack.foreign.leave()
            return
        consumer, discovery = self.consumer(name), self.groups[name.rpartition("-")[0]].discovery
        discovery.jobs.request_stop(name, consumer.incarnation, "test", "to see it leave", time.time())
        self.eventually(f"{name} has ended", lambda: not consumer.process.alive())

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.moved_at = time.time()
        consumer = self.consumer(name)
        self.batches.away.append(Away(time.time(), incarnation=consumer.incarnation))
        consumer.process.kill()

    @contextmanager
    def away(self, incarnation: str) -> Iterator[None]:
        """A process is out of reach inside."""
        since = time.time()
        gone = Away(since, incarnation=incarnation)
        self.batches.away.append(gone)
        try:
            yield
        finally:
            self.batches.away[self.batches.away.index(gone)] = Away(since, time.time(), incarnation)

    def restore_all(self) -> None:
        """What a fault that failed has left isolated or drained would spoil all later ones."""
        for group in self.groups.values():
            with suppress(*NOT_YET):
                found = group.discovery.overrides.read()
                for consumer in found.isolated:
                    group.discovery.overrides.restore(consumer)
                for consumer in found.drained:
                    group.discovery.overrides.undrain(consumer)

    def page(self, name: str) -> str:
        """The text of the status page of a consumer of beta."""
        there = self.groups[BETA].discovery.catalog.members().registered[name]
        return httpx.get(f"http://{there.address}:{there.port}/status", timeout=3, trust_env=False).text

    def _trickle(self) -> None:
        while not self._ended.wait(1.0):
            for topic in TRICKLES:
                with suppress(AssertionError, KafkaException):
                    self.write(topic)

    def _excused(self, key: Standing) -> bool:
        return key[1] == "shelved" and self.shelved

    # -- what comes of it

    def missing(self) -> dict[tuple[str, str, int], list[tuple[int, int]]]:
        """What was ever written, and never given to a handler that came to its end, but for poison records."""
        delivered = self.batches.delivered()
        found = {}
        for (topic, partition), end in self.ends().items():
            skipped = {o for t, p, o in self.poisons if (t, p) == (topic, partition)}
            for name in CLUSTERS if not topic.startswith(FLOCK) else (BETA,):
                key: Key = (name, topic, 0, partition)
                if lost := gaps(delivered.get(key, set()) | skipped, end):
                    found[name, topic, partition] = lost
        return found

    def dead_letters(self, cluster: str) -> int:
        """Count those of a cluster."""
        settings = {
            "bootstrap.servers": self.stack.kafka.address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        topic = default_dead_letter_topic(cluster)
        with closing(KafkaConsumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            found = 0
            while (message := consumer.poll(10)) is not None and message.error() is None:
                found += 1
            return found

    def grown(self) -> list[Growth]:
        """What the last day has of everything, beside the second day; nothing where there are no two days."""
        last = max(self.growing.days, default=0)
        return self.growing.between(2, last) if last > 2 else []

    def score(self) -> Score:
        """Of all that happened."""
        two = self.batches.double_owners()
        for early, late, key in two:
            print(
                f"two owners of {key}: {early.consumer} at {early.began:.3f}, {late.consumer} at {late.began:.3f}"
            )
        for standing, told in self.oracle.unnamed:
            topics = told.find('"waiting"')  # what is before it, lists topics and consumers
            print(
                f"unnamed: {standing}; muster status said {told[: told.find('{')] + told[max(topics, 0) :][:3000]}"
            )
        growth = self.grown()
        for each in growth:
            days = [f"{of.get(each.measure, 0):.0f}" for _, of in sorted(self.growing.days.items())]
            print(each, f"  day by day: {', '.join(days)}" if each.grew else "")
        lost = self._lost_at()
        rows = self.rows(lost, [late.began for _, late, _ in two])
        between = [
            sum(not any(window.covers(at) for window in self.windows) for at in times)
            for times in (lost, [late.began for _, late, _ in two])
        ]
        rows.append(Row("between two events", 0, between[0], 0, 0, between[1], 0.0))
        return Score(
            "week",
            rows,
            days=len(self.growing.days),
            unnamed=len(self.oracle.unnamed),
            growing=sum(each.grew for each in growth),
        )

    def doubled(self, since: float, until: float) -> int:
        return self.batches.doubled(since, until)

    def went_back(self, since: float, until: float) -> int:
        """Commits are not followed one by one here: a seek sets them back, and a deleted group removes them."""
        return 0

    def _lost_at(self) -> list[float]:
        found = []
        for (_, topic, partition), ranges in self.missing().items():
            times = self.busy.times[partition] if topic == "busy" else self._written[topic, partition]
            found += [times[n] for first, end in ranges for n in range(first, end)]
        return found

    # -- days

    def until(self, day: float) -> None:
        """Wait until so many days are over since the beginning."""
        end = self.began + day * DAY
        self.eventually(f"day {day:g} is over", lambda: time.time() >= end, DAY)
