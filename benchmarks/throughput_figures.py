"""What is measured of the sources, and how the parts of a run become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import median, quantiles

from benchmarks.harness.options import Keeper, newest
from benchmarks.throughput_driver import FULL, MUSTER, NOOP, PARQUET, TOUCH, TUNED, Batch, Input, Reading

SINKS = (PARQUET, TOUCH, NOOP)
"""In the order of a driver: the JVM compiles less and less meanwhile, which disturbs `noop` the most."""
SOURCES = (TUNED, MUSTER)
"""Those that take turns. The source as Spark ships it is read once a topic."""
ENOUGH = 0.8
"""The part of its own records/s with the largest heap that a source has to reach with a smaller one."""


@dataclass(frozen=True)
class Fetch:
    """How much a source asks Kafka for at once: `records` a poll, `size` bytes a partition."""

    records: int
    size: int

    def options(self) -> dict[str, str]:
        return {
            "kafka.max.poll.records": str(self.records),
            "kafka.max.partition.fetch.bytes": str(self.size),
        }

    def __str__(self) -> str:
        size = f"{self.size >> 20} MB" if self.size >= 1 << 20 else f"{self.size >> 10} kB"
        return f"{self.records:,} records, {size}"


FETCHES = (Fetch(20_000, 8 << 20), Fetch(2_000, 8 << 20), Fetch(2_000, 1 << 20))
"""What is tried with each topic before it is measured: the quickest is what the tuned source gets with it."""
SHORT = Fetch(500, 256 << 10)
"""What an expert who is short of memory has Spark's source ask Kafka for."""


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

    def each(self, source: str, figure: Callable[[Reading], float]) -> list[float]:
        return [figure(reading) for reading in self.readings[source]]

    def middle(self, source: str, figure: Callable[[Reading], float]) -> float:
        return median(self.each(source, figure))

    def a_batch(self, source: str) -> float:
        """Return the ms of a batch in the last round, by Spark's own account."""
        return self.readings[source][-1].spent.get("triggerExecution", 0.0)

    def ratios(self, figure: Callable[[Reading], float]) -> list[float]:
        """Divide Muster's figure by that of the tuned source, round by round."""
        pairs = zip(self.readings[MUSTER], self.readings[TUNED], strict=True)
        return [figure(muster) / figure(tuned) for muster, tuned in pairs]

    def ratio(self, figure: Callable[[Reading], float]) -> float:
        return median(self.ratios(figure))


@dataclass(frozen=True)
class Tuning:
    """Records/s of the tuned source with each of `FETCHES`, in their order; 0 where it ran out of memory."""

    input: Input
    rates: Sequence[float]

    @property
    def best(self) -> Fetch:
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
        return quantiles([delay for of_round in self.delays[source] for delay in of_round], n=100)[98]

    @property
    def ratio(self) -> float:
        """Muster's median over that of the tuned source, the median of the rounds."""
        pairs = zip(self.delays[MUSTER], self.delays[TUNED], strict=True)
        return median(median(muster) / median(tuned) for muster, tuned in pairs)


@dataclass(frozen=True)
class Heap:
    """Records/s of each source with a heap of `size` MB, one a driver, with the best that was tried; 0 where a driver
    ran out of memory or was not done in time."""

    size: int
    fetches: Mapping[str, str]
    rates: Mapping[str, Sequence[float]]

    def rate(self, source: str) -> float:
        return median(self.rates[source])


def least_heap(heaps: Sequence[Heap], source: str) -> float:
    """Return the least heap, in MB, down to which `source` reads enough; nan without figures."""
    ordered = sorted(heaps, key=lambda heap: -heap.size)
    enough = takewhile(lambda heap: heap.rate(source) >= ENOUGH * ordered[0].rate(source) > 0, ordered)
    return min((heap.size for heap in enough), default=math.nan)


@dataclass(frozen=True)
class Conditions:
    """What all parts have in common: a topic's `batches`, the machine's `load` before the run, a driver's `heap`, and
    the options of its JVM."""

    batches: int
    cores: int
    load: float
    heap: str
    java_options: str


@dataclass(frozen=True)
class Results:
    """Figures by topic and sink, the peer's tuning and cold starts by topic, latencies by trigger, and heaps."""

    conditions: Conditions
    figures: tuple[Figure, ...] = ()
    starts: tuple[Start, ...] = ()
    tunings: tuple[Tuning, ...] = ()
    delays: tuple[Latency, ...] = ()
    heaps: tuple[Heap, ...] = ()

    def joined(self, later: Results) -> Results:
        """Join both; what `later` measured again replaces what was there.

        Raises ValueError if they were not measured under the same conditions.
        """
        load = max(self.conditions.load, later.conditions.load)
        conditions = replace(later.conditions, load=load)
        if conditions != replace(self.conditions, load=load):
            raise ValueError(
                f"measured with {self.conditions}, now with {later.conditions}: use another file for the results"
            )
        return Results(
            conditions,
            newest(self.figures, later.figures, lambda figure: (figure.input, figure.sink)),
            newest(self.starts, later.starts, lambda start: start.input),
            newest(self.tunings, later.tunings, lambda tuning: tuning.input),
            newest(self.delays, later.delays, lambda latency: latency.trigger),
            newest(self.heaps, later.heaps, lambda heap: heap.size),
        )


KEEPER = Keeper(Results)
