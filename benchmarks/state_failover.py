"""An owner of state is killed: how soon all flows again, by the whole path through coordinator and discovery.

A cluster has one topic and two consumers, of which one owns all partitions. Both are real jobs, the coordinator is a
process of its own, and ZooKeeper, Consul and Kafka are real servers. The killed consumer is started again only once
all flows, so that its start takes no CPU from what is measured.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from confluent_kafka import Producer

from benchmarks.harness.servers import new_topic
from benchmarks.harness.worker import ROOT, Worker
from benchmarks.state_driver import JAVA_OPTIONS
from benchmarks.state_failover_job import AT_ONCE, STEP, Coordination, SparkCounting
from devstack.airflow_api import wait_for
from devstack.consul import Consul
from devstack.zookeeper import ZooKeeper
from muster.consumer.state.codec import unpack
from muster.consumer.state.handle import key_of
from muster.consumer.state.position import KEY
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.spark.consumer_job import SERVICE, ConsumerJob, Servers
from tests.support.servers import running
from tests.support.state_query import begin_at_the_first_record

PARTITIONS = 4
PAUSE = 0.05
"""Seconds between two turns of the producer."""
EACH_TURN = 5
"""Records of a partition a turn: 100 a second."""
VALUE = b"%-200d" % 0
PATIENCE = 300.0
WARM, STATELESS, COLD, SPARK = "warm standby", "no state", "cold", "Spark's restart"


@dataclass(frozen=True)
class FailoverPlan:
    """Keys of a smaller and of a larger state, how often an owner is killed in each case, and records of a burst."""

    few: int
    many: int
    kills: int
    burst: int


@dataclass(frozen=True)
class Failover:
    """One kill: the seconds until all partitions flow again."""

    case: str
    keys: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.case}, {self.keys:,} keys: all flows after {self.seconds:.1f} s"


@dataclass(frozen=True)
class Beside:
    """Records a second of an owner with a standby that tails and without one; how many offsets the standby lacked."""

    alone: float
    tailed: float
    behind: int


@dataclass(frozen=True)
class Checked:
    """How many keys differ from what the records say."""

    differ: int


class Flow:
    """Produces records to all partitions, all the time: one a turn, later `EACH_TURN`."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic, self._stop, self.each = topic, threading.Event(), 1
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 2, "queue.buffering.max.messages": 500_000},
            logger=librdkafka_logger(),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def burst(self, records: int) -> None:
        """Produce so many records as fast as it goes."""
        for n in range(records):
            self._produce(n % PARTITIONS)
        if self._producer.flush(120):
            raise RuntimeError(f"topic {self._topic}: a burst was not written in two minutes")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            for _ in range(self.each):
                for partition in range(PARTITIONS):
                    self._produce(partition)
            self._producer.poll(0)

    def _produce(self, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self._topic, VALUE, partition=partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


class Topic(ExitStack):
    """A topic with a flow of records, deleted in the end. Each of its partitions has so many keys."""

    def __init__(self, kafka: KafkaSettings, name: str, keys: int) -> None:
        super().__init__()
        self.name = self.enter_context(new_topic(kafka, name, PARTITIONS))
        self.keys, self.kafka = keys // PARTITIONS, kafka
        self.group = self.enter_context(closing(GroupOffsets(kafka, self.name)))
        self.places = [(self.name, partition) for partition in range(PARTITIONS)]
        self.flow = Flow(kafka.bootstrap_servers, self.name)
        self.callback(self.flow.close)

    def ends(self) -> dict[int, int]:
        return {p: end for (_, p), end in self.group.end_offsets(self.places).items()}

    def committed(self) -> dict[int, int]:
        return {p: offset or 0 for (_, p), offset in self.group.committed(self.places).items()}

    def filled(self, reached: Callable[[], Mapping[int, int]], detail: Callable[[], str] = str) -> None:
        """Wait until all keys are there, and have the usual flow from then on."""
        upto = max(1, self.keys // AT_ONCE)
        all_there = partial(_beyond, reached, dict.fromkeys(range(PARTITIONS), upto))
        wait_for(f"topic {self.name}: its keys", all_there, PATIENCE, detail=detail)
        self.flow.each = EACH_TURN

    def flows(self, reached: Callable[[], Mapping[int, int]], detail: Callable[[], str] = str) -> None:
        """Wait until a record of each partition that is written from now on was read, and its offset committed."""
        again = partial(_beyond, reached, self.ends())
        wait_for(f"topic {self.name}: all flows", again, PATIENCE, interval=0.05, detail=detail)


def _beyond(reached: Callable[[], Mapping[int, int]], ends: Mapping[int, int]) -> bool:
    found = reached()
    return all(found.get(partition, 0) > end for partition, end in ends.items())


class Pair(Topic):
    """A cluster with the topic's name: `owner` has all partitions, `other` none."""

    def __init__(self, servers: Servers, folder: Path, name: str, keys: int, cores: int) -> None:
        super().__init__(servers.kafka, name, keys)
        self._servers, self._cores, self._folder = servers, cores, folder / self.name
        begin_at_the_first_record(self.group, self.name, PARTITIONS, self.name)
        self.owner, self.other = self._job("one"), self._job("two")
        self._coordinator: Worker | None = None
        self.callback(self._end)

    def coordinate(self, standby: bool) -> None:
        """Coordinate from now on, with the other consumer as the standby or without one."""
        if self._coordinator is not None:
            self._coordinator.close()
        settings = ClusterSettings.model_validate(
            {
                "name": self.name,
                "consul_service": SERVICE,
                "group_id": self.name,
                "topics": [self.name],
                "consumers": {"handler": "a.b", "count": 2, **({"state": [".*"]} if self.keys else {})},
                "assignor": f"benchmarks.state_failover_job.{'WithStandby' if standby else 'WithSpare'}",
            }
        )
        log = self._folder / "coordinator.log"
        self._coordinator = Worker(Coordination, settings, self._servers, log=log)

    def begin(self) -> None:
        """Start the owner, and wait until all of its keys are there."""
        self.owner.start()
        self.filled(self.committed, self.owner.log_tail)

    def join(self, standby: bool, cold: bool = False) -> None:
        """Start the other consumer, `cold`: on a disk with nothing, and wait until it is there; if it is the standby,
        until it is warm."""
        if cold:
            shutil.rmtree(self._folder / self.other.consumer)
        self.other = self._job(self.other.consumer)
        self.other.start()
        wait_for("the other consumer", self.other.registered, PATIENCE, detail=self.other.log_tail)
        if standby:
            wait_for("a warm standby", self._warm, PATIENCE, detail=self.other.log_tail)
        self.flows(self.committed, self.owner.log_tail)

    def kill(self) -> float:
        """Kill all processes of the owner, and return the seconds until all flows by the other one."""
        tree = self.owner.tree()
        began = time.perf_counter()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.flows(self.committed, self.other.log_tail)
        took = time.perf_counter() - began
        self.owner.end()
        self.owner, self.other = self.other, self.owner
        return took

    def rate(self, records: int) -> float:
        """Return the records a second of the owner behind a burst of so many, from its end until a tenth is left."""
        self.flow.burst(records)
        began, first = time.perf_counter(), sum(self.committed().values())
        left = sum(self.ends().values()) - first
        wait_for("most of a burst", lambda: sum(self.committed().values()) - first > 0.9 * left, PATIENCE)
        return (sum(self.committed().values()) - first) / (time.perf_counter() - began)

    def behind(self) -> int:
        """Return how many offsets the other consumer's copies lack of the changelog, the most of a partition."""
        return max(int(store["lag"]) for store in self._stores())

    def differ(self) -> int:
        """End the owner, and count the keys whose state in the changelog is not what the records say."""
        self.owner.end()
        differ = 0
        for partition, upto in self.committed().items():
            counts = expected(self.keys, upto)
            log = ChangelogReader(self.kafka, "look", changelog_topic(self.name, self.name), partition)
            with closing(log):
                there = dict(record for part in log.read(0) for record in part.records)
            there.pop(KEY, None)
            for name, value in there.items():
                number = int(key_of(name[6:])[0].partition("-")[2])
                differ += value is None or unpack(value)[0] != counts[number]
            differ += self.keys - len(there)
        return int(differ)

    def _end(self) -> None:
        for job in (self.owner, self.other):
            job.end()
        if self._coordinator is not None:
            self._coordinator.close()

    def _stores(self) -> list[dict[str, Any]]:
        return [*self.other.status().get("stores", {}).get(self.name, {}).values()]

    def _warm(self) -> bool:
        with suppress(httpx.TimeoutException):
            found = self._stores()
            return len(found) == PARTITIONS and all(one["is"] == "warm" and one["followed"] for one in found)
        return False

    def _job(self, name: str) -> ConsumerJob:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        state = {"state": [".*"], "state_folder": str(folder / "state")} if self.keys else {}
        return ConsumerJob(
            self._servers,
            self.name,
            name,
            folder,
            handler="benchmarks.state_failover_job.Keeping",
            options={"keys": self.keys},
            master=f"local[{self._cores}]",
            conf={"spark.driver.extraJavaOptions": JAVA_OPTIONS},
            more=state,
            paths=(ROOT,),
        )


def expected(keys: int, upto: int) -> np.ndarray:
    """Return how often the first `upto` records of a partition have changed each of its keys."""
    first = min(upto, keys // AT_ONCE)
    counts = np.bincount(np.arange(keys // AT_ONCE, max(upto, first)) * STEP % keys, minlength=keys)
    counts[: first * AT_ONCE] += 1
    return counts


@contextmanager
def servers(kafka: KafkaSettings, folder: Path) -> Iterator[Servers]:
    """Yield ZooKeeper and Consul beside a Kafka."""
    with (
        running(ZooKeeper(folder / "zookeeper", guarded=True)) as zookeeper,
        running(Consul(folder / "consul", guarded=True)) as consul,
    ):
        yield Servers(
            ZooKeeperSettings(hosts=zookeeper.address),
            ConsulSettings(host="127.0.0.1", port=consul.port),
            kafka,
        )


def failovers(
    kafka: KafkaSettings, plan: FailoverPlan, folder: Path, cores: int
) -> Iterator[Failover | Beside | Checked]:
    """Kill owners, and yield what each case gave."""
    with servers(kafka, folder) as given:
        with Pair(given, folder, "stateless", 0, cores) as pair:
            pair.coordinate(standby=False)
            pair.begin()
            yield from _killed(pair, STATELESS, plan.kills, standby=False)
        with Pair(given, folder, "few", plan.few, cores) as pair:
            pair.coordinate(standby=True)
            pair.begin()
            yield from _killed(pair, WARM, plan.kills, standby=True)
            yield Checked(pair.differ())
        with Pair(given, folder, "many", plan.many, cores) as pair:
            pair.coordinate(standby=False)
            pair.begin()
            yield from _killed(pair, COLD, plan.kills, standby=False, cold=True)
            pair.coordinate(standby=True)
            yield from _killed(pair, WARM, plan.kills, standby=True)
            alone = pair.rate(plan.burst)
            pair.join(standby=True)
            tailed = pair.rate(plan.burst)
            yield Beside(alone, tailed, pair.behind())
        yield from restarts(kafka, plan, folder / "spark-restarts", cores)


def _killed(pair: Pair, case: str, kills: int, standby: bool, cold: bool = False) -> Iterator[Failover]:
    for _ in range(kills):
        pair.join(standby, cold)
        yield Failover(case, PARTITIONS * pair.keys, pair.kill())


def restarts(kafka: KafkaSettings, plan: FailoverPlan, folder: Path, cores: int) -> Iterator[Failover]:
    """Kill Spark's own query once a snapshot of its whole state stands, and start it again at once."""
    folder.mkdir()
    with Topic(kafka, "restarted", plan.many) as topic, ExitStack() as stack:
        worker = _spark(topic, folder, cores, stack)
        topic.filled(partial(worker.call, SparkCounting.ends))
        whole = max(int(file.name) for file in (folder / "checkpoint" / "commits").glob("[0-9]*"))
        for _ in range(plan.kills):
            wait_for("a snapshot of Spark's state", partial(_snapshots, folder, whole, cores), PATIENCE)
            topic.flows(partial(worker.call, SparkCounting.ends))
            began = time.perf_counter()
            os.killpg(worker.pid, signal.SIGKILL)
            ends = topic.ends()
            worker.close()
            worker = _spark(topic, folder, cores, stack)
            again = partial(_beyond, partial(worker.call, SparkCounting.ends), ends)
            wait_for("Spark's query goes on", again, PATIENCE, interval=0.05)
            yield Failover(SPARK, plan.many, time.perf_counter() - began)


def _spark(topic: Topic, folder: Path, cores: int, stack: ExitStack) -> Worker:
    """Start the query in a process of its own."""
    worker = Worker(SparkCounting, str(folder), cores, log=folder / "driver.log")
    stack.callback(worker.close)
    worker.call(SparkCounting.begin, topic.kafka.bootstrap_servers, topic.name, folder, topic.keys)
    return worker


def _snapshots(folder: Path, batch: int, stores: int) -> bool:
    """Whether each store has a snapshot of a batch as late as this one."""
    files = (folder / "checkpoint" / "state" / "0").glob("*/[0-9]*.zip")
    return len({file.parent for file in files if int(re.split(r"[._]", file.name)[0]) > batch}) == stores
