"""The stack with all that looks at it, and what faults do to it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx
from confluent_kafka import KafkaException, Node
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError as ClientError
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kazoo.client import KazooClient

from devstack.demo.cluster_view import ClusterView
from devstack.silence import silent_logger
from muster.edges.consul import ConsulCluster
from tests.hosts.stack import ALPHA, BETA, HOSTS, LONG, NUMBERS, PARTITIONS, VOLATILE, Consumer, HostStack
from tests.support.commit_log import CommitLog
from tests.support.fault_score import Score
from tests.support.fault_world import NOT_YET, FaultWorld
from tests.support.noted_batches import Away, Batches, gaps
from tests.support.timed_numbers import NumberProducer

CLUSTERS = (ALPHA, BETA)
TOPICS = (NUMBERS, VOLATILE)
LONGEST = 240.0 if LONG else 120.0
"""Seconds until all partitions must flow again."""
PLANNED_WITHIN, BEGUN_WITHIN = 5.0, 3.0
"""Seconds for the coordinator to plan a topic whose nodes are gone, and for a consumer to begin with what it gets. A
partition that is given away while another consumer still reads it is given away within these."""


class Group:
    """A cluster as one sees it from outside: its assignment, its keys, its commits."""

    def __init__(self, stack: HostStack, name: str) -> None:
        settings = stack.clusters()[name]
        self.name = name
        self.id = settings.group_id
        self.discovery = ConsulCluster.of(stack.consul_settings, settings)
        self.view = ClusterView(
            settings, stack.zookeeper_settings, stack.consul_settings, stack.kafka_settings
        )
        self.commits = {topic: CommitLog(stack.brokers.servers, self.id, topic) for topic in TOPICS}

    @property
    def consumers(self) -> list[str]:
        """Their ids; the first one is at home on host 1, and so on."""
        return [f"{self.name}-{number}" for number in range(1, HOSTS + 1)]


@dataclass
class World(FaultWorld):
    """What a fault can be done to, and what is seen of it. A context manager."""

    stack: HostStack
    longest: float = field(default=LONGEST, kw_only=True)
    groups: dict[str, Group] = field(default_factory=dict)
    producers: dict[str, NumberProducer] = field(default_factory=dict)
    assignors: set[str] = field(default_factory=set)
    lost: list[tuple[float, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Have two clusters read two topics."""
        self._exit = ExitStack()
        self.batches = Batches(self.stack.journal)
        self.admin = AdminClient({"bootstrap.servers": self.stack.brokers.servers}, logger=silent_logger())
        for topic, partitions in PARTITIONS.items():
            self.create_topic(topic, partitions)
        self.groups = {name: Group(self.stack, name) for name in CLUSTERS}
        for group in self.groups.values():
            self._exit.enter_context(group.view)
            for log in group.commits.values():
                log.start()
                self._exit.callback(log.stop)
        for topic in TOPICS:
            self.produce(topic)
        for name in CLUSTERS:
            self.stack.coordination.start(name)
            for number, consumer in enumerate(self.groups[name].consumers, 1):
                self.stack.start_consumer(consumer, number)
        self.eventually("all consumers share the partitions", self.settled, 2 * LONGEST)
        self.assignors.add("sticky")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what looks at the stack."""
        for producer in self.producers.values():
            with suppress(AssertionError):
                producer.stop()
        self._exit.close()

    # -- what is there

    def consumer(self, name: str) -> Consumer:
        """The newest process of a consumer. AssertionError if none runs."""
        found = self.stack.running(name)
        assert found, f"{name} does not run"
        return found[-1]

    def held(self, name: str, topic: str = NUMBERS) -> set[int]:
        """The partitions that a consumer has."""
        owners = self.groups[name.rpartition("-")[0]].view.owners(topic)
        return {partition for partition, consumer in owners.items() if consumer == name}

    def status(self, consumer: Consumer) -> dict[str, Any]:
        """Its status page. AssertionError if it is not registered, httpx.HTTPError if it does not answer."""
        group = self.groups[consumer.id.rpartition("-")[0]]
        there = group.discovery.catalog.members().registered.get(consumer.id)
        assert there is not None, f"{consumer.id} is not registered"
        assert there.incarnation == consumer.incarnation, (
            f"{there.incarnation} is registered as {consumer.id}"
        )
        answer = httpx.get(f"http://{there.address}:{there.port}/status", timeout=3, trust_env=False)
        return dict(answer.json())

    def partitions(self, topic: str) -> set[int]:
        """Those that are produced to."""
        return set(self.producers[topic].times)

    def settled(self, without: Collection[str] = ()) -> bool:
        """Whether every topic is Stable and in the hands of live consumers, and all but those `without` are live and
        have something, if the assignor gives something to all."""
        return all(self._settled(group, topic, without) for group in self.groups.values() for topic in TOPICS)

    def well(self) -> bool:
        """Whether all is settled, and one more broker or server of Consul may be lost: every broker has every record,
        and Consul's leader, which removes a server that has failed, has taken it back among those that vote."""
        topics = self.admin.list_topics(timeout=5).topics.values()
        in_sync = all(len(p.isrs) == HOSTS for topic in topics for p in topic.partitions.values())
        spare = self.stack.consuls.failure_tolerance() > 0
        if not spare:
            self.stack.consuls.rejoin()
        return in_sync and spare and self.settled()

    def _settled(self, group: Group, topic: str, without: Collection[str]) -> bool:
        expected = set(group.consumers) - set(without)
        owners = group.view.owners(topic)
        return (
            group.view.stable(topic)
            and owners.keys() == self.partitions(topic)
            and group.view.live() - set(without) == expected
            and set(owners.values()) <= expected
        )

    def even(self, cluster: str) -> bool:
        """Whether the cluster's consumers have about as much each of `numbers`, as sticky would have it."""
        shares = list(self.groups[cluster].view.shares(NUMBERS).values())
        return len(shares) == HOSTS and max(shares) - min(shares) <= 1

    def describe(self) -> str:
        """How things stand, for messages."""
        try:
            told = [
                f"{group.name}: {group.view.describe(topic)}, owners {group.view.owners(topic)}, lag "
                f"{self._lag(group, topic)}"
                for group in self.groups.values()
                for topic in TOPICS
            ]
            return "; ".join(told)
        except NOT_YET as error:
            return f"how things stand cannot be seen: {error}"

    def _lag(self, group: Group, topic: str) -> dict[int, int]:
        committed = group.commits[topic].committed()
        return {p: len(t) - committed.get(p, 0) for p, t in sorted(self.producers[topic].times.items())}

    def said(self, cluster: str, since: float, *words: str) -> bool:
        """Whether the coordinator of a cluster has said something since then that has these words in it."""
        said = self.stack.coordination.said(cluster, since)
        return any(all(word in line for word in words) for line in said)

    def names(self, consumer: str, since: float) -> bool:
        """Whether it was reported to a person since then that `consumer` holds up something."""
        return self.said(consumer.rpartition("-")[0], since, consumer, "stuck_after")

    def planned_by(self, cluster: str, assignor: str, since: float) -> bool:
        """Whether `assignor` has planned since then, and what it planned is carried out."""
        return self.settled() and self.said(cluster, since, f"assignor {assignor} ")

    def epochs(self, cluster: str) -> dict[str, int]:
        """Of each topic; it grows whenever owners change."""
        found = {topic: self.groups[cluster].view.topic(topic) for topic in TOPICS}
        return {t: s.assignment.epoch for t, s in found.items() if s is not None and s.assignment is not None}

    def group_coordinator(self, cluster: str) -> int:
        """The broker that keeps the offsets of a cluster's group."""
        group = self.groups[cluster].id

        def coordinator() -> Node:
            # A new client: librdkafka (2.16) keeps a group's coordinator for minutes, also when that says it is none.
            admin = AdminClient({"bootstrap.servers": self.stack.brokers.servers}, logger=silent_logger())
            return admin.describe_consumer_groups([group])[group].result(30).coordinator

        return int(self.eventually("Kafka names the group's coordinator", coordinator).id)

    def produced(self, topic: str) -> list[int]:
        """How many records each partition has, as far as Kafka has acknowledged them."""
        return list(self.producers[topic].ends().values())

    def committed_since(self, cluster: str, topic: str, partition: int, since: float) -> bool:
        """Whether what was produced since then is committed."""
        return self._reached(cluster, topic, partition, since) is not None

    # -- what is done

    def flows(self, since: float, clusters: Collection[str] = CLUSTERS) -> float:
        """Wait until what was produced at `since` or later is committed everywhere; returns when it was."""
        when = [since]
        for name in clusters:
            for topic in TOPICS:
                for partition in sorted(self.partitions(topic)):
                    what = f"{name} has committed {topic} [{partition}]"
                    reached = partial(self._reached, name, topic, partition, since)
                    when.append(self.eventually(what, reached, LONGEST))
        return max(when)

    def _reached(self, name: str, topic: str, partition: int, since: float) -> float | None:
        first = self.producers[topic].first_since(since)[partition]
        return self.groups[name].commits[topic].reached(partition, first)

    @contextmanager
    def away(self, *, incarnation: str | None = None, host: int | None = None) -> Iterator[None]:
        """A process, or all on a host, are out of reach inside."""
        since = time.time()
        gone = Away(since, incarnation=incarnation, host=host)
        self.batches.away.append(gone)
        try:
            yield
        finally:
            self.batches.away[self.batches.away.index(gone)] = Away(since, time.time(), incarnation, host)

    @contextmanager
    def cut(self, host: int) -> Iterator[None]:
        """A host is cut off inside."""
        with self.away(host=host), self.stack.hosts.off(self.stack.hosts[host]):
            yield

    @contextmanager
    def one_way(self, source: int, target: int) -> Iterator[None]:
        """What host `source` sends to `target` is lost inside."""
        hosts = self.stack.hosts
        with self.away(host=source), hosts.one_way(hosts[source], hosts[target]):
            yield

    @contextmanager
    def hanging(self, name: str, topic: str = NUMBERS) -> Iterator[Consumer]:
        """The handler of a consumer does not come to its end inside; a batch of `topic` is under way."""
        consumer, file = self.consumer(name), self.stack.folder / "hang" / name
        file.touch()
        try:
            self.eventually(f"a batch of {name} hangs", lambda: self._hangs(consumer, topic))
            yield consumer
        finally:
            file.unlink(missing_ok=True)

    def _hangs(self, consumer: Consumer, topic: str) -> bool:
        own = [batch for batch in self.batches.all() if batch.incarnation == consumer.incarnation]
        return bool(own) and own[-1].ended is None and any(key[1] == topic for key in own[-1].ranges)

    @contextmanager
    def moving(self, cluster: str) -> Iterator[None]:
        """A partition of `numbers` moves in order, and is not closed before the end of the block: its owner's batch
        takes that long."""
        group = self.groups[cluster]
        owners = self.eventually("the owners", lambda: group.view.owners(NUMBERS))
        source = owners[0]
        target = next(one for one in group.consumers if one != source)
        with self.hanging(source):
            group.discovery.overrides.pin(NUMBERS, 0, target, "test", "a planned move", time.time())
            self.eventually("the move has begun", lambda: not group.view.stable(NUMBERS))
            yield
        self.eventually("the move is done", lambda: self.settled() and 0 in self.held(target), LONGEST)
        self.eventually("the pin is taken back", lambda: group.discovery.overrides.unpin(NUMBERS, 0))
        self.eventually("all is well after it", self.settled, LONGEST)

    def delete(self, *paths: str) -> None:
        """Delete these nodes in ZooKeeper, with all below them, as a person with a shell might."""
        client = KazooClient(hosts=self.stack.zookeeper_settings.hosts)
        client.start()
        try:
            for path in paths:
                client.delete(path, recursive=True)
        finally:
            client.stop()
            client.close()

    def left_alone(self, cluster: str) -> None:
        """Give the coordinator time to plan `numbers` again, and who is named then to begin. It may wait instead."""
        until = time.monotonic() + PLANNED_WITHIN
        view = self.groups[cluster].view
        while time.monotonic() < until:
            with suppress(*NOT_YET):
                snapshot = view.topic(NUMBERS)
                if snapshot is not None and snapshot.state is not None:
                    break
            time.sleep(0.1)
        time.sleep(BEGUN_WITHIN)

    def stop(self, consumer: Consumer) -> None:
        """In order, by a request, as the DAG's task does."""
        discovery = self.groups[consumer.id.rpartition("-")[0]].discovery
        discovery.jobs.request_stop(consumer.id, consumer.incarnation, "test", "to see it leave", time.time())
        self.eventually(f"{consumer.id} has ended", lambda: not consumer.process.alive())

    def kill(self, consumer: Consumer) -> None:
        """SIGKILL."""
        self.batches.away.append(Away(time.time(), incarnation=consumer.incarnation))
        consumer.process.kill()

    def taken_over(self, gone: Collection[str]) -> None:
        """Wait until these count as gone and the others have all, without `rebalance_delay` where there is one."""
        self.eventually(
            f"{', '.join(gone)} count as gone",
            lambda: not any(one in group.view.live() for group in self.groups.values() for one in gone),
            LONGEST,
        )
        for group in self.groups.values():
            if group.view.cluster.rebalance_delay and any(one in group.consumers for one in gone):
                group.discovery.overrides.ask_for_rebalance("test", "not to wait", time.time())
        self.eventually("the others have all", lambda: self.settled(gone), LONGEST)

    def isolate(self, consumer: str) -> None:
        """As the form does, without the DAG around it."""
        discovery = self.groups[consumer.rpartition("-")[0]].discovery
        assert discovery.overrides.isolate(consumer, by="test", why="a planned move", at=time.time())

    def restore(self, consumer: str) -> None:
        """The same, back."""
        assert self.groups[consumer.rpartition("-")[0]].discovery.overrides.restore(consumer)

    def restore_all(self) -> None:
        """What a fault that failed has left isolated, hanging or cut off would spoil all later ones."""
        for file in (self.stack.folder / "hang").iterdir():
            file.unlink()
        for group in self.groups.values():
            with suppress(*NOT_YET):
                for consumer in group.discovery.overrides.isolated():
                    group.discovery.overrides.restore(consumer)

    def choose(self, cluster: str, assignor: str) -> None:
        """Plan with another assignor from now on."""
        self.groups[cluster].discovery.overrides.choose_assignor(
            assignor, {}, "test", "to see it work", time.time()
        )
        self.assignors.add(assignor)

    # -- topics

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create it on all brokers; one of that name that is being deleted is waited for."""

        def created() -> bool:
            try:
                self.admin.create_topics([NewTopic(topic, partitions, HOSTS)])[topic].result(30)
            except KafkaException as error:
                assert error.args[0].code() == ClientError.TOPIC_ALREADY_EXISTS, error
                return False
            return True

        self.eventually(f"topic {topic} is created", created)

    def produce(self, topic: str, generation: int = 0, at_once: int = 1) -> None:
        """Produce to a topic that was created."""
        producer = NumberProducer(
            self.stack.brokers.servers, topic, PARTITIONS[topic], at_once=at_once, generation=generation
        )
        self.producers[topic] = producer
        producer.start()

    def recreate(self, topic: str, at_once: int = 1) -> None:
        """Delete it under load and create it again; what comes then is of the next generation."""
        before = self.producers[topic]
        before.stop()
        self.admin.delete_topics([topic])[topic].result(30)
        self.create_topic(topic, PARTITIONS[topic])
        self.produce(topic, before.generation + 1, at_once)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """So many from now on."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        producer = self.producers[topic]

        def grown() -> bool:
            producer.grow(partitions)
            return True

        self.eventually("the producer knows the new partitions", grown)

    # -- what comes of it

    def missing(self) -> dict[str, list[tuple[int, int]]]:
        """What was produced to the topics that there are, and never given to a handler that came to its end."""
        delivered = self.batches.delivered()
        found = {}
        for name in CLUSTERS:
            for topic, producer in self.producers.items():
                for partition, produced in producer.ends().items():
                    key = (name, topic, producer.generation, partition)
                    if lost := gaps(delivered.get(key, set()), produced):
                        found[f"{name} {topic} [{partition}]"] = lost
        return found

    def score(self) -> Score:
        """Of all faults so far."""
        two = self.batches.double_owners()
        for early, late, key in two:
            print(f"two owners of {key}: {early.consumer}@{early.host} began {early.began:.3f}, "
                  f"{late.consumer}@{late.host} began {late.began:.3f}")  # fmt: skip
        rows = self.rows(self._lost_at(), [late.began for _, late, _ in two])
        return Score("hosts", rows, len(list(self.stack.hosts)), sorted(self.assignors))

    def doubled(self, since: float, until: float) -> int:
        return self.batches.doubled(since, until)

    def went_back(self, since: float, until: float) -> int:
        logs = [log for group in self.groups.values() for log in group.commits.values()]
        return sum(log.went_back(since, until) for log in logs)

    def steps_back(self) -> list[str]:
        """Each commit that was lower than one before it, in words."""
        return [
            f"{group.id}, topic {topic}, partition {late.partition}: {before} and then {late}"
            for group in self.groups.values()
            for topic, log in group.commits.items()
            for before, late in log.steps_back
        ]

    def _lost_at(self) -> list[float]:
        """When each record that was lost was produced."""
        found = []
        for where, ranges in self.missing().items():
            _, topic, partition = where.replace("[", "").replace("]", "").split()
            times = self.producers[topic].times[int(partition)]
            found += [times[min(n, len(times) - 1)] for first, end in ranges for n in range(first, end)]
        return found
