"""What the scale benchmark leaves behind: tables, a plot, and the line of figures."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes

from benchmarks.drawing import INK, drawing, ink
from benchmarks.scale_inputs import EVENTS, PARTITIONS, SIZES, WINDOW, Size, Traffic
from benchmarks.scale_tasks import TASKS, Spent

PLOT = "plot-scale.svg"
REPORT = "report-scale.md"
COLOURS = {"quiet": "#0969da", "leave": "#bc4c00", "join": "#1a7f37", "topics": "#8250df"}
NAMES = {
    "start": "first plan",
    "quiet": "nothing to do",
    "leave": "one leaves",
    "join": "ten join",
    "topics": "a tenth more topics",
}
HEADER = ("size", "event", "task", "s", "CPU s", "requests", "operations", "kB", "XCom bytes", "memory MB")

Run = dict[str, Spent]


class Figures:
    """All runs that were measured, by size and event."""

    def __init__(self) -> None:
        self.runs: defaultdict[tuple[Size, str], list[Run]] = defaultdict(list)
        self.traffic: dict[Size, Traffic] = {}

    def add(self, size: Size, event: str, run: Run) -> None:
        """Keep a run."""
        self.runs[size, event].append(run)

    def seconds(self, size: Size, event: str) -> list[float]:
        """Return what each of the runs took, all tasks together."""
        return [sum(spent.wall for spent in run.values()) for run in self.runs[size, event]]

    def middle(self, size: Size, event: str) -> float:
        """Return the median of that."""
        return median(self.seconds(size, event))

    def sizes(self) -> list[Size]:
        """Return those that were measured."""
        return [size for size in SIZES if (size, "quiet") in self.runs]

    def asked(self, size: Size) -> str:
        """Say what quiet consumers asked of Consul, in a line."""
        traffic = self.traffic[size]
        return f"{size.consumers:,} quiet consumers: {traffic.mb_s:.3f} MB/s and {traffic.rps:.1f} requests/s"

    def said(self, size: Size, event: str) -> str:
        """Say what the last run took, in a line."""
        run = self.runs[size, event][-1]
        parts = ", ".join(f"{task} {spent.wall:.2f} (CPU {spent.cpu:.2f})" for task, spent in run.items())
        return f"{size}, {NAMES[event]}: {sum(s.wall for s in run.values()):.2f} s: {parts}"


def lines(figures: Figures) -> Iterator[str]:
    """Yield the table's rows."""
    for size in figures.sizes():
        for event in ("start", *EVENTS):
            runs = figures.runs[size, event]
            for task in TASKS:
                found = [run[task] for run in runs if task in run]
                if found:
                    yield _row(f"{size}", NAMES[event], task, found)
            walls = figures.seconds(size, event)
            cpus = [sum(spent.cpu for spent in run.values()) for run in runs]
            yield f"| {size} | {NAMES[event]} | **all** | **{_spread(walls)}** | {_spread(cpus)} | | | | | |"


def _row(size: str, event: str, task: str, found: list[Spent]) -> str:
    def middle(figure: Callable[[Spent], float]) -> float:
        return median(map(figure, found))

    return (
        f"| {size} | {event} | {task} | {_spread([s.wall for s in found])} | {middle(lambda s: s.cpu):.3f} "
        f"| {middle(lambda s: s.requests):,.0f} | {middle(lambda s: s.operations):,.0f} "
        f"| {middle(lambda s: s.bytes) / 1e3:,.0f} | {middle(lambda s: s.xcom):,.0f} "
        f"| {max(s.memory for s in found):,.0f} |"
    )


def _spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def growth(figures: Figures, event: str) -> float:
    """Return how much more the largest size costs than a tenth of it."""
    *_, smaller, larger = figures.sizes()
    return figures.middle(larger, event) / figures.middle(smaller, event)


def last_line(figures: Figures) -> str:
    """Give a script what it reads."""
    largest = figures.sizes()[-1]
    return (
        f"bench-scale: quiet_s={figures.middle(largest, 'quiet'):.2f} "
        f"leave_s={figures.middle(largest, 'leave'):.2f} "
        f"quiet_growth={growth(figures, 'quiet'):.2f} leave_growth={growth(figures, 'leave'):.2f} "
        f"consul_mb_s={figures.traffic[largest].mb_s:.2f} consul_rps={figures.traffic[largest].rps:.0f}"
    )


