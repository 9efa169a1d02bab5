"""The stack with all that looks at it, and what faults do to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from devstack.airflow_api import AirflowApi
from devstack.demo.cluster_view import ClusterView
from muster.cluster.reader import read_once
from muster.cluster.reading import SourceName
from muster.cluster.state import ClusterState
from muster.consumer.state.codec import unpack
from muster.consumer.state.position import KEY
from muster.core.model import State, TopicSnapshot
from muster.edges.consul import ConsulCluster
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.edges.status import poll_statuses
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings
from tests.faults.real.deliveries import Journal
from tests.faults.real.stack import CLUSTER, CONSUMERS, PARTITIONS, STUCK_AFTER, TOPIC, FaultStack
from tests.support.commit_log import CommitLog
from tests.support.consumer_processes import Job
from tests.support.delta_rows import delta_rows
from tests.support.fault_score import Score
from tests.support.fault_world import NOT_YET, FaultWorld
from tests.support.sources import StandIns
from tests.support.standstills import Standstills
from tests.support.timed_numbers import NumberProducer

CONSUMERS_DAG, COORDINATOR_DAG = f"muster_consumers__{CLUSTER}", f"muster_coordinator__{CLUSTER}"


NAMED_WITHIN = 40.0
"""Seconds beyond `stuck_after` for the next look and the run that makes it, on a busy machine."""


@dataclass
class World(FaultWorld):
    """What a fault can be done to, and what is seen of it."""

    stack: FaultStack
    api: AirflowApi
    cluster: ClusterSettings
    view: ClusterView
    discovery: ConsulCluster
    producer: NumberProducer
    commits: CommitLog
    journal: Journal

    def __post_init__(self) -> None:
        self.standstills = Standstills(
            TOPIC,
            self.commits.committed,
            lambda: {p: len(times) for p, times in list(self.producer.times.items())},
            self.cluster_state,
            STUCK_AFTER + NAMED_WITHIN,
        )

    # -- what is there

    def job(self, number: int) -> Job:
        """The job of consumer `number`, from 1."""
        return Job(self.discovery, f"{CLUSTER}-{number}")

    def numbers(self) -> range:
        """Of all consumers."""
        return range(1, CONSUMERS + 1)

    def snapshot(self) -> TopicSnapshot:
        """What ZooKeeper holds."""
        found = self.view.topic(TOPIC)
        assert found is not None, "the topic is not in ZooKeeper"
        return found

    def held(self, number: int) -> set[int]:
        """The partitions that consumer `number` has; none for 0, which is no consumer."""
        owners = self.view.owners(TOPIC)
        return {partition for partition, consumer in owners.items() if consumer == f"{CLUSTER}-{number}"}

    def status(self, number: int) -> dict[str, Any]:
        """The status page of consumer `number`."""
        there = self.discovery.catalog.members().registered.get(f"{CLUSTER}-{number}")
        assert there is not None, f"consumer {number} is not registered"
        answer = httpx.get(f"http://{there.address}:{there.port}/status", timeout=5, trust_env=False)
        return dict(answer.json())

    def state(self) -> State:
        """Of the topic."""
        return self.snapshot().name

    def even(self) -> bool:
        """Whether all consumers are live and share the partitions, and the topic is Stable."""
        share = PARTITIONS // CONSUMERS
        shares = sorted(self.view.shares(TOPIC).values())
        return (
            self.state() is State.STABLE
            and shares == [share] * CONSUMERS
            and len(self.view.live()) == CONSUMERS
        )

    def well(self) -> bool:
        return self.even()

    def describe(self) -> str:
        """How things stand, for messages."""
        try:
            lag = {
                partition: len(times) - self.commits.committed().get(partition, 0)
                for partition, times in self.producer.times.items()
            }
            return f"{self.view.describe(TOPIC)}; lag {lag}"
        except NOT_YET as error:
            return f"it cannot be told how things stand: {error}"

    # -- what is done

    def flows(self, since: float, partitions: Collection[int] = range(PARTITIONS)) -> float:
        """Wait until what was produced at `since` or later is committed in all `partitions`; returns when it was."""
        when: list[float] = []
        for partition in partitions:
            what = f"partition {partition} flows"
            when.append(
                self.eventually(what, partial(self._reached, partition, since), self.longest) or since
            )
        return max(when)

    def flows_on(self, seconds: float, partitions: Collection[int] = range(PARTITIONS)) -> None:
        """Wait until what is produced `seconds` from now has been committed in all `partitions`."""
        self.flows(time.time() + seconds, partitions)

    def _reached(self, partition: int, since: float) -> float | None:
        if time.time() < since:
            return None
        return self.commits.reached(partition, self.producer.first_since(since)[partition])

    def isolate(self, number: int) -> None:
        """As the form does, without the DAG around it."""
        assert self.discovery.overrides.isolate(
            f"{CLUSTER}-{number}", by="test", why="a planned move", at=time.time()
        )

    def restore(self, number: int) -> None:
        """The same, back."""
        assert self.discovery.overrides.restore(f"{CLUSTER}-{number}")

    def restore_all(self) -> None:
        """Whatever a fault that failed has left isolated would spoil all later ones."""
        with suppress(*NOT_YET):
            for consumer in self.discovery.overrides.isolated():
                self.discovery.overrides.restore(consumer)

    def settled(self, without: int) -> bool:
        """Whether consumer `without` has nothing, and the topic is Stable."""
        shares = self.view.shares(TOPIC)
        return self.state() is State.STABLE and f"{CLUSTER}-{without}" not in shares

    @contextmanager
    def cut_from_zookeeper(self, number: int) -> Iterator[None]:
        """Nothing passes between consumer `number` and any ZooKeeper server."""
        session = self.job(number).session
        with ExitStack() as stack:
            for proxy in self.stack.zookeeper_proxies:
                stack.enter_context(proxy.cut(session))
            yield

    @contextmanager
    def nothing_else_pauses(self, number: int) -> Iterator[None]:
        """A partition that is neither taken from consumer `number` nor given to it is not passed over."""
        before = self.eventually("the owners", lambda: self.view.owners(TOPIC))
        registered = self.discovery.catalog.members().registered
        began = time.time()
        yield
        until = time.time()
        after = self.eventually("the owners", lambda: self.view.owners(TOPIC))
        own = f"{CLUSTER}-{number}"
        stayed = {p: c for p, c in before.items() if after.get(p) == c != own}
        expected = PARTITIONS - PARTITIONS // CONSUMERS if number else PARTITIONS
        assert len(stayed) >= expected, f"only {sorted(stayed)} stayed where they were"
        for partition, consumer in stayed.items():
            pid = int(registered[consumer].meta["pid"])
            passed = self.journal.passed_over(pid, partition, began, until)
            assert passed <= 1, (
                f"partition {partition} did not move, and {passed} batches in a row passed it over"
            )

    def task_of(self, number: int) -> dict[str, Any]:
        """The task instance that has consumer `number` running."""
        run = self.api.runs(CONSUMERS_DAG, 1)[0]["dag_run_id"]
        found = self.api.task_instances(CONSUMERS_DAG, run)
        return next(task for task in found if task["map_index"] == number - 1)

    # -- what comes of it

    def doubled(self, since: float, until: float) -> int:
        return self.journal.doubled(since, until)

    def went_back(self, since: float, until: float) -> int:
        return self.commits.went_back(since, until)

    def score(self, lost: dict[int, set[int]]) -> Score:
        """Of all faults so far. `lost` are the numbers that never arrived, by partition."""
        times = self.producer.times
        rows = self.rows([times[p][number] for p, numbers in lost.items() for number in numbers])
        print(f"{self.standstills.seen} partitions had to be named, {len(self.standstills.unnamed)} were not")
        return Score("faults", rows, unnamed=len(self.standstills.unnamed))

    def cluster_state(self) -> ClusterState:
        """What a person sees who looks at the cluster now."""
        with TopicStore(self.view.zookeeper, self.cluster.name, read_only=True) as store:
            sources: Any = StandIns(store, self.discovery, poll_statuses)
            places = (SourceName.ZOOKEEPER, SourceName.CONSUL, SourceName.CONSUMERS, SourceName.PROGRESS)
            return ClusterState(self.cluster, read_once(self.cluster, sources, places), time.time())

    def in_sink(self) -> dict[int, list[int]]:
        """Offsets of all rows in the sink, by partition, as often as they stand there.

        A process of its own reads them: threads that Arrow and `deltalake` made here before the disk was mounted do
        not see it.
        """
        command = [sys.executable, "-m", "tests.support.delta_rows", str(self.stack.disk.folder)]
        result = subprocess.run([*command, "partition", "offset"], capture_output=True, text=True, check=True)
        found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        for partition, offset in json.loads(result.stdout):
            found[partition].append(offset)
        return found

    @property
    def kafka(self) -> KafkaSettings:
        """The broker."""
        return KafkaSettings(config={"bootstrap.servers": self.stack.kafka_proxy.address})

    def counted(self) -> dict[int, int]:
        """What the changelog has of each partition: how many numbers were counted."""
        found = {}
        for partition in range(PARTITIONS):
            name = changelog_topic(CLUSTER, TOPIC)
            with closing(ChangelogReader(self.kafka, "look", name, partition)) as reader:
                there = dict(record for read in reader.read(0) for record in read.records)
            there.pop(KEY, None)
            found[partition] = sum(unpack(value)[0] for value in there.values() if value is not None)
        return found

    def stored_counts(self, produced: Mapping[int, int]) -> dict[int, list[int]]:
        """The counts of each partition in the table of counts, in the order of the output; none before the last of
        each is there."""
        found: dict[int, list[int]] = {partition: [] for partition in produced}
        for _, value in delta_rows(self.stack.counts, "offset", "value"):
            partition, count = map(int, value.split())  # type: ignore[attr-defined]
            found[partition].append(count)
        there = {partition: max(counts, default=0) for partition, counts in found.items()}
        return found if there == produced else {}

    def close(self) -> None:
        """End what looks at the stack."""
        with suppress(AssertionError):
            self.producer.stop()
        self.standstills.stop()
        self.commits.stop()
