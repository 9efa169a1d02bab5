"""What is measured: the sources on the same topic, each in a process of its own, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

from pydantic import TypeAdapter

from benchmarks.throughput_driver import (
    COLLECT,
    FULL,
    HEAP,
    MUSTER,
    NOOP,
    PARQUET,
    PATIENCE,
    READY,
    SETTLE,
    SHIPPED,
    TOUCH,
    TUNED,
    WARM_UP,
    Batch,
    Order,
    Reading,
)
from benchmarks.throughput_inputs import Input, topic_of, trickle_of
from devstack.progress import say
from muster.settings.connections import KafkaSettings

_ROOT = Path(__file__).resolve().parents[1]


class Driver:
    """A driver with `source`, with its JVM and Python workers. It works on nothing between two orders.

    `java_options` are further ones of its JVM, `heap` is that of Java's `-Xmx`.
    """

    def __init__(self, source: str, cores: int, log: Path, java_options: str = "", heap: str = HEAP) -> None:
        self.source = source
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                [
                    *(sys.executable, "-m", "benchmarks.throughput_driver"),
                    *(source, str(cores), java_options, heap),
                ],
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

    @property
    def pid(self) -> int:
        """Its process, below which are all others."""
        return self._process.pid

    def read(self, order: Order) -> Reading:
        """Have it carry out `order`. Raises RuntimeError with the end of its log when it cannot; MemoryError if its
        JVM has run out of memory, TimeoutError if the order's patience has ended."""
        if self._process.stdin is None:
            raise RuntimeError("the driver has no standard input")
        self._process.stdin.write(f"{order.text()}\n")
        self._process.stdin.flush()
        return TypeAdapter(Reading).validate_json(self._line_of("{"))

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
        log = self._log.read_text(encoding="utf-8")
        end = "\n".join(log.splitlines()[-25:])
        kind = next((kind for text, kind in _KINDS.items() if text in log), RuntimeError)
        raise kind(f"the driver with {self.source} ended; its log ends with:\n{end}")


SINKS = (PARQUET, TOUCH, NOOP)
"""In the order of a driver: the JVM compiles less and less meanwhile, which disturbs `noop` the most."""
SOURCES = (TUNED, MUSTER)
"""Those that take turns. The source as Spark ships it is read once a topic."""
TUNING: Mapping[str, str] = {"kafka.fetch.max.wait.ms": "50", "kafka.receive.buffer.bytes": "-1"}
"""What the tuned source is given with each topic beside `maxOffsetsPerTrigger`, a cache for 256 consumers, and
`minPartitions` where a topic has fewer partitions than there are cores."""


@dataclass(frozen=True)
class Fetch:
    """How much the tuned source asks Kafka for at once: `records` a poll, `size` bytes a partition."""

    records: int
    size: int

    def options(self) -> dict[str, str]:
        """Return it as options of Spark's source."""
        return {
            "kafka.max.poll.records": str(self.records),
            "kafka.max.partition.fetch.bytes": str(self.size),
        }

    def __str__(self) -> str:
        size = f"{self.size >> 20} MB" if self.size >= 1 << 20 else f"{self.size >> 10} kB"
        return f"{self.records:,} records, {size}"


FETCHES = (Fetch(20_000, 8 << 20), Fetch(2_000, 8 << 20), Fetch(2_000, 1 << 20))
"""What is tried with each topic before it is measured: the quickest is what the tuned source gets with it."""
BACK_TO_BACK, TRIGGER = 1, 200
"""Milliseconds between two batches: one right after the other, which is the quickest with either source; and, of a
trickle, as a consumer has it by default, too."""
LEAST = 30
"""Full batches in the window of a reading."""
SPARE = 6
"""Batches of a topic that may be outside of the window: those in which a source grows, the first and the last."""


_KINDS: Mapping[str, type[Exception]] = {
    "OutOfMemoryError": MemoryError,
    "TimeoutError: not read": TimeoutError,
}
"""What ended a driver, by what its log holds."""


