"""The stack with all that looks at it, and what faults have in common: one is done, is over, and all flows again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import httpx
import psutil
import pyarrow.parquet as pq
from confluent_kafka import KafkaException

from devstack.airflow_api import AirflowApi
from devstack.demo.cluster_view import ClusterView
from devstack.errors import DevstackError
from muster.core.model import State, TopicSnapshot
from muster.edges.consul import ConsulError, Discovery
from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import ClusterSettings
from tests.faults.real.commit_log import CommitLog
from tests.faults.real.deliveries import Journal
from tests.faults.real.jobs import Job
from tests.faults.real.matrix import Row
from tests.faults.real.numbers import NumberProducer
from tests.faults.real.stack import CLUSTER, CONSUMERS, PARTITIONS, TOPIC, FaultStack
from tests.faults.real.window import Window

T = TypeVar("T")

CONSUMERS_DAG, COORDINATOR_DAG = f"muster_consumers__{CLUSTER}", f"muster_coordinator__{CLUSTER}"
NOT_YET = (
    *(AssertionError, ConsulError, DevstackError),
    *(KafkaError, KafkaException, ZooKeeperError, psutil.Error),
)
LONGEST = 240.0
"""Seconds until all partitions must flow again."""


@dataclass
class World:
    """What a fault can be done to, and what is seen of it."""

    stack: FaultStack
    api: AirflowApi
    cluster: ClusterSettings
    view: ClusterView
    discovery: Discovery
    producer: NumberProducer
    commits: CommitLog
    journal: Journal
    windows: list[Window] = field(default_factory=list)
    unwell: str = ""
    mending: bool = False
    """Whether the fault before is still being mended, and the next one comes on top of it."""

    def eventually(self, what: str, condition: Callable[[], T], timeout: float = 60.0) -> T:
        """The condition's first true value. An error of an edge that is away counts as "not yet"."""
        deadline = time.monotonic() + timeout
        while True:
            failure: BaseException | None = None
            try:
                if value := condition():
                    return value
            except NOT_YET as error:
                failure = error
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout:g} s: {what}; {self.describe()}") from failure
            time.sleep(0.1)

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
        """The partitions that consumer `number` has; none for 0, which nobody is."""
        owners = self.view.owners(TOPIC)
        return {partition for partition, consumer in owners.items() if consumer == f"{CLUSTER}-{number}"}

    def status(self, number: int) -> dict[str, Any]:
        """The status page of consumer `number`."""
        there = self.discovery.members().registered.get(f"{CLUSTER}-{number}")
        assert there is not None, f"consumer {number} is not registered"
        try:
            answer = httpx.get(f"http://{there.address}:{there.port}/status", timeout=5, trust_env=False)
        except httpx.HTTPError as error:
            raise AssertionError(f"consumer {number} does not answer: {error}") from error
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

    @contextmanager
    def fault(self, name: str, planned: bool, mended: bool) -> Iterator[Window]:
        """One injection, which is over at the end of the block; then everything has to flow again, and if it is to be
        `mended` before the next one, to be even."""
        assert not self.unwell, self.unwell
        try:
            if not self.mending:
                self.eventually("all is well before the fault", self.even, LONGEST)
        except AssertionError as error:
            self.unwell = f"not tried, because the stack has not recovered from an earlier fault: {error}"
            raise
        self.mending = False
        window = Window(name, planned, time.time())
        self.windows.append(window)
        try:
            yield window
            over = time.time()
            window.flowed = self.flows(window.began)
            self.flows(over)
            if mended:
                self.eventually("all is well after the fault", self.even, LONGEST)
            self.mending = not mended
        finally:
            self._restore_all()
            window.ended = time.time()
            window.doubled = self.journal.doubled(window.began, window.ended)
            print(
                f"{name}: flowed again after {window.seconds:.1f} s, "
                f"{window.doubled} delivered twice, {window.ended - window.began:.1f} s in all"
            )

    def flows(self, since: float, partitions: Collection[int] = range(PARTITIONS)) -> float:
        """Wait until what was produced at `since` or later is committed in all `partitions`; returns when it was."""
        when: list[float] = []
        for partition in partitions:
            what = f"partition {partition} flows"
            when.append(self.eventually(what, partial(self._reached, partition, since), LONGEST) or since)
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
        assert self.discovery.isolate(f"{CLUSTER}-{number}", by="test", why="a planned move", at=time.time())

    def restore(self, number: int) -> None:
        """The same, back."""
        assert self.discovery.restore(f"{CLUSTER}-{number}")

    def _restore_all(self) -> None:
        """Whatever a fault that failed has left isolated would spoil all later ones."""
        with suppress(*NOT_YET):
            for consumer in self.discovery.isolated():
                self.discovery.restore(consumer)

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
        registered = self.discovery.members().registered
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

    def rows(self, lost: dict[int, set[int]]) -> list[Row]:
        """The matrix. `lost` are the numbers that never arrived, by partition."""
        rows = []
        for name in dict.fromkeys(window.fault for window in self.windows):
            of_it = [window for window in self.windows if window.fault == name]
            rows.append(
                Row(
                    name,
                    sum(window.times for window in of_it),
                    sum(self._lost_in(window, lost) for window in of_it),
                    sum(window.doubled for window in of_it),
                    sum(self.commits.went_back(window.began, window.ended) for window in of_it),
                    round(max(window.seconds for window in of_it), 1),
                    of_it[0].planned,
                )
            )
        return rows

    def _lost_in(self, window: Window, lost: dict[int, set[int]]) -> int:
        times = self.producer.times
        return sum(
            window.began <= times[partition][number] < window.ended
            for partition, numbers in lost.items()
            for number in numbers
        )

    def in_sink(self) -> dict[int, list[int]]:
        """Offsets of all rows in the sink, by partition, as often as they stand there.

        Each file is opened by the thread that has mounted the disk: Arrow's own, if they were there before it, do not
        see it.
        """
        found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        for file in self.stack.disk.folder.glob(f"topic={TOPIC}/partition=*/*.parquet"):
            with file.open("rb") as opened:
                table = pq.read_table(opened, columns=["partition", "offset"], use_threads=False)
            for partition, offset in zip(*(column.to_pylist() for column in table.columns), strict=True):
                found[partition].append(offset)
        return found

    def close(self) -> None:
        """End what looks at the stack."""
        with suppress(AssertionError):
            self.producer.stop()
        self.commits.stop()
