"""What is measured: both sources on the same topic, each in a process of its own, in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from benchmarks.throughput_driver import COLLECT, MUSTER, NOOP, PARQUET, READY, SETTLE, SPARK, Order, Reading
from benchmarks.throughput_inputs import Input, topic_of, trickle_of
from devstack.progress import say
from muster.settings.connections import KafkaSettings

_ROOT = Path(__file__).resolve().parents[1]


class Driver:
    """A driver with `source`, with its JVM and Python workers. It works on nothing between two orders."""

    def __init__(self, source: str, cores: int, log: Path) -> None:
        self.source = source
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                [sys.executable, "-m", "benchmarks.throughput_driver", source, str(cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=_ROOT,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": f"{_ROOT / 'include'}{os.pathsep}{_ROOT}",
                },
            )
        self._line_of(READY)

    def read(self, order: Order) -> Reading:
        """Have it carry out `order`. Raises RuntimeError with the end of its log when it cannot."""
        if self._process.stdin is None:
            raise RuntimeError("the driver has no standard input")
        self._process.stdin.write(f"{order.text()}\n")
        self._process.stdin.flush()
        return Reading(**json.loads(self._line_of("{")))

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line_of(self, start: str) -> str:
        for line in self._process.stdout or ():
            if line.startswith(start):
                return line
        end = "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-25:])
        raise RuntimeError(f"the driver with {self.source} ended; its log ends with:\n{end}")


SINKS = (NOOP, PARQUET)
SOURCES = (SPARK, MUSTER)
PEER_OPTIONS: Mapping[str, str] = {
    # As many records a poll as Muster takes at once (500 by default), and a socket buffer as librdkafka has it.
    "kafka.max.poll.records": "4000",
    "kafka.receive.buffer.bytes": "1048576",
}
"""What Spark's source is given beside `maxOffsetsPerTrigger`, and `minPartitions` where a topic has fewer partitions
than there are cores."""


def steady(reading: Reading) -> float:
    """Records/s from the end of the first batch to the end of the last."""
    return (reading.records - reading.first_records) / (reading.last - reading.first)


def whole(reading: Reading) -> float:
    """Records/s from the start of the query on."""
    return reading.records / reading.last


def cpu(reading: Reading) -> float:
    """CPU seconds a million records, from the end of the first batch to the end of the last."""
    return reading.steady_cpu / (reading.records - reading.first_records) * 1e6


@dataclass(frozen=True)
class Side:
    """All readings of one source: `cold` the first one of its process, then one a round."""

    cold: Reading
    rounds: list[Reading] = field(default_factory=list)

    def middle(self, figure: Callable[[Reading], float]) -> float:
        """The median of the rounds."""
        return median(map(figure, self.rounds))

    @property
    def memory(self) -> int:
        """The most, in bytes."""
        return max(reading.memory for reading in self.rounds)


@dataclass(frozen=True)
class Figure:
    """One input and one sink: both sources, by name."""

    input: Input
    sink: str
    sides: Mapping[str, Side]

    def ratios(self, figure: Callable[[Reading], float] = steady) -> list[float]:
        """Muster's figure over that of Spark's source, round by round."""
        pairs = zip(self.sides[MUSTER].rounds, self.sides[SPARK].rounds, strict=True)
        return [figure(muster) / figure(spark) for muster, spark in pairs]

    @property
    def ratio(self) -> float:
        """The median of `ratios`."""
        return median(self.ratios())


@dataclass(frozen=True)
class Latency:
    """Delays at a trickle, in seconds: of each source a list a round."""

    interval: float
    partitions: int
    trigger: int
    delays: Mapping[str, Sequence[Sequence[float]]]

    def middle(self, source: str) -> float:
        """The median of all delays of `source`."""
        return median(delay for of_round in self.delays[source] for delay in of_round)

    def late(self, source: str) -> float:
        """The 99th percentile."""
        return quantiles([delay for of_round in self.delays[source] for delay in of_round], n=100)[98]

    @property
    def ratio(self) -> float:
        """Muster's median over that of Spark's source, the median of the rounds."""
        pairs = zip(self.delays[MUSTER], self.delays[SPARK], strict=True)
        return median(median(muster) / median(spark) for muster, spark in pairs)


@dataclass(frozen=True)
class Plan:
    """How long and how much: `most` records a batch, `cores` of Spark, a trickle of `seconds` a round."""

    inputs: Sequence[Input]
    sinks: Sequence[str]
    rounds: int
    cores: int
    most: int
    seconds: float
    latency_rounds: int
    trigger: int = 200
    interval: float = 0.05


def throughput(kafka: KafkaSettings, plan: Plan, logs: Path) -> Iterator[Figure]:
    """Read every input with every sink, the two sources in turns, the one that begins changing with each round."""
    for given in plan.inputs:
        with topic_of(kafka, given) as topic, ExitStack() as stack:
            drivers = _drivers(stack, plan, logs)

            def read(
                source: str,
                sink: str,
                given: Input = given,
                topic: str = topic,
                drivers: Mapping[str, Driver] = drivers,
            ) -> Reading:
                options = dict(PEER_OPTIONS) if source == SPARK else {}
                if source == SPARK and given.partitions < plan.cores:
                    options["minPartitions"] = str(plan.cores)
                order = Order(
                    kafka.bootstrap_servers,
                    topic,
                    given.partitions,
                    given.records,
                    plan.most,
                    sink,
                    plan.trigger,
                    options=options,
                )
                reading = drivers[source].read(order)
                say(
                    f"{given}, {sink}, {source}: {steady(reading):,.0f} records/s steady, {whole(reading):,.0f} with "
                    f"the start, {cpu(reading):.1f} CPU s a million, {reading.jvm / reading.steady_cpu:.0%} of it "
                    "the JVM's"
                )
                return reading

            cold = {source: read(source, NOOP) for source in SOURCES}
            sides = {sink: {source: Side(cold[source]) for source in SOURCES} for sink in plan.sinks}
            for number in range(plan.rounds):
                for sink in plan.sinks:
                    for source in SOURCES[:: 1 if number % 2 else -1]:
                        sides[sink][source].rounds.append(read(source, sink))
            for sink in plan.sinks:
                yield Figure(given, sink, sides[sink])


def latency(kafka: KafkaSettings, plan: Plan, logs: Path, partitions: int = 12) -> Latency:
    """Follow a trickle, the two sources in turns."""
    delays: dict[str, list[Sequence[float]]] = {source: [] for source in SOURCES}
    with ExitStack() as stack:
        drivers = _drivers(stack, plan, logs)
        for number in range(-1, plan.latency_rounds):
            for source in SOURCES[:: 1 if number % 2 else -1]:
                with trickle_of(kafka, partitions, plan.interval) as topic:
                    order = Order(
                        kafka.bootstrap_servers,
                        topic,
                        partitions,
                        0,
                        plan.most,
                        COLLECT,
                        plan.trigger,
                        SETTLE + (plan.seconds if number >= 0 else 1.0),
                        PEER_OPTIONS if source == SPARK else {},
                    )
                    found = drivers[source].read(order).delays
                if number < 0:
                    continue  # the first one warms up
                if not found:
                    raise RuntimeError(f"{source}: no record of a trickle in {plan.seconds:g} s")
                say(f"trickle, {source}: median {median(found) * 1e3:.0f} ms of {len(found)} records")
                delays[source].append(found)
    return Latency(plan.interval, partitions, plan.trigger, delays)


def _drivers(stack: ExitStack, plan: Plan, logs: Path) -> Mapping[str, Driver]:
    drivers = {source: Driver(source, plan.cores, logs / f"{source}.log") for source in SOURCES}
    for made in drivers.values():
        stack.callback(made.close)
    return drivers
