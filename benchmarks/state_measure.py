"""What the state benchmark measures: cells, kills, a restore; and whether the state is what the records say."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer

from benchmarks.harness.servers import admin, create_topic, new_topic
from benchmarks.harness.worker import Worker
from benchmarks.state_driver import BULK, PANDAS, ROWS, Driver, Muster, Order, Reading, SparkItself
from benchmarks.state_failover import FailoverPlan
from devstack.progress import say
from muster.consumer.state.codec import unpack
from muster.consumer.state.handle import key_of
from muster.consumer.state.position import KEY
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.settings.connections import KafkaSettings
from tests.support.state_query import CLUSTER, begin_at_the_first_record
from tests.support.state_worker import STEPS
from tests.support.stateful_consumer import StatefulConsumer

PARTITIONS = 12
SIZE = 200
FEW, MANY = 10_000, 1_000_000
SPARK, MUSTER = "spark", "muster"
DRIVERS: dict[str, type[Driver]] = {SPARK: SparkItself, MUSTER: Muster}
COMMIT = STEPS[1:6]
"""Where a driver is killed within a commit."""
RESTORED, VALUE = 1_000_000, 100
"""Keys of a shard that is restored, and bytes of their values."""


@dataclass(frozen=True, order=True)
class Cell:
    """What a system reads: so many keys, in this form, with the output to a topic or discarded."""

    keys: int
    to_topic: bool
    system: str
    form: str = ROWS


CELLS = (
    Cell(FEW, False, SPARK),
    Cell(FEW, False, SPARK, PANDAS),
    Cell(FEW, False, MUSTER),
    Cell(FEW, False, MUSTER, BULK),
    Cell(FEW, True, SPARK),
    Cell(FEW, True, MUSTER),
    Cell(MANY, False, SPARK),
    Cell(MANY, False, MUSTER),
    Cell(MANY, False, MUSTER, BULK),
)


@dataclass(frozen=True)
class Plan:
    """How long a cell takes in seconds, how many records a topic has by its keys and a batch by system and keys, how
    many drivers are killed and stores restored, and what the kills of owners need."""

    seconds: float
    records: dict[int, int]
    most: dict[tuple[str, int], int]
    kills: int
    failover: FailoverPlan
    restores: int = 3
    cores: int = 2
    cells: tuple[Cell, ...] = CELLS


FULL = Plan(
    240.0,
    {FEW: 30_000_000, MANY: 15_000_000},
    {(SPARK, FEW): 300_000, (SPARK, MANY): 40_000, (MUSTER, FEW): 300_000, (MUSTER, MANY): 300_000},
    20,
    FailoverPlan(100_000, 5_000_000, kills=3, burst=3_000_000),
)
QUICK = Plan(
    12.0,
    {FEW: 1_000_000, MANY: 800_000},
    {(SPARK, FEW): 40_000, (SPARK, MANY): 4_000, (MUSTER, FEW): 100_000, (MUSTER, MANY): 100_000},
    2,
    FailoverPlan(10_000, 100_000, kills=1, burst=400_000),
    restores=1,
    cells=tuple(cell for cell in CELLS if cell.form != PANDAS),
)


@dataclass(frozen=True)
class Filled:
    """A topic: in each partition the n-th record has the key `chosen[n]` of the partition's, and the value n modulo
    1,000."""

    topic: str
    chosen: Any

    @property
    def records(self) -> int:
        return PARTITIONS * len(self.chosen)

    def expected(self, upto: int, keys: int) -> tuple[Any, Any]:
        """Return counts and sums by key of a partition's first `upto` records."""
        chosen, amounts = self.chosen[:upto], np.arange(upto) % 1000
        size = keys // PARTITIONS
        return np.bincount(chosen, minlength=size), np.bincount(chosen, amounts, size).astype(np.int64)