def write(folder: Path, figures: Figures, load: float) -> None:
    """Write the report and its plot into `folder`. `load` is the machine's before the run, by other work."""
    _plot(folder / PLOT, figures)
    rounds = len(figures.runs[figures.sizes()[-1], "quiet"])
    text = [
        "# The coordinator at scale",
        "",
        "Written by `make bench-scale`: do not edit. The tasks of coordinator runs on a real ZooKeeper, Consul and",
        f"Kafka; sizes are topics x partitions of each ({PARTITIONS}) x consumers. Consumers are simulated: a status",
        "page for each, which takes up at once what ZooKeeper assigns, and the product's own registrar. Registrars",
        "are frozen while tasks are measured: in the field they have machines of their own. Each task runs in",
        "a process of its own, forked from one that has imported everything, so what Airflow adds is not in it.",
        f"Medians of {rounds} rounds, the spread in brackets; memory is the most.",
        "",
        "`s` is by the clock, from opening the connections until they are closed, without the long poll and the",
        "pauses between two looks at the consumers; `all` adds the tasks up, though two of them run side by side.",
        "Requests, operations in them and kB are those to and from ZooKeeper.",
        "",
        "Kafka's partitions belong to a broker that is frozen (`scale_kafka.py` says why); another one answers.",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before the run.",
        "" if load < 1 else "**The machine was not quiet: the seconds are too high.**",
        "",
        f"![Seconds a run]({PLOT})",
        "",
        f"| {' | '.join(HEADER)} |",
        f"| {' | '.join('---' for _ in HEADER)} |",
        *lines(figures),
        "",
        "How much more ten times the size costs: "
        + ", ".join(f"{NAMES[event]} {growth(figures, event):.1f}" for event in EVENTS)
        + ".",
        "",
        "## Quiet consumers and Consul",
        "",
        "What the registrars of all consumers together ask of Consul and are answered while nothing happens, counted",
        f"by a proxy between them and Consul's agent over {WINDOW:g} s. What the agent asks of their status pages is",
        "not in it.",
        "",
        "| consumers | MB/s | requests/s |",
        "| --- | --- | --- |",
        *(f"| {s.consumers:,} | {t.mb_s:.3f} | {t.rps:.1f} |" for s, t in figures.traffic.items()),
        "",
        f"`{last_line(figures)}`",
        "",
    ]
    (folder / REPORT).write_text("\n".join(text), encoding="utf-8")


def _plot(path: Path, figures: Figures) -> None:
    """Plot seconds a run by size, a line an event; beside it what quiet consumers ask of Consul."""
    with drawing(path, "scale", (10, 4.2)) as sheet:
        panel, beside = sheet.subplots(1, 2, width_ratios=(7, 4))
        _plot_traffic(beside, figures)
        sizes = figures.sizes()
        at = [size.topics * PARTITIONS for size in sizes]
        for event in EVENTS:
            middle = [figures.middle(size, event) for size in sizes]
            spread = [
                [m - min(figures.seconds(size, event)) for m, size in zip(middle, sizes, strict=True)],
                [max(figures.seconds(size, event)) - m for m, size in zip(middle, sizes, strict=True)],
            ]
            panel.errorbar(
                at, middle, yerr=spread, marker="o", color=COLOURS[event], ecolor=INK, label=NAMES[event]
            )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xticks(at, [f"{size}" for size in sizes])
        panel.set_xticks([], minor=True)
        panel.set_ylabel("seconds a run, all tasks", color=INK)
        ink(panel)
        panel.legend(fontsize="small", framealpha=0)


def _plot_traffic(panel: Axes, figures: Figures) -> None:
    consumers = [size.consumers for size in figures.traffic]
    for name, colour, values in (
        ("requests/s", COLOURS["quiet"], [traffic.rps for traffic in figures.traffic.values()]),
        ("kB/s", COLOURS["leave"], [1000 * traffic.mb_s for traffic in figures.traffic.values()]),
    ):
        panel.plot(consumers, values, marker="o", color=colour, label=name)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(consumers, [f"{number:,}" for number in consumers])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("quiet consumers", color=INK)
    panel.set_ylabel("asked of Consul", color=INK)
    ink(panel)
    panel.legend(fontsize="small", framealpha=0)
