"""Measures the sources on the same topic, each in a process of its own, in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.harness.worker import Worker
from benchmarks.throughput_driver import (
    BACK_TO_BACK,
    COLLECT,
    HEAP,
    MUSTER,
    NOOP,
    SETTLE,
    SHIPPED,
    TRIGGER,
    TUNED,
    WARM_UP,
    Batch,
    Input,
    Order,
    Reading,
    Spark,
)
from benchmarks.throughput_figures import (
    FETCHES,
    SHORT,
    SOURCES,
    Fetch,
    Figure,
    Heap,
    Latency,
    Start,
    TooFewBatchesError,
    Tuning,
    is_full,
    window,
)
from benchmarks.throughput_inputs import topic_of, trickle_of
from devstack.progress import say
from muster.settings.connections import KafkaSettings

TUNING: Mapping[str, str] = {"kafka.fetch.max.wait.ms": "50", "kafka.receive.buffer.bytes": "-1"}
"""What the tuned source is given with each topic beside `maxOffsetsPerTrigger`, a cache for 256 consumers, and
`minPartitions` where a topic has fewer partitions than there are cores."""
LEAST = 30
"""Full batches in the window of a reading."""
SPARE = 6
"""Batches of a topic that may be outside of the window: those in which a source grows, the first and the last."""
HEAPS = (8192, 6144, 4096, 3072, 2048, 1536, 1024, 768, 512)
"""Heaps of a driver, in MB, the largest first."""
GIVEN, BATCHES = Input(1000, 100), 12
"""What is read with each heap."""
TRIED: Mapping[str, Sequence[Fetch | None]] = {TUNED: (*FETCHES, SHORT), MUSTER: (None, SHORT)}
"""How much each source asks Kafka for at once with each heap; None: its defaults."""
SLOWEST = 5.0
"""A reading that takes so many times that of the largest heap is ended: its heap is too small."""
LEAST_PATIENCE = 60.0
"""Seconds that any reading may take."""
_ERRORS: Mapping[str, type[Exception]] = {
    "OutOfMemoryError": MemoryError,
    "TimeoutError: not read": TimeoutError,
}
"""What ended a driver, by what its log holds."""


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


class Driver(Worker):
    """A driver with `source`, which asks Kafka for so much at once as `fetch` says, or has its defaults.

    `java_options` are further ones of its JVM, `heap` is that of Java's `-Xmx`. A reading raises MemoryError if the
    JVM has run out of memory, TimeoutError if the order's patience has ended.
    """

    def __init__(
        self,
        source: str,
        cores: int,
        logs: Path,
        fetch: Fetch | None,
        java_options: str = "",
        heap: str = HEAP,
    ) -> None:
        self.source, self._cores = source, cores
        self._options = {**(TUNING if source == TUNED else {}), **(fetch.options() if fetch else {})}
        log = logs / f"{source}.log"
        super().__init__(Spark, source, cores, java_options, heap, log=log, errors=_ERRORS)

    def carry_out(self, order: Order) -> Reading:
        least = {"minPartitions": str(self._cores)}
        few = self.source != SHIPPED and order.given.partitions < self._cores
        return self.call(Spark.read, replace(order, options={**self._options, **(least if few else {})}))

    def start_cold(self, order: Order) -> float:
        """Read a topic, which warms a new driver up; return the seconds to its first full batch's end."""
        return window(self.carry_out(replace(order, sink=WARM_UP)), order.given.most)[0].end

    def read(self, order: Order, sink: str) -> Reading:
        """Read a topic. Raises `TooFewBatchesError` if not enough of its batches were full."""
        given, reading = order.given, self.carry_out(replace(order, sink=sink))
        figure = Figure(given, sink, {})
        count = sum(is_full(batch, given.most) for batch in window(reading, given.most))
        say(
            f"{given}, {sink}, {self.source}: {figure.steady(reading):,.0f} records/s in {count} full batches, "
            f"{figure.whole(reading):,.0f} with the start, {figure.cpu(reading):.2f} CPU s a million, "
            f"{figure.memory(reading):,.0f} MB"
        )
        if count < min(LEAST, order.records // given.most - SPARE):
            sizes = [batch.records for batch in reading.batches]
            raise TooFewBatchesError(f"{given}, {sink}, {self.source}: {count} full batches: {sizes}")
        return reading


def throughput(kafka: KafkaSettings, plan: Plan, logs: Path) -> Iterator[tuple[Tuning, Start, list[Figure]]]:
    """Read every input with every sink, the sources in turns, the one that begins changing with each round.

    The drivers are new in each round. Before the first, the tuned source is tuned for the input.
    """
    for given in plan.inputs:
        records = given.most * plan.batches
        with topic_of(kafka, given, records) as name:
            order = Order(kafka.bootstrap_servers, name, given, records)
            tuning = tune(order, plan.cores, logs)
            cold: dict[str, list[float]] = {source: [] for source in SOURCES}
            found: dict[str, dict[str, list[Reading]]] = {
                sink: {source: [] for source in SOURCES} for sink in plan.sinks
            }
            for number in range(plan.rounds):
                with ExitStack() as stack:
                    drivers = []
                    for source in SOURCES[:: 1 if number % 2 else -1]:
                        fetch = tuning.best if source == TUNED else None
                        drivers.append(stack.enter_context(closing(Driver(source, plan.cores, logs, fetch))))
                    for driver in drivers:
                        seconds = driver.start_cold(order)
                        cold[driver.source].append(seconds)
                        say(f"{given}, {driver.source}, cold: {seconds:.1f} s to the first full batch's end")
                    for sink in plan.sinks:
                        for driver in drivers:
                            found[sink][driver.source].append(driver.read(order, sink))
            if NOOP in plan.sinks:
                with closing(Driver(SHIPPED, plan.cores, logs, None)) as driver:
                    driver.start_cold(order)
                    found[NOOP][SHIPPED] = [driver.read(order, NOOP)]
            figures = [Figure(given, sink, readings) for sink, readings in found.items()]
            yield tuning, Start(given, cold), figures


def tune(order: Order, cores: int, logs: Path) -> Tuning:
    """Read the topic twice with each of `FETCHES`, `noop`, each time with a new driver; the second time counts."""
    return Tuning(order.given, [_rate(order, TUNED, cores, logs, fetch) for fetch in FETCHES])


def _rate(
    order: Order,
    source: str,
    cores: int,
    logs: Path,
    fetch: Fetch | None,
    heap: str = HEAP,
    late: tuple[type[Exception], ...] = (),
) -> float:
    """Return records/s of a new driver's second reading, 0 if it runs out of memory, or is `late`."""
    rate = 0.0
    with (
        suppress(MemoryError, *late),
        closing(Driver(source, cores, logs, fetch, heap=heap)) as driver,
    ):
        driver.start_cold(order)
        rate = Figure(order.given, NOOP, {}).steady(driver.read(order, NOOP))
    say(f"{order.given}, {source} with {fetch or 'defaults'}, heap {heap}: {rate:,.0f} records/s")
    return rate


def latency(kafka: KafkaSettings, plan: Plan, logs: Path) -> Iterator[Latency]:
    """Follow a trickle with each trigger, the sources in turns."""
    given = Input(200, 12)
    with ExitStack() as stack:
        drivers = []
        for source in SOURCES:
            fetch = FETCHES[0] if source == TUNED else None
            drivers.append(stack.enter_context(closing(Driver(source, plan.cores, logs, fetch))))
        for trigger in (BACK_TO_BACK, TRIGGER):
            delays: dict[str, list[Sequence[float]]] = {source: [] for source in SOURCES}
            cores: dict[str, list[float]] = {source: [] for source in SOURCES}
            for number in range(-1, plan.rounds):
                for driver in drivers[:: 1 if number % 2 else -1]:
                    until = SETTLE + (plan.seconds if number >= 0 else 1.0)
                    with trickle_of(kafka, given.partitions, plan.interval) as topic:
                        order = Order(kafka.bootstrap_servers, topic, given, 0, COLLECT, trigger, until)
                        found = driver.carry_out(order)
                    if number < 0:
                        continue  # the first one warms up
                    source = driver.source
                    if not found.delays:
                        raise RuntimeError(f"{source}: no record of a trickle in {plan.seconds:g} s")
                    delays[source].append(found.delays)
                    cores[source].append(_cores(found.batches))
                    say(
                        f"trickle, {trigger} ms, {source}: median {median(found.delays) * 1e3:.0f} ms of "
                        f"{len(found.delays)} records, {cores[source][-1]:.2f} cores"
                    )
            yield Latency(plan.interval, given.partitions, trigger, delays, cores)


def _cores(batches: Sequence[Batch]) -> float:
    """Return how many cores were busy on average, from `SETTLE` seconds after the first batch to the last one."""
    first = next(batch for batch in batches if batch.end >= batches[0].end + SETTLE)
    return (batches[-1].cpu - first.cpu) / (batches[-1].end - first.end)


def memory(kafka: KafkaSettings, plan: Plan, logs: Path) -> Iterator[Heap]:
    """Read one topic with smaller and smaller heaps, the sources in turns, each time with a new driver."""
    records = GIVEN.most * BATCHES
    with topic_of(kafka, GIVEN, records) as name:
        order = Order(kafka.bootstrap_servers, name, GIVEN, records)
        orders = dict.fromkeys(SOURCES, order)
        for size in HEAPS:
            fetches, rates = {}, {}
            for source in SOURCES:
                rate = partial(
                    _rate, orders[source], source, plan.cores, logs, heap=f"{size}m", late=(TimeoutError,)
                )
                tried = {fetch: rate(fetch) for fetch in TRIED[source]}
                best = max(tried, key=lambda fetch: tried[fetch])
                others = range(plan.rounds - 1 if tried[best] else 0)
                fetches[source] = str(best or "defaults")
                rates[source] = [tried[best], *(rate(best) for _ in others)]
            heap = Heap(size, fetches, rates)
            for source in SOURCES:
                if orders[source] is order and (reached := heap.rate(source)):
                    patience = max(LEAST_PATIENCE, SLOWEST * records / reached)
                    orders[source] = replace(order, patience=patience)
            yield heap
