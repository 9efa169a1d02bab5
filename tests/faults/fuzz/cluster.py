"""One cluster around a real coordinator: real edges over memory, consumers that obey, and whatever else is put there.

`good` topics and consumers are as they should be. `settles` plays runs until they are Stable, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.reports import AdvanceReport, ConsumersReport, PlanReport
from muster.core.assignors import load_assignor
from muster.core.model import Consumer, ConsumerStatus, State
from muster.core.wire import WireError
from muster.edges.status import StatusFailure
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings
from tests.faults.model.consul import Api, Servers, Service, SimulatedConsul
from tests.support.simulated import SimulatedConsumer, SimulatedStore

CLUSTER = "c"
KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})
ROUNDS = 8

logging.getLogger("muster").addHandler(logging.NullHandler())


class _Lister:
    def __init__(self, topics: dict[str, int], racks: dict[str, dict[int, str]]) -> None:
        self.topics = topics
        self.racks = racks

    def list_partitions(self) -> dict[str, frozenset[int]]:
        return {topic: frozenset(range(count)) for topic, count in self.topics.items()}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: f"id-of-{topic}" for topic in topics if topic in self.topics}

    def leader_racks(self) -> dict[str, dict[int, str]]:
        return self.racks


class Cluster:
    """`topics` maps names to numbers of partitions; `good` are those that have to become Stable."""

    def __init__(
        self,
        topics: Mapping[str, int],
        good: Iterable[str],
        consumers: Iterable[str] = ("a", "b"),
        assignor: str = "sticky",
    ) -> None:
        self.good = tuple(good)
        self.topics = dict(topics)
        self.store = SimulatedStore(cluster=CLUSTER)
        self.zookeeper = self.store.zookeeper
        self.servers = Servers()
        self.discovery = SimulatedConsul(Api(self.servers))
        self.now = 1_700_000_000.0
        self.store.clock = lambda: self.now
        self.incarnations: dict[str, str] = {}
        self.consumers: dict[str, SimulatedConsumer] = {}
        self.racks: dict[str, dict[int, str]] = {}
        self.answer: Callable[[str], ConsumerStatus | StatusFailure] = self._answer
        self.settings = ClusterSettings.model_validate(
            {
                "name": CLUSTER,
                "consul_service": "consumers",
                "group_id": "g",
                "topics": {"names": sorted(self.topics) or ["none"]},
                "consumers": {"handler": "a.b"},
                "stuck_after": 1,
            }
        )
        for consumer in consumers:
            self.join(consumer)
        self.coordinator = Coordinator(
            self.settings,
            KAFKA,
            self.store,
            self.discovery.catalog,
            self.discovery.overrides,
            _Lister(self.topics, self.racks),
            self.poll,
            load_assignor(assignor, {}),
            clock=lambda: self.now,
            pause=self.pause,
        )
        self.errors: dict[str, str] = {}
        self.warnings: set[str] = set()
        self.plan: PlanReport | None = None
        self.last: AdvanceReport | None = None

    def join(self, consumer: str, meta: Mapping[str, str] | None = None) -> None:
        self.consumers[consumer] = SimulatedConsumer(consumer)
        self.servers.services[consumer] = Service(
            consumer, "127.0.0.1", 80, {"incarnation": "one", **(meta or {})}, True, self.servers.next()
        )

    def key(self, name: str, value: bytes) -> None:
        self.servers.keys[f"muster/{CLUSTER}/{name}"] = (value, self.servers.next())

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for consumer in self.consumers.values():
            consumer.obey(self.store)

    def poll(
        self, consumers: Iterable[Consumer], timeout: float, topics: object = None
    ) -> dict[str, ConsumerStatus | StatusFailure]:
        return {consumer.id: self.answer(consumer.id) for consumer in consumers}

    def _answer(self, consumer: str) -> ConsumerStatus | StatusFailure:
        there = self.consumers.get(consumer)
        if there is None:
            return StatusFailure(consumer, "nobody is there")
        return replace(there.status(), incarnation=self.incarnations.get(consumer, "one"))

    def run(self) -> None:
        """One run: the four tasks, and what they tell."""
        fetched = self.coordinator.fetch_partitions()
        ConsumersReport.of(self.discovery.catalog.members())
        self.plan = self.coordinator.compute_assignment()
        self.errors |= fetched.errors | self.plan.errors
        self.warnings |= {*fetched.warnings, *self.plan.warnings}
        # What a run tells goes through Airflow as JSON text.
        for report in (fetched, self.plan):
            str(report.as_dict()).encode()
        if self.plan.needed:
            self.last = self.coordinator.advance(3)
            str(self.last.as_dict()).encode()
            self.warnings |= set(self.last.warnings)
            self.errors |= self.last.errors

    def settles(self) -> None:
        """Run until all good topics are Stable and run by their owners; fails if they do not become so."""
        for _ in range(ROUNDS):
            self.run()
            self.pause(1)
            if all(self.stable(topic) for topic in self.good):
                return
        late = {topic: self.snapshot(topic) for topic in self.good if not self.stable(topic)}
        raise AssertionError(f"not Stable: {late}, {self.plan}, {self.last}")

    def snapshot(self, topic: str) -> Any:
        return self.store.snapshots().get(topic)

    def stable(self, topic: str) -> bool:
        """Whether the topic is Stable, and each partition run by its owner."""
        found = self.snapshot(topic)
        if found is None or isinstance(found, WireError) or found.state is None or found.assignment is None:
            return False
        owners = found.assignment.owners
        running = {tp for consumer in self.consumers.values() for tp in consumer.running if tp[0] == topic}
        return (
            found.state.state is State.STABLE
            and owners.keys() == set(range(self.topics[topic]))
            and running == {(topic, p) for p in owners}
            and all((topic, p) in self.consumers[c].running for p, c in owners.items())
        )