class TooFewBatchesError(RuntimeError):
    """A reading is not long enough to measure."""


def window(reading: Reading, most: int) -> list[Batch]:
    """Return the batches from the first full one to the last, without the one that reaches the topic's end.

    Smaller ones between them count, too. Raises `TooFewBatchesError` if less than two are full.
    """
    ends = [n for n, batch in enumerate(reading.batches[:-1]) if is_full(batch, most)]
    if len(ends) < 2:  # noqa: PLR2004  a beginning and an end
        sizes = [batch.records for batch in reading.batches]
        raise TooFewBatchesError(f"no two full batches of {most} records: {sizes}; read a longer topic")
    return reading.batches[ends[0] : ends[-1] + 1]


def is_full(batch: Batch, most: int) -> bool:
    """Tell whether it holds about as much as a batch may."""
    return batch.records >= FULL * most


@dataclass(frozen=True)
class Figure:
    """One input and one sink: the readings of each source, one a round."""

    input: Input
    sink: str
    readings: Mapping[str, list[Reading]]

    def steady(self, reading: Reading) -> float:
        """Return records/s in the window."""
        first, *others = window(reading, self.input.most)
        return sum(batch.records for batch in others) / (others[-1].end - first.end)

    def whole(self, reading: Reading) -> float:
        """Return records/s from the start of the query to the end of the topic."""
        return sum(batch.records for batch in reading.batches) / reading.batches[-1].end

    def cpu(self, reading: Reading) -> float:
        """Return CPU seconds a million records in the window."""
        first, *others = window(reading, self.input.most)
        return (others[-1].cpu - first.cpu) / sum(batch.records for batch in others) * 1e6

    def memory(self, reading: Reading) -> float:
        """Return MB, the most."""
        return reading.memory / 1e6

    def middle(self, source: str, figure: Callable[[Reading], float]) -> float:
        """Return the median of the rounds."""
        return median(map(figure, self.readings[source]))

    def ratios(self, figure: Callable[[Reading], float]) -> list[float]:
        """Divide Muster's figure by that of the tuned source, round by round."""
        pairs = zip(self.readings[MUSTER], self.readings[TUNED], strict=True)
        return [figure(muster) / figure(tuned) for muster, tuned in pairs]

    def ratio(self, figure: Callable[[Reading], float]) -> float:
        """Return the median of `ratios`."""
        return median(self.ratios(figure))


@dataclass(frozen=True)
class Tuning:
    """Records/s of the tuned source with each of `FETCHES`, in their order; 0 where it ran out of memory."""

    input: Input
    rates: Sequence[float]

    @property
    def best(self) -> Fetch:
        """Return that with which it was the quickest."""
        return FETCHES[max(range(len(FETCHES)), key=self.rates.__getitem__)]


@dataclass(frozen=True)
class Start:
    """Seconds from the start of a new driver's query to its first full batch's end: of each source one a round."""

    input: Input
    seconds: Mapping[str, list[float]]

    @property
    def ratio(self) -> float:
        """Muster's over that of the tuned source, the median of the rounds."""
        pairs = zip(self.seconds[MUSTER], self.seconds[TUNED], strict=True)
        return median(muster / tuned for muster, tuned in pairs)


@dataclass(frozen=True)
class Latency:
    """Delays at a trickle, in seconds: of each source a list a round. `cores` are those that it took on average."""

    interval: float
    partitions: int
    trigger: int
    delays: Mapping[str, Sequence[Sequence[float]]]
    cores: Mapping[str, Sequence[float]]

    def middle(self, source: str) -> float:
        """Return the median of all delays of `source`."""
        return median(delay for of_round in self.delays[source] for delay in of_round)

    def late(self, source: str) -> float:
        """Return the 99th percentile."""
        return quantiles([delay for of_round in self.delays[source] for delay in of_round], n=100)[98]

    @property
    def ratio(self) -> float:
        """Muster's median over that of the tuned source, the median of the rounds."""
        pairs = zip(self.delays[MUSTER], self.delays[TUNED], strict=True)
        return median(median(muster) / median(tuned) for muster, tuned in pairs)


