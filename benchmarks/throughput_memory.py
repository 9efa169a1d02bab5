"""The least heap with which each source reads about as much as with plenty."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median

from benchmarks.markdown import table
from benchmarks.throughput_driver import MUSTER, NOOP, TUNED
from benchmarks.throughput_figures import (
    FETCHES,
    SOURCES,
    TUNING,
    Driver,
    Fetch,
    Figure,
    Plan,
    ReadTopic,
    read_whole,
    start_cold,
)
from benchmarks.throughput_inputs import Input, topic_of
from devstack.progress import say
from muster.settings.connections import KafkaSettings

HEAPS = (8192, 6144, 4096, 3072, 2048, 1536, 1024, 768, 512)
"""Heaps of a driver, in MB, the largest first."""
GIVEN = Input(1000, 100)
SHORT = Fetch(500, 256 << 10)
"""What an expert who is short of memory has Spark's source ask Kafka for."""
TRIED: Mapping[str, Sequence[Fetch | None]] = {TUNED: (*FETCHES, SHORT), MUSTER: (None, SHORT)}
"""How much each source asks Kafka for at once; None: its defaults."""
BATCHES = 12
ENOUGH = 0.8
"""The part of its own records/s with the largest heap that a source has to reach."""
SLOWEST = 5.0
"""A reading that takes so many times that of the largest heap is ended: its heap is too small."""
LEAST_PATIENCE = 60.0
"""Seconds that any reading may take."""


@dataclass(frozen=True)
class Heap:
    """Records/s of each source with a heap of `size` MB, one a driver, with the best of `TRIED`; 0 where a driver ran
    out of memory or was not done in time."""

    size: int
    fetches: Mapping[str, str]
    rates: Mapping[str, Sequence[float]]

    def rate(self, source: str) -> float:
        """Return the median of the drivers."""
        return median(self.rates[source])


def memory(kafka: KafkaSettings, plan: Plan, logs: Path) -> Iterator[Heap]:
    """Read one topic with each heap, the sources in turns, each time with a new driver."""
    plan = replace(plan, batches=BATCHES)
    with topic_of(kafka, GIVEN, GIVEN.most * BATCHES) as name:
        topic = ReadTopic(kafka, name, GIVEN, plan)
        slowest: dict[str, float] = {}
        for size in HEAPS:
            found = {source: _best(topic, source, size, slowest.get(source), logs) for source in SOURCES}
            heap = Heap(
                size,
                {source: _name(fetch) for source, (fetch, _) in found.items()},
                {source: rates for source, (_, rates) in found.items()},
            )
            for source in SOURCES:
                if (rate := heap.rate(source)) and source not in slowest:
                    slowest[source] = max(LEAST_PATIENCE, SLOWEST * GIVEN.most * BATCHES / rate)
            yield heap


def _best(
    topic: ReadTopic, source: str, size: int, patience: float | None, logs: Path
) -> tuple[Fetch | None, list[float]]:
    """Try each of `TRIED` with a driver, and read with further ones with the best."""
    tried = {fetch: _rate(topic, source, size, fetch, patience, logs) for fetch in TRIED[source]}
    best = max(tried, key=lambda fetch: tried[fetch])
    others = range(topic.plan.rounds - 1 if tried[best] else 0)
    return best, [tried[best], *(_rate(topic, source, size, best, patience, logs) for _ in others)]


def _rate(
    topic: ReadTopic, source: str, size: int, fetch: Fetch | None, patience: float | None, logs: Path
) -> float:
    """Return records/s of a new driver's second reading."""
    options = {**(TUNING if source == TUNED else {}), **(fetch.options() if fetch else {})}
    given = replace(topic, options=options, patience=patience)
    rate = 0.0
    with ExitStack() as stack:
        try:
            driver = Driver(source, topic.plan.cores, logs / f"{source}-{size}.log", heap=f"{size}m")
            stack.callback(driver.close)
            start_cold(driver, given)
            rate = Figure(GIVEN, NOOP, {}).steady(read_whole(driver, given, NOOP))
        except (MemoryError, TimeoutError):
            pass
    say(f"heap of {size} MB, {source}, {_name(fetch)}: {rate:,.0f} records/s")
    return rate


def _name(fetch: Fetch | None) -> str:
    return str(fetch) if fetch else "defaults"


def least(heaps: Sequence[Heap], source: str) -> float:
    """Return the least heap, in MB, down to which `source` reads enough; nan without figures."""
    ordered = sorted(heaps, key=lambda heap: -heap.size)
    enough = takewhile(lambda heap: heap.rate(source) >= ENOUGH * ordered[0].rate(source) > 0, ordered)
    return min((heap.size for heap in enough), default=math.nan)


def cells(heaps: Sequence[Heap]) -> str:
    """Format what the last line says."""
    muster = least(heaps, MUSTER)
    return f"heap_mb={muster:.0f} heap_ratio={muster / least(heaps, TUNED):.2f}"


def section(heaps: Sequence[Heap]) -> Iterator[str]:
    """Yield the report's section, nothing without figures."""
    if not heaps:
        return
    yield "## Memory"
    yield ""
    yield f"{GIVEN}, `noop`: records/s by the heap of the driver, the median of {len(heaps[0].rates[MUSTER])} new"
    yield "drivers, and what the source asked Kafka for: each source has the best of what was tried at that heap, the"
    yield f"tuned one the fetches above and {SHORT}, Muster its defaults and the latter. In bold is what reaches"
    yield f"{ENOUGH:.0%} of its own figure with the largest heap, so do all larger heaps; 0 is a driver that ran out"
    yield "of memory or took too long. Both have the same collector. Muster's `max_read_ahead` is its default."
    yield ""
    yield from table(
        ("heap MB", "tuned records/s", "with", "Muster records/s", "with"),
        (
            (
                f"{heap.size}",
                *(cell for source in SOURCES for cell in (_cell(heaps, heap, source), heap.fetches[source])),
            )
            for heap in sorted(heaps, key=lambda heap: -heap.size)
        ),
    )
    yield ""


def _cell(heaps: Sequence[Heap], heap: Heap, source: str) -> str:
    text = f"{heap.rate(source):,.0f}"
    return f"**{text}**" if heap.size >= least(heaps, source) else text