@contextmanager
def filled(kafka: KafkaSettings, keys: int, records: int) -> Iterator[Filled]:
    """Yield a topic of so many keys and records; it is deleted in the end."""
    chosen = np.random.default_rng(keys).integers(0, keys // PARTITIONS, records // PARTITIONS)
    with new_topic(kafka, f"state-{keys}", PARTITIONS) as topic:
        producer = Producer(
            {
                **kafka.config,
                "compression.type": "lz4",
                "acks": "1",
                "linger.ms": "100",
                "queue.buffering.max.messages": "500000",
            },
            logger=librdkafka_logger(),
        )
        values = [f"{n:<{SIZE}}".encode() for n in range(1000)]
        for n, key in enumerate(chosen.tolist()):
            for partition in range(PARTITIONS):
                _produce(producer, topic, values[n % 1000], b"%02d-%06d" % (partition, key), partition)
        if producer.flush(120):
            raise RuntimeError(f"topic {topic} could not be filled in two minutes")
        yield Filled(topic, chosen)


def _produce(producer: Producer, topic: str, value: bytes, key: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def cells(kafka: KafkaSettings, plan: Plan, folder: Path) -> Iterator[tuple[Cell, Reading, int]]:
    """Measure each cell with a new driver; yield with it how many keys differ from what the records say: of Muster's,
    up to where its group is."""
    for keys in sorted({cell.keys for cell in plan.cells}):
        with filled(kafka, keys, plan.records[keys]) as given:
            for number, cell in enumerate(cell for cell in plan.cells if cell.keys == keys):
                order = replace(
                    _order(kafka, given, folder / f"{keys}-{number}"),
                    most=plan.most[cell.system, keys],
                    form=cell.form,
                    to=_output(kafka, given, number) if cell.to_topic else "",
                    seconds=plan.seconds,
                )
                reading = _driven(DRIVERS[cell.system], order, plan.cores)
                differ = difference(kafka, given, order, keys) if cell.system == MUSTER else 0
                yield cell, reading, differ
                _forget(kafka, given, order)


def _order(kafka: KafkaSettings, given: Filled, folder: Path) -> Order:
    folder.mkdir()
    return Order(
        kafka.bootstrap_servers, given.topic, f"g-{folder.name}", str(folder), PARTITIONS, given.records,
        300_000, _broker(),
    )  # fmt: skip


def _broker() -> int:
    return next(
        process.pid
        for process in psutil.Process().children(recursive=True)
        if any("kafka.Kafka" in part for part in process.cmdline())
    )


def _output(kafka: KafkaSettings, given: Filled, number: int) -> str:
    topic = f"{given.topic}-out-{number}"
    create_topic(kafka.bootstrap_servers, topic, PARTITIONS)
    return topic


def _driven(kind: type[Driver], order: Order, cores: int) -> Reading:
    log = Path(order.folder) / "driver.log"
    with closing(Worker(kind, order.folder, cores, log=log)) as worker:
        reading: Reading = worker.call(kind.read, order)  # type: ignore[attr-defined]
    return reading


def _forget(kafka: KafkaSettings, given: Filled, order: Order) -> None:
    """Delete a cell's changelog, so that the next one begins with nothing, and its files."""
    client, changelog = admin(kafka.bootstrap_servers), changelog_topic(CLUSTER, given.topic)
    if changelog in client.list_topics(timeout=60).topics:
        client.delete_topics([changelog])[changelog].result(60)
    shutil.rmtree(order.folder, ignore_errors=True)


def difference(kafka: KafkaSettings, given: Filled, order: Order, keys: int) -> int:
    """Count the keys whose state in the changelog is not what the records say up to where the group is."""
    with closing(GroupOffsets(kafka, order.group)) as group:
        read = group.committed([(given.topic, partition) for partition in range(PARTITIONS)])
    differ = 0
    for partition in range(PARTITIONS):
        counts, sums = given.expected(read[given.topic, partition] or 0, keys)
        with closing(ChangelogReader(kafka, "look", changelog_topic(CLUSTER, given.topic), partition)) as log:
            there = dict(record for part in log.read(0) for record in part.records)
        there.pop(KEY, None)
        for name, value in there.items():
            key = int(key_of(name[6:])[0].partition("-")[2])
            differ += value is None or tuple(unpack(value)) != (int(counts[key]), int(sums[key]))
        differ += int((counts > 0).sum()) - len(there)
    return differ


def kills(kafka: KafkaSettings, plan: Plan, folder: Path) -> Iterator[tuple[str, int]]:
    """Kill drivers, half of them within a commit and the others at any moment; then read to the end. Yield where each
    died, and at last how many keys differ."""
    chance = random.Random(7)  # noqa: S311
    with filled(kafka, FEW, 300_000 + 150_000 * plan.kills) as given:
        order = replace(_order(kafka, given, folder / "kills"), most=30_000)
        for number in range(plan.kills):
            step = COMMIT[number // 2 % len(COMMIT)] if number % 2 == 0 else ""
            died = _killed(replace(order, step=step), plan.cores, chance.uniform(0.5, 4))
            yield (step or "any moment") if died else "not killed", 0
            if number % 7 == 6:  # noqa: PLR2004
                shutil.rmtree(folder / "kills" / "stores", ignore_errors=True)
        _driven(Muster, order, plan.cores)
        yield "the end", difference(kafka, given, order, FEW)


def _killed(order: Order, cores: int, after: float) -> bool:
    """Run a driver until it is killed: by itself at its step, or `after` seconds of reading."""
    worker = Worker(Muster, order.folder, cores, log=Path(order.folder) / "driver.log")
    timer = threading.Timer(after + 8, os.killpg, (worker.pid, signal.SIGKILL))
    if not order.step:
        timer.start()
    try:
        worker.call(Muster.read, order)
    except RuntimeError:
        if not worker.killed:
            raise  # it failed, which is not what was to be seen
        return True
    finally:
        timer.cancel()
        worker.close()
    return False


def restore(kafka: KafkaSettings, folder: Path) -> float:
    """Return how many keys a second an owner with an empty store reads of a shard, from being asked for until the
    partition may be read."""
    group_id = "g-restore"
    with new_topic(kafka, "state-restore", 1) as topic, closing(GroupOffsets(kafka, group_id)) as group:
        _fill_one(kafka, topic)
        begin_at_the_first_record(group, topic, 1)
        one = StatefulConsumer("one", kafka, group, folder / "one")
        one.reads(topic, {0: "one"}, 1)
        at_once = RESTORED // 10
        for number in range(10):
            _wait(lambda: one.readable(topic))
            names = range(number * at_once, (number + 1) * at_once)
            one.batch(topic, 10 * (number + 1), {b"%016d" % n: b"%0*d" % (VALUE, n) for n in names})
        _wait(lambda: one.readable(topic))
        one.close()
        two = StatefulConsumer("two", kafka, group, folder / "two")
        began = time.perf_counter()
        two.reads(topic, {0: "two"}, 2)
        _wait(lambda: two.readable(topic))
        took = time.perf_counter() - began
        there = len(two.state(topic))
        two.close()
    if there != RESTORED:
        raise RuntimeError(f"{there} keys were restored of {RESTORED}")
    return RESTORED / took


def _fill_one(kafka: KafkaSettings, topic: str) -> None:
    producer = Producer(dict(kafka.config), logger=librdkafka_logger())
    for n in range(200):
        producer.produce(topic, b"%d" % n, partition=0)
    producer.flush(60)


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the restore took more than five minutes")
        time.sleep(0.01)


def show(cell: Cell, reading: Reading, differ: int) -> None:
    """Say what a cell gave, as it comes."""
    records = sum(one.records for one in reading.batches)
    say(f"{cell.keys:,} keys, {cell.system} {cell.form}: {records:,} records, {differ} keys differ")
