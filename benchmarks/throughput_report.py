"""What the throughput benchmark leaves behind: tables, a plot, and the line of ratios."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.drawing import INK, drawing, ink
from benchmarks.markdown import table
from benchmarks.throughput_driver import MUSTER, NOOP, PARQUET, SPARK, Reading
from benchmarks.throughput_figures import PEER_OPTIONS, SINKS, Figure, Latency, Side, cpu, steady, whole
from benchmarks.throughput_results import Results

PLOT = "plot-throughput.svg"
REPORT = "report-throughput.md"
COLOURS = {SPARK: "#bc4c00", MUSTER: "#0969da"}
NAMES = {SPARK: "Spark's source", MUSTER: "Muster"}

HEADER = (
    "topic",
    "sink",
    "Spark records/s",
    "Muster records/s",
    "ratio",
    "with the query's start, Spark / Muster",
    "CPU s a million, Spark / Muster",
    "memory MB, Spark / Muster",
    "ms a batch, Spark / Muster",
)


def row(figure: Figure) -> tuple[str, ...]:
    """One line of the table, in the order of `HEADER`."""
    spark, muster = figure.sides[SPARK], figure.sides[MUSTER]
    low, high = min(figure.ratios()), max(figure.ratios())
    return (
        str(figure.input),
        figure.sink,
        _spread(spark, steady),
        _spread(muster, steady),
        f"**{figure.ratio:.2f}** ({low:.2f} to {high:.2f})",
        f"{spark.middle(whole):,.0f} / {muster.middle(whole):,.0f}",
        f"{spark.middle(cpu):.2f} / {muster.middle(cpu):.2f}",
        f"{spark.memory / 1e6:,.0f} / {muster.memory / 1e6:,.0f}",
        f"{_a_batch(spark)} / {_a_batch(muster)}",
    )


def _spread(side: Side, figure: Callable[[Reading], float]) -> str:
    values = [figure(reading) for reading in side.rounds]
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _a_batch(side: Side) -> str:
    """What a batch takes, and how many records it holds."""
    last = side.rounds[-1]
    return f"{last.spent.get('triggerExecution', 0):,.0f} for {last.records / last.batches:,.0f}"


def least(figures: Sequence[Figure], sink: str) -> float:
    """The least ratio of all inputs; not a number if none was measured."""
    return min((figure.ratio for figure in figures if figure.sink == sink), default=math.nan)


def ratios(results: Results) -> str:
    """The last line of a run: Muster's figure over that of Spark's source; of the throughputs the least of all
    inputs. Above 1 Muster is faster, of the latency below 1; `nan` is what was not measured."""
    delay = results.delays.ratio if results.delays else math.nan
    return (
        f"bench-throughput: noop_ratio={least(results.figures, NOOP):.2f} "
        f"parquet_ratio={least(results.figures, PARQUET):.2f} latency_ratio={delay:.2f}"
    )


def write(folder: Path, results: Results) -> None:
    """Write the report and its plot into `folder`."""
    figures, of = results.figures, results.conditions
    _plot(folder / PLOT, figures)
    options = ", ".join(f"`{key}={value}`" for key, value in PEER_OPTIONS.items())
    rounds = [len(side.rounds) for figure in figures for side in figure.sides.values()]
    lines = [
        "# Muster's source beside Spark's own Kafka source",
        "",
        "Written by `make bench-throughput`: do not edit. Both read the same topic (lz4) from the same broker in one",
        f"run, in turns, {' to '.join(map(str, dict.fromkeys((min(rounds), max(rounds)))))} rounds, each in a",
        f"process of its own with Spark in local mode on {of.cores} cores, with a driver's heap of {of.heap},",
        f"`foreachBatch`, and a trigger of {of.trigger} ms. Parquet is Spark's own writing of the batch;",
        "`muster.sinks.ParquetSink`, which is exactly-once, is not measured here. Records/s are steady ones: from",
        "the end of the first batch to that of the last; medians, and the spread of the rounds in brackets. `ratio`",
        "is Muster's over Spark's: above 1 Muster is faster. CPU and memory (resident, the most) are those of",
        "driver, JVM and Python workers together; the broker's are not counted. Pages that forked workers share are",
        "counted for each of them, to Muster's disadvantage.",
        "",
        f"Spark's source: `maxOffsetsPerTrigger={of.most}`, {options}, and `minPartitions={of.cores}` where the",
        f"topic has fewer partitions. Muster: `max_records_per_batch` {of.most:,}, which it grows to from 100,000;",
        "all else as it is by default. Both write their checkpoints as Muster's consumers do, as cheaply as can be.",
        "Muster's commits to Kafka are not part of it, as Spark's source makes none.",
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
        "## From cold",
        "",
        "The first reading of each process, `noop`: records/s from the query's start on, while code is loaded and",
        "compiled.",
        "",
        "| topic | Spark | Muster |",
        "| --- | --- | --- |",
        *(
            f"| {figure.input} | {whole(figure.sides[SPARK].cold):,.0f} | {whole(figure.sides[MUSTER].cold):,.0f} |"
            for figure in figures
            if figure.sink == NOOP
        ),
        "",
        *(_latency(results.delays) if results.delays else ()),
        f"`{ratios(results)}` (of the throughputs the least of all topics)",
        "",
    ]
    (folder / REPORT).write_text("\n".join(lines), encoding="utf-8")


def _latency(delays: Latency) -> Iterator[str]:
    yield "## Latency"
    yield ""
    yield f"A record every {delays.interval * 1e3:.0f} ms to {delays.partitions} partitions; from before it is"
    yield f"produced until a handler that collects has it, with a trigger of {delays.trigger} ms for both."
    yield ""
    yield "| source | median ms | p99 ms | records |"
    yield "| --- | --- | --- | --- |"
    for source in (SPARK, MUSTER):
        yield (
            f"| {NAMES[source]} | {delays.middle(source) * 1e3:.0f} | {delays.late(source) * 1e3:.0f} "
            f"| {sum(map(len, delays.delays[source]))} |"
        )
    yield ""


def _plot(path: Path, figures: Sequence[Figure]) -> None:
    """Records/s by topic, a panel a sink; the lines span the rounds."""
    with drawing(path, "throughput", (10, 4.2)) as sheet:
        for panel, sink in zip(sheet.subplots(1, len(SINKS)), SINKS, strict=True):
            shown = [figure for figure in figures if figure.sink == sink]
            places = np.arange(len(shown))
            for shift, source in ((-0.2, SPARK), (0.2, MUSTER)):
                rates = [[steady(reading) for reading in figure.sides[source].rounds] for figure in shown]
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
            panel.set_xticks(places, [f"{f.input.size} B\n{f.input.partitions} part." for f in shown])
            panel.set_title(f"{sink}, records a second", color=INK)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            ink(panel, "y")
            panel.legend(fontsize="small", framealpha=0)
