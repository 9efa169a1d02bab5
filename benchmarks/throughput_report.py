"""What the throughput benchmark leaves behind: tables, a plot, and the line of ratios."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.drawing import INK, drawing, ink
from benchmarks.markdown import table
from benchmarks.throughput_driver import MUSTER, NOOP, PARQUET, SHIPPED, TOUCH, TUNED, Reading
from benchmarks.throughput_figures import (
    BACK_TO_BACK,
    FETCHES,
    LEAST,
    SINKS,
    SOURCES,
    TUNING,
    Figure,
    Latency,
    Start,
    Tuning,
)
from benchmarks.throughput_inputs import LZ4
from benchmarks.throughput_memory import cells as heap_cells
from benchmarks.throughput_memory import section as heaps_section
from benchmarks.throughput_results import Results

PLOT = "plot-throughput.svg"
REPORT = "report-throughput.md"
COLOURS = {TUNED: "#bc4c00", MUSTER: "#0969da"}
NAMES = {TUNED: "Spark's source, tuned", MUSTER: "Muster"}

HEADER = (
    "topic",
    "sink",
    "tuned records/s",
    "Muster records/s",
    "ratio",
    "with the start",
    "CPU s a million, tuned / Muster",
    "memory MB, tuned / Muster",
    "ms a batch, tuned / Muster",
)
_GOAL_SIZES = (200, 1000)
_LIMITS = (
    "## What limits Muster",
    "",
    "[Where the CPU goes](report-throughput-profile.md), by thread, is measured by",
    "`python -m benchmarks.throughput_profile`.",
    "",
    "- *`parquet` on one partition, its records/s and its CPU*: the cores are full with either source, and most of",
    "  it is Spark's writing, the same for both: the tasks of `parquet` less those of `noop`. With planning,",
    "  compiling and collecting it takes about as much as 0.7 of all that the tuned source takes, so reading would",
    "  have to be free for a ratio of 0.7. Reading is Kafka's client with both: it unpacks, checks and copies each",
    "  record. Tried, without a gain: handing the handler a batch that Spark reads as a table, without the copies of",
    "  `foreachBatch` and without the columns that nothing uses (2.86 instead of 2.88 CPU s a million, the mean of",
    "  three drivers each, in turns); larger fetches; one task instead of two.",
    "- *`touch` of 1,000 B on one partition, its CPU*: with Muster, reading a batch takes less CPU than planning,",
    "  compiling and scheduling it does, and these take about the same with either source.",
    "- *Memory*: with this collector a third of the heap is for new objects, and is used before anything is",
    "  collected, with either source. Muster's 64 MB of read ahead and its agent's 20 MB come on top; so does what",
    "  the tuned source fetches, which is the more the more records it asks for at once.",
    "- *The start*: Muster's first batch, of 100,000 records, is done before that of the tuned source, and then a",
    "  second one is needed for a full one. A single round is up to a fifth off.",
    "- *A trickle*: one batch after the other takes Muster more CPU than the tuned source, because it makes more of",
    "  them; with 200 ms, less.",
    "",
)


def row(figure: Figure) -> tuple[str, ...]:
    """Format one line of the table, in the order of `HEADER`."""
    return (
        str(figure.input),
        figure.sink,
        _spread(figure, TUNED),
        _spread(figure, MUSTER),
        f"**{_ratio(figure, figure.steady)}**",
        _ratio(figure, figure.whole),
        f"{figure.middle(TUNED, figure.cpu):.2f} / {figure.middle(MUSTER, figure.cpu):.2f} "
        f"= {_ratio(figure, figure.cpu)}",
        f"{figure.middle(TUNED, figure.memory):,.0f} / {figure.middle(MUSTER, figure.memory):,.0f} "
        f"= {_ratio(figure, figure.memory)}",
        f"{_a_batch(figure, TUNED)} / {_a_batch(figure, MUSTER)}",
    )


def _spread(figure: Figure, source: str) -> str:
    values = [figure.steady(reading) for reading in figure.readings[source]]
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _ratio(figure: Figure, of: Callable[[Reading], float]) -> str:
    found = figure.ratios(of)
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def _a_batch(figure: Figure, source: str) -> str:
    return f"{figure.readings[source][-1].spent.get('triggerExecution', 0):,.0f}"


def ratios(results: Results) -> str:
    """Format the last line of a run: Muster's figures over those of the tuned source, the worst of all topics with
    lz4 and records of 200 B and 1 kB. `nan` is what was not measured."""
    figures = [f for f in results.figures if f.input.codec == LZ4 and f.input.size in _GOAL_SIZES]
    starts = [s.ratio for s in results.starts if s.input.codec == LZ4 and s.input.size in _GOAL_SIZES]

    def least(sink: str) -> float:
        return min((f.ratio(f.steady) for f in figures if f.sink == sink), default=math.nan)

    def most(found: Iterable[float]) -> float:
        return max(found, default=math.nan)

    cells = {
        "noop": least(NOOP),
        "parquet": least(PARQUET),
        "touch": least(TOUCH),
        "cpu": most(f.ratio(f.cpu) for f in figures),
        "memory": most(f.ratio(f.memory) for f in figures),
        "latency": next((of.ratio for of in results.delays if of.trigger == BACK_TO_BACK), math.nan),
        "start": most(starts),
    }
    line = " ".join(f"{name}_ratio={cell:.2f}" for name, cell in cells.items())
    return f"bench-throughput: {line} {heap_cells(results.heaps)}"


def write(folder: Path, results: Results) -> None:
    """Write the report and its plot into `folder`."""
    figures, of = results.figures, results.conditions
    _plot(folder / PLOT, figures)
    options = ", ".join(f"`{key}={value}`" for key, value in TUNING.items())
    rounds = {len(figure.readings[source]) for figure in figures for source in SOURCES}
    batches = {f"{figure.input.most:,} records of {figure.input.size:,} B": None for figure in figures}
    lines = [
        "# Muster's source beside Spark's own Kafka source",
        "",
        "Written by `make bench-throughput`: do not edit. All read the same topic from the same broker,",
        f"in turns, {' to '.join(map(str, sorted(rounds)))} rounds, each round with new drivers, each driver a",
        f"process of its own with Spark in local mode on {of.cores} cores and a heap of {of.heap}, both with",
        f"`{of.java_options}`, with which either reads more than with Java's default. Everything is on one machine.",
        "",
        f"A reading is a topic of {of.batches} full batches from beginning to end ({', '.join(batches)}),",
        "through `foreachBatch`, one batch after the other. Records/s and CPU are those of its window: from the end",
        f"of the first full batch to that of the last (at least {min(LEAST, of.batches)} if the topic has so many),",
        "without the one that reaches the topic's end. `with the start` is from the query's start to that end. Each",
        "driver has read the topic once before, with the sinks in turns, so that their code is warm. Figures are",
        "medians of the rounds, in brackets the least and the most; ratios are Muster's over the tuned source's,",
        "round by round: of records/s above 1 Muster is better, of all else below. CPU and memory (resident, the",
        "most) are those of driver and JVM together, as the kernel counts them; the broker is not counted.",
        "",
        "Sinks: `parquet` is Spark's own writing; `touch` is `sum(crc32(value))`, which looks at each byte; `noop`",
        "takes each row and does nothing. A driver goes through them in this order.",
        "",
        f"The tuned source has {options}, `maxOffsetsPerTrigger`, `spark.kafka.consumer.cache.capacity=256`, and",
        f"`minPartitions={of.cores}` where the topic has fewer partitions. Muster has that, too, and otherwise its",
        "defaults, with the largest batch as said, its real agent, and its commits to Kafka with fencing; its claims",
        "are part of the start.",
        "",
        "How much the tuned source asks Kafka for at once is found out by trying, topic by topic: its",
        "`kafka.max.poll.records` and `kafka.max.partition.fetch.bytes` are those of the table with which it read",
        "the most, `noop`, in the second reading of a new driver. 8 MB a partition and 20,000 records read ahead",
        "the most, but fill its heap, and a consumer that collects garbage does not read.",
        "",
        *table(("topic", *map(str, FETCHES)), map(_tuning, results.tunings)),
        "",
        "What flatters Muster: the broker is on the same cores, so a reader that needs less CPU has a quicker",
        "broker; its checkpoint is never read, and is on a file system of its own that starts no processes. What",
        "flatters Spark's source: it commits nothing; its checkpoint has no checksums here, as Muster's; the network",
        "is the loopback interface, where reading ahead gains least; its batches are full from the first one, where",
        "Muster begins with 100,000 records.",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {of.load:.1f} before the run.",
        ""
        if of.load < 1
        else "**The machine was not quiet: only the ratios say something, and they are rough.**",
        "",
        f"![Records a second]({PLOT})",
        "",
        *table(HEADER, map(row, figures)),
        "",
        "## As Spark ships it",
        "",
        "Spark's source without tuning, `noop`, one reading a topic.",
        "",
        *table(
            ("topic", "records/s", "CPU s a million", "Muster reads"),
            (_shipped(figure) for figure in figures if SHIPPED in figure.readings),
        ),
        "",
        "## From cold",
        "",
        "Seconds from the start of a new driver's first query to the end of its first full batch, `noop`.",
        "",
        *table(("topic", "tuned", "Muster", "ratio"), map(_start, results.starts)),
        "",
        *_latency(results.delays),
        *heaps_section(results.heaps),
        *_LIMITS,
        f"`{ratios(results)}`",
        "",
        "The worst of all topics with lz4 and records of 200 B and 1 kB.",
        "",
    ]
    (folder / REPORT).write_text("\n".join(lines), encoding="utf-8")


def _shipped(figure: Figure) -> tuple[str, ...]:
    rate = figure.middle(SHIPPED, figure.steady)
    return (
        str(figure.input),
        f"{rate:,.0f}",
        f"{figure.middle(SHIPPED, figure.cpu):.2f}",
        f"{figure.middle(MUSTER, figure.steady) / rate:.1f} times as much",
    )


def _tuning(tuning: Tuning) -> tuple[str, ...]:
    cells = (f"{rate:,.0f}" if rate else "out of memory" for rate in tuning.rates)
    pairs = zip(FETCHES, cells, strict=True)
    return (str(tuning.input), *(f"**{cell}**" if fetch == tuning.best else cell for fetch, cell in pairs))


def _start(start: Start) -> tuple[str, ...]:
    tuned, muster = (f"{median(start.seconds[source]):.1f}" for source in SOURCES)
    return (str(start.input), tuned, muster, f"{start.ratio:.2f}")


def _latency(delays: Sequence[Latency]) -> Iterator[str]:
    if not delays:
        return
    yield "## Latency"
    yield ""
    yield f"A record every {delays[0].interval * 1e3:.0f} ms to {delays[0].partitions} partitions; from before it is"
    yield "produced until a handler that collects has it. With a trigger of 1 ms one batch follows the other, which"
    yield "is the quickest for both; Muster's consumers have 200 ms by default, which take less CPU."
    yield ""
    yield from table(
        ("trigger ms", "source", "median ms", "p99 ms", "cores taken", "records"),
        (
            (
                f"{of.trigger}",
                NAMES[source],
                f"{of.middle(source) * 1e3:.0f}",
                f"{of.late(source) * 1e3:.0f}",
                f"{median(of.cores[source]):.2f}",
                f"{sum(map(len, of.delays[source]))}",
            )
            for of in delays
            for source in SOURCES
        ),
    )
    yield ""


def _plot(path: Path, figures: Sequence[Figure]) -> None:
    """Plot records/s by topic, a panel a sink; the lines span the rounds."""
    with drawing(path, "throughput", (12, 4.2)) as sheet:
        for panel, sink in zip(sheet.subplots(1, len(SINKS)), SINKS, strict=True):
            shown = [figure for figure in figures if figure.sink == sink and figure.input.size in _GOAL_SIZES]
            places = np.arange(len(shown))
            for shift, source in ((-0.2, TUNED), (0.2, MUSTER)):
                rates = [[f.steady(reading) for reading in f.readings[source]] for f in shown]
                middle = np.array([median(of_rounds) for of_rounds in rates])
                spread = np.array(
                    [middle - [min(each) for each in rates], [max(each) for each in rates] - middle]
                )
                panel.bar(
                    places + shift,
                    middle,
                    0.38,
                    yerr=spread,
                    color=COLOURS[source],
                    ecolor=INK,
                    label=NAMES[source],
                )
            panel.set_xticks(places, [_tick(figure) for figure in shown], fontsize="small")
            panel.set_title(f"{sink}, records a second", color=INK)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            panel.set_xlabel("bytes a record, partitions", color=INK, fontsize="small")
            ink(panel, "y")
        panel.legend(fontsize="small", framealpha=0)


def _tick(figure: Figure) -> str:
    codec = "" if figure.input.codec == LZ4 else f"\n{figure.input.codec}"
    return f"{figure.input.size} B\n{figure.input.partitions}{codec}"