@dataclass(frozen=True)
class Plan:
    """How long and how much: `batches` full ones a topic, `cores` of Spark, a trickle of `seconds` a round."""

    inputs: Sequence[Input]
    sinks: Sequence[str]
    rounds: int
    batches: int
    cores: int
    seconds: float
    interval: float = 0.05


def throughput(kafka: KafkaSettings, plan: Plan, logs: Path) -> Iterator[tuple[Tuning, Start, list[Figure]]]:
    """Read every input with every sink, the sources in turns, the one that begins changing with each round.

    The drivers are new in each round. Before the first, the tuned source is tuned for the input.
    """
    for given in plan.inputs:
        records = given.most * plan.batches
        with topic_of(kafka, given, records) as name:
            topic = ReadTopic(kafka, name, given, plan)
            tuning = tune(topic, logs)
            topic = replace(topic, fetch=tuning.best)
            cold: dict[str, list[float]] = {source: [] for source in SOURCES}
            found: dict[str, dict[str, list[Reading]]] = {
                sink: {source: [] for source in SOURCES} for sink in plan.sinks
            }
            for number in range(plan.rounds):
                turn = SOURCES[:: 1 if number % 2 else -1]
                with ExitStack() as stack:
                    drivers = drivers_of(stack, turn, plan, logs)
                    for source in turn:
                        cold[source].append(start_cold(drivers[source], topic))
                        say(
                            f"{given}, {source}, cold: {cold[source][-1]:.1f} s to the first full batch's end"
                        )
                    for sink in plan.sinks:
                        for source in turn:
                            found[sink][source].append(read_whole(drivers[source], topic, sink))
            if NOOP in plan.sinks:
                with ExitStack() as stack:
                    driver = drivers_of(stack, (SHIPPED,), plan, logs)[SHIPPED]
                    start_cold(driver, topic)
                    found[NOOP][SHIPPED] = [read_whole(driver, topic, NOOP)]
            figures = [Figure(given, sink, readings) for sink, readings in found.items()]
            yield tuning, Start(given, cold), figures


@dataclass(frozen=True)
class ReadTopic:
    """What a driver is to read: the topic `name` holds what `given` says. `fetch` is the tuned source's; `options`
    stand in place of a source's own."""

    kafka: KafkaSettings
    name: str
    given: Input
    plan: Plan
    fetch: Fetch = FETCHES[0]
    options: Mapping[str, str] | None = None
    patience: float | None = None

    def order(self, source: str, sink: str) -> Order:
        """Return the order to read it all with `source`, once."""
        options = {**TUNING, **self.fetch.options()} if source == TUNED else {}
        if self.options is not None:
            options = dict(self.options)
        if source != SHIPPED and self.given.partitions < self.plan.cores:
            options["minPartitions"] = str(self.plan.cores)
        return Order(
            self.kafka.bootstrap_servers,
            self.name,
            self.given.partitions,
            self.given.most * self.plan.batches,
            self.given.most,
            sink,
            BACK_TO_BACK,
            options=options,
            patience=self.patience or PATIENCE,
        )


def tune(topic: ReadTopic, logs: Path) -> Tuning:
    """Read the topic twice with each of `FETCHES`, `noop`, each time with a new driver; the second time counts."""
    rates = []
    for fetch in FETCHES:
        with ExitStack() as stack:
            driver = drivers_of(stack, (TUNED,), topic.plan, logs)[TUNED]
            tried = replace(topic, fetch=fetch)
            try:
                start_cold(driver, tried)
                rates.append(Figure(topic.given, NOOP, {}).steady(read_whole(driver, tried, NOOP)))
            except MemoryError:
                rates.append(0.0)
        say(f"{topic.given}, {TUNED} with {fetch}: {rates[-1]:,.0f} records/s")
    return Tuning(topic.given, rates)


