"""What the benchmark leaves behind: the table, the plot of time against size, and the line of ratios."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.assignor_figures import MAIN_PEER, Figure, Outcome
from benchmarks.drawing import INK, drawing, ink
from benchmarks.markdown import table
from devstack.jars import java

PLOT = "plot-assignors.svg"
REPORT = "report-assignors.md"
COLOURS = {"start": "#8250df", "leave": "#0969da", "join": "#1a7f37", "leave10": "#bc4c00"}

HEADER = (
    "topics x partitions x consumers",
    "subscriptions",
    "event",
    "Kafka's assignor",
    "Kafka ms",
    "Muster ms",
    "ratio",
    "moves, Kafka / Muster",
    "partitions a consumer, Kafka / Muster",
    "rounds",
)


def row(figure: Figure) -> tuple[str, ...]:
    """Format one line of the table, in the order of `HEADER`."""
    given, kafka, muster = figure.input, figure.kafka, figure.muster
    return (
        str(given.size),
        given.kind,
        given.event,
        figure.peer,
        f"{'' if kafka else '> '}{figure.kafka_seconds * 1e3:,.2f}",
        f"{figure.muster_seconds * 1e3:,.2f}",
        f"{'' if kafka else '< '}{figure.ratio:.2f}",
        f"{f'{kafka.moves:,}' if kafka else '?'} / {muster.moves:,}",
        f"{_span(kafka) if kafka else '?'} / {_span(muster)}",
        str(figure.rounds),
    )


def _span(outcome: Outcome) -> str:
    return f"{outcome.least:,} to {outcome.most:,}"


def ratios(figures: Sequence[Figure]) -> str:
    """Format the last line of a run: Muster's time over that of Kafka's main peer, at the largest size measured.
    Where Kafka's was stopped, it is the most that the ratio can be."""
    largest = max(figure.input.size for figure in figures)
    parts = [
        f"{'' if figure.input.kind == 'uniform' else 'mixed_'}{figure.input.event}_ratio={figure.ratio:.2f}"
        for figure in figures
        if figure.input.size == largest and figure.peer == MAIN_PEER
    ]
    return f"bench-assignors: {' '.join(parts)}"


def write(folder: Path, figures: Sequence[Figure]) -> None:
    """Write the report and its plot into `folder`."""
    _plot(folder / PLOT, figures)
    java_version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)  # noqa: S603
    lines = [
        "# Muster's assignors beside Kafka's",
        "",
        "Written by `make bench-assignors`: do not edit. Both plan the same inputs in one run, alternating, each",
        "warmed up; times are medians of one plan. `ratio` is Muster's time over Kafka's: below 1 Muster is faster.",
        "Moves are partitions that left a consumer which could have kept them. Kafka's cooperative-sticky takes a",
        "second plan to hand over what moves; its time is that of the first one alone, its moves and balance those",
        "after the last. A plan of Kafka's that took longer than `>` says was stopped, and counts as having taken so",
        "long. `assignor_inputs.py` describes the inputs.",
        "",
        f"Python {platform.python_version()}, {java_version.stderr.splitlines()[0]}, {os.cpu_count()} cores.",
        "",
        f"![Time against size]({PLOT})",
        "",
        *table(HEADER, map(row, figures)),
        "",
        f"`{ratios(figures)}`",
        "",
    ]
    (folder / REPORT).write_text("\n".join(lines), encoding="utf-8")


def _plot(path: Path, figures: Sequence[Figure]) -> None:
    """Plot milliseconds against partitions, both on a logarithmic scale: Kafka dashed, Muster drawn through. A plan
    of Kafka's that was stopped is drawn open, at the time when it was."""
    with drawing(path, "assignors", (10, 4.2)) as sheet:
        for panel, kind in zip(sheet.subplots(1, 2, sharey=True), ("uniform", "mixed"), strict=True):
            shown = [f for f in figures if f.input.kind == kind and f.peer == MAIN_PEER]
            sizes = sorted({figure.input.size for figure in shown})
            at = [size.topics * size.partitions for size in sizes]
            for event, colour in COLOURS.items():
                by_size = {figure.input.size: figure for figure in shown if figure.input.event == event}
                kafka = [by_size[size].kafka_seconds * 1e3 for size in sizes]
                muster = [by_size[size].muster_seconds * 1e3 for size in sizes]
                panel.loglog(at, kafka, "--", color=colour, label=f"{event}, Kafka")
                for x, size in zip(at, sizes, strict=True):
                    fill = "none" if by_size[size].kafka is None else colour
                    panel.plot(x, by_size[size].kafka_seconds * 1e3, "o", mec=colour, mfc=fill)
                panel.loglog(at, muster, "o-", color=colour, label=f"{event}, Muster")
            panel.set_title(f"{kind} subscriptions", color=INK)
            panel.set_xticks(at, [f"{n:,}" for n in at], minor=False)
            panel.set_xticks([], minor=True)
            panel.set_xlabel("partitions", color=INK)
            ink(panel)
            if kind == "uniform":
                panel.set_ylabel("ms a plan", color=INK)
                panel.legend(fontsize="small", framealpha=0, ncols=2)
