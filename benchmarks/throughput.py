"""Records/s, latency, memory, CPU and cold starts of Muster's source and of Spark's own, side by side in one run.

The last line has the ratios, Muster's over those of Spark's source as its experts would set it, the worst of all
topics: of the throughputs above 1 Muster is better, of all else below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np

from benchmarks.harness import machine, report
from benchmarks.harness.drawing import INK, drawing, ink, spans
from benchmarks.harness.options import OUTPUT, RESULTS
from benchmarks.harness.servers import kafka
from benchmarks.throughput_driver import (
    BACK_TO_BACK,
    HEAP,
    JAVA_OPTIONS,
    LZ4,
    MUSTER,
    NOOP,
    PARQUET,
    TOUCH,
    TUNED,
    ZSTD,
    Input,
)
from benchmarks.throughput_figures import (
    ENOUGH,
    FETCHES,
    KEEPER,
    SHORT,
    SINKS,
    SOURCES,
    Conditions,
    Figure,
    Results,
    least_heap,
)
from benchmarks.throughput_measure import GIVEN, LEAST, TUNING, Plan, latency, memory, throughput
from devstack.jars import jars

INPUTS = (
    *(Input(size, partitions) for size in (200, 1000) for partitions in (1, 12, 100)),
    Input(100_000, 12),
    Input(200, 12, ZSTD),
)
QUICK = Input(200, 12)
COLOURS = {TUNED: "#bc4c00", MUSTER: "#0969da"}
NAMES = {TUNED: "Spark's source, tuned", MUSTER: "Muster"}
_GOAL_SIZES = (200, 1000)


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
    heap = least_heap(results.heaps, MUSTER)
    found = {f"{name}_ratio": f"{cell:.2f}" for name, cell in cells.items()}
    found |= {"heap_mb": f"{heap:.0f}", "heap_ratio": f"{heap / least_heap(results.heaps, TUNED):.2f}"}
    return report.last_line("throughput", found)


def write(folder: Path | None, results: Results) -> None:
    figures, heaps = results.figures, results.heaps
    rounds = {len(figure.readings[source]) for figure in figures for source in SOURCES}
    batches = {f"{figure.input.most:,} records of {figure.input.size:,} B": None for figure in figures}
    report.publish(
        folder,
        "throughput",
        ratios(results),
        partial(_plot, figures),
        of=results.conditions,
        results=results,
        sources=NAMES,
        rounds=" to ".join(map(str, sorted(rounds))),
        batches=", ".join(batches),
        window=min(LEAST, results.conditions.batches),
        tuning=TUNING,
        fetches=FETCHES,
        short=SHORT,
        given=GIVEN,
        enough=ENOUGH,
        least={source: least_heap(heaps, source) for source in SOURCES},
    )


def _plot(figures: Sequence[Figure], path: Path) -> None:
    """Plot records/s by topic, a panel a sink; the lines span the rounds."""
    with drawing(path, "throughput", (12, 4.2)) as sheet:
        for panel, sink in zip(sheet.subplots(1, len(SINKS)), SINKS, strict=True):
            shown = [figure for figure in figures if figure.sink == sink and figure.input.size in _GOAL_SIZES]
            places = np.arange(len(shown))
            for shift, source in ((-0.2, TUNED), (0.2, MUSTER)):
                middle, around = spans([[f.steady(reading) for reading in f.readings[source]] for f in shown])
                look = {"color": COLOURS[source], "ecolor": INK, "label": NAMES[source]}
                panel.bar(places + shift, middle, 0.38, yerr=around, **look)
            panel.set_xticks(places, [_tick(figure) for figure in shown], fontsize="small")
            panel.set_title(f"{sink}, records a second", color=INK)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            panel.set_xlabel("bytes a record, partitions", color=INK, fontsize="small")
            ink(panel, "y")
        panel.legend(fontsize="small", framealpha=0)


def _tick(figure: Figure) -> str:
    codec = "" if figure.input.codec == LZ4 else f"\n{figure.input.codec}"
    return f"{figure.input.size} B\n{figure.input.partitions}{codec}"


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How often each topic is read with each sink.")
@click.option("--batches", default=38, show_default=True, help="How many full batches a topic holds.")
@click.option("--size", "sizes", multiple=True, type=int, help="Only topics with records of so many bytes.")
@click.option("--partitions", multiple=True, type=int, help="Only topics with so many partitions.")
@click.option("--codec", "codecs", multiple=True, type=click.Choice((LZ4, ZSTD)), help="Only topics with it.")
@click.option("--sink", "sinks", multiple=True, type=click.Choice(SINKS), default=SINKS, show_default=True)
@click.option("--trickle/--no-trickle", default=True, help="Whether latency is measured.")
@click.option("--memory/--no-memory", "heaps", default=True, help="Whether smaller heaps are tried.")
@click.option("--reading/--no-reading", default=True, help="Whether the topics are read.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores, for all sources.")
@click.option("--seconds", default=20.0, show_default=True, help="How long a trickle is followed in a round.")
@click.option("--quick", is_flag=True, help="200 bytes, 12 partitions, 12 batches, 1 round.")
@OUTPUT
@RESULTS
def main(
    rounds: int,
    batches: int,
    sizes: tuple[int, ...],
    partitions: tuple[int, ...],
    codecs: tuple[str, ...],
    sinks: tuple[str, ...],
    trickle: bool,
    heaps: bool,
    reading: bool,
    cores: int,
    seconds: float,
    quick: bool,
    output: Path,
    kept: Path | None,
) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    if quick:
        rounds, batches, seconds = 1, 12, 8.0
    inputs = [
        given
        for given in ((QUICK,) if quick else INPUTS)
        if reading
        and given.size in (sizes or (given.size,))
        and given.partitions in (partitions or (given.partitions,))
        and given.codec in (codecs or (given.codec,))
    ]
    plan = Plan(inputs, sinks, rounds, batches, cores, seconds)
    conditions = Conditions(batches, cores, machine.load(), HEAP, JAVA_OPTIONS)
    results = KEEPER.load(kept) or Results(conditions)
    results = results.joined(Results(conditions))  # fails now rather than after a long run
    jars("spark-kafka")
    with kafka() as (server, folder):
        for tuning, start, figures in throughput(server, plan, folder):
            results = results.joined(Results(conditions, tuple(figures), (start,), (tuning,)))
            KEEPER.save(kept, results)
        if trickle:
            results = results.joined(Results(conditions, delays=tuple(latency(server, plan, folder))))
            KEEPER.save(kept, results)
        for heap in memory(server, plan, folder) if heaps and not quick else ():
            results = results.joined(Results(conditions, heaps=(heap,)))
            KEEPER.save(kept, results)
    write(output, results)