def start_cold(driver: Driver, topic: ReadTopic) -> float:
    """Have a new driver read the topic, which warms it up; return the seconds to its first full batch's end."""
    return window(driver.read(topic.order(driver.source, WARM_UP)), topic.given.most)[0].end


def read_whole(driver: Driver, topic: ReadTopic, sink: str) -> Reading:
    """Have a driver read the topic. Raises `TooFewBatchesError` if not enough of its batches were full."""
    given, reading = topic.given, driver.read(topic.order(driver.source, sink))
    figure = Figure(given, sink, {})
    count = sum(is_full(batch, given.most) for batch in window(reading, given.most))
    say(
        f"{given}, {sink}, {driver.source}: {figure.steady(reading):,.0f} records/s in {count} full batches, "
        f"{figure.whole(reading):,.0f} with the start, {figure.cpu(reading):.2f} CPU s a million, "
        f"{figure.memory(reading):,.0f} MB"
    )
    if count < min(LEAST, topic.plan.batches - SPARE):
        sizes = [batch.records for batch in reading.batches]
        raise TooFewBatchesError(f"{given}, {sink}, {driver.source}: {count} full batches: {sizes}")
    return reading


def latency(kafka: KafkaSettings, plan: Plan, logs: Path, partitions: int = 12) -> Iterator[Latency]:
    """Follow a trickle with each trigger, the sources in turns."""
    with ExitStack() as stack:
        drivers = drivers_of(stack, SOURCES, plan, logs)
        for trigger in (BACK_TO_BACK, TRIGGER):
            delays: dict[str, list[Sequence[float]]] = {source: [] for source in SOURCES}
            cores: dict[str, list[float]] = {source: [] for source in SOURCES}
            for number in range(-1, plan.rounds):
                for source in SOURCES[:: 1 if number % 2 else -1]:
                    seconds = plan.seconds if number >= 0 else 1.0
                    found = _follow(drivers[source], kafka, partitions, plan.interval, trigger, seconds)
                    if number < 0:
                        continue  # the first one warms up
                    if not found.delays:
                        raise RuntimeError(f"{source}: no record of a trickle in {plan.seconds:g} s")
                    delays[source].append(found.delays)
                    cores[source].append(_cores(found.batches))
                    say(
                        f"trickle, {trigger} ms, {source}: median {median(found.delays) * 1e3:.0f} ms of "
                        f"{len(found.delays)} records, {cores[source][-1]:.2f} cores"
                    )
            yield Latency(plan.interval, partitions, trigger, delays, cores)


def _follow(
    driver: Driver, kafka: KafkaSettings, partitions: int, interval: float, trigger: int, seconds: float
) -> Reading:
    """Have a driver follow a trickle of its own, for `seconds` that count."""
    with trickle_of(kafka, partitions, interval) as topic:
        order = Order(
            kafka.bootstrap_servers,
            topic,
            partitions,
            0,
            Input(200, partitions).most,
            COLLECT,
            trigger,
            until=SETTLE + seconds,
            options={**TUNING, **FETCHES[0].options()} if driver.source == TUNED else {},
        )
        return driver.read(order)


def _cores(batches: Sequence[Batch]) -> float:
    """Return how many cores were busy on average, from `SETTLE` seconds after the first batch to the last one."""
    first = next(batch for batch in batches if batch.end >= batches[0].end + SETTLE)
    return (batches[-1].cpu - first.cpu) / (batches[-1].end - first.end)


def drivers_of(stack: ExitStack, sources: Sequence[str], plan: Plan, logs: Path) -> Mapping[str, Driver]:
    """Start a driver for each of `sources`; they are closed with `stack`."""
    drivers = {source: Driver(source, plan.cores, logs / f"{source}.log") for source in sources}
    for made in drivers.values():
        stack.callback(made.close)
    return drivers
