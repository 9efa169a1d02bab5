"""The coordinator at scale: what each task costs on real servers, with a thousand simulated consumers.

The last line has what a run with nothing to do and one consumer's leaving take in all tasks together at full size,
in seconds, how much more each is for ten times the size, and what all quiet consumers together ask of Consul.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click
from matplotlib.axes import Axes

from benchmarks.counting_proxy import CountingProxy
from benchmarks.harness import machine, report
from benchmarks.harness.drawing import INK, drawing, ink, spans
from benchmarks.harness.options import OUTPUT
from benchmarks.scale_consumers import Consumers
from benchmarks.scale_kafka import create_topics, kafka
from benchmarks.scale_tasks import TASKS, Place, Spent, run
from devstack.consul import Consul
from devstack.progress import say, step
from devstack.zookeeper import ZooKeeper

PARTITIONS = 100
JOINING = 10
REGISTRARS = 4
"""Processes with the consumers' registrars, each a thread."""
SETTLES = 15.0
"""Seconds from the last event until consumers count as quiet."""
WINDOW = 65.0
"""Seconds for which quiet consumers are watched: longer than one of their waits."""


@dataclass(frozen=True)
class Size:
    """So many topics of `PARTITIONS` partitions, so many consumers, and how many topics appear at once."""

    topics: int
    consumers: int
    appear: int

    def __str__(self) -> str:
        return f"{self.topics:,} x {PARTITIONS} x {self.consumers:,}"


SIZES = (Size(10, 10, 1), Size(100, 100, 10), Size(1_000, 1_000, 100))
EVENTS = ("quiet", "leave", "join", "topics")


@dataclass(frozen=True)
class Traffic:
    """What all consumers together asked of Consul while nothing happened: MB/s in both directions, requests/s."""

    mb_s: float
    rps: float


class Stage:
    """Servers with topics and consumers, to which things happen."""

    def __init__(self, place: Place, consumers: Consumers, proxy: CountingProxy) -> None:
        self.place, self.consumers, self._proxy = place, consumers, proxy
        self._born = 0

    def set_up(self, size: Size) -> None:
        self.topics(size.topics)
        self.consumers.join(size.consumers)

    def happen(self, event: str, size: Size) -> None:
        if event == "leave":
            self.consumers.leave()
        elif event == "join":
            self.consumers.join(JOINING)
        elif event == "topics":
            self.topics(size.appear)

    def traffic(self) -> Traffic:
        proxy = self._proxy
        time.sleep(SETTLES)
        began, before, asked = time.monotonic(), proxy.bytes, len(proxy.requests)
        time.sleep(WINDOW)
        took = time.monotonic() - began
        return Traffic((proxy.bytes - before) / 1e6 / took, (len(proxy.requests) - asked) / took)

    def topics(self, number: int) -> None:
        names = [f"t-{self._born + n:05d}" for n in range(number)]
        self._born += number
        create_topics(self.place.kafka, names, PARTITIONS)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    zookeeper = ZooKeeper(folder / "zookeeper", guarded=True)
    consul = Consul(folder / "consul", guarded=True)
    try:
        zookeeper.start()
        consul.start()
        with kafka(folder / "kafka") as servers:
            place = Place(zookeeper.address, consul.ports["http"], servers)
            with (
                CountingProxy("127.0.0.1", place.consul) as proxy,
                Consumers(place, REGISTRARS, proxy.port) as consumers,
            ):
                yield Stage(place, consumers, proxy)
    finally:
        consul.kill()
        zookeeper.kill()


COLOURS = {"quiet": "#0969da", "leave": "#bc4c00", "join": "#1a7f37", "topics": "#8250df"}
NAMES = {
    "start": "first plan",
    "quiet": "nothing to do",
    "leave": "one leaves",
    "join": "ten join",
    "topics": "a tenth more topics",
}
Run = dict[str, Spent]


class Figures:
    """All runs that were measured, by size and event."""

    def __init__(self) -> None:
        self.runs: defaultdict[tuple[Size, str], list[Run]] = defaultdict(list)
        self.traffic: dict[Size, Traffic] = {}

    def seconds(self, size: Size, event: str) -> list[float]:
        return [sum(spent.wall for spent in run.values()) for run in self.runs[size, event]]

    def tasks(self, size: Size, event: str) -> dict[str, list[Spent]]:
        runs = self.runs[size, event]
        found = {task: [run[task] for run in runs if task in run] for task in TASKS}
        return {task: spent for task, spent in found.items() if spent}

    def cpu(self, size: Size, event: str) -> list[float]:
        return [sum(spent.cpu for spent in run.values()) for run in self.runs[size, event]]

    def middle(self, size: Size, event: str) -> float:
        return median(self.seconds(size, event))

    def growth(self, event: str) -> float:
        """Return how much more the largest size costs than a tenth of it."""
        *_, smaller, larger = self.sizes()
        return self.middle(larger, event) / self.middle(smaller, event)

    def sizes(self) -> list[Size]:
        return [size for size in SIZES if (size, "quiet") in self.runs]

    def asked(self, size: Size) -> str:
        traffic = self.traffic[size]
        return f"{size.consumers:,} quiet consumers: {traffic.mb_s:.3f} MB/s and {traffic.rps:.1f} requests/s"

    def said(self, size: Size, event: str) -> str:
        run = self.runs[size, event][-1]
        parts = ", ".join(f"{task} {spent.wall:.2f} (CPU {spent.cpu:.2f})" for task, spent in run.items())
        return f"{size}, {NAMES[event]}: {self.seconds(size, event)[-1]:.2f} s: {parts}"


def last_line(figures: Figures) -> str:
    largest = figures.sizes()[-1]
    line = {
        "quiet_s": f"{figures.middle(largest, 'quiet'):.2f}",
        "leave_s": f"{figures.middle(largest, 'leave'):.2f}",
        "quiet_growth": f"{figures.growth('quiet'):.2f}",
        "leave_growth": f"{figures.growth('leave'):.2f}",
        "consul_mb_s": f"{figures.traffic[largest].mb_s:.2f}",
        "consul_rps": f"{figures.traffic[largest].rps:.0f}",
    }
    return report.last_line("scale", line)


def write(folder: Path | None, figures: Figures, load: float) -> None:
    """Print the table, and write the report and its plot into `folder`. `load` is the machine's before the run."""
    report.publish(
        folder,
        "scale",
        last_line(figures),
        partial(_plot, figures),
        figures=figures,
        events=EVENTS,
        names=NAMES,
        partitions=PARTITIONS,
        load=load,
        window=WINDOW,
    )


def _plot(figures: Figures, path: Path) -> None:
    with drawing(path, "scale", (10, 4.2)) as sheet:
        panel, beside = sheet.subplots(1, 2, width_ratios=(7, 4))
        _plot_traffic(beside, figures)
        _plot_seconds(panel, figures)


def _plot_seconds(panel: Axes, figures: Figures) -> None:
    sizes = figures.sizes()
    at = [size.topics * PARTITIONS for size in sizes]
    for event in EVENTS:
        middle, around = spans([figures.seconds(size, event) for size in sizes])
        panel.errorbar(
            at, middle, yerr=around, marker="o", color=COLOURS[event], ecolor=INK, label=NAMES[event]
        )
    panel.set_ylabel("seconds a run, all tasks", color=INK)
    _logarithmic(panel, at, [str(size) for size in sizes])


def _plot_traffic(panel: Axes, figures: Figures) -> None:
    consumers = [size.consumers for size in figures.traffic]
    found = figures.traffic.values()
    panel.plot(consumers, [t.rps for t in found], marker="o", color=COLOURS["quiet"], label="requests/s")
    panel.plot(consumers, [1000 * t.mb_s for t in found], marker="o", color=COLOURS["leave"], label="kB/s")
    panel.set_xlabel("quiet consumers", color=INK)
    panel.set_ylabel("asked of Consul", color=INK)
    _logarithmic(panel, consumers, [f"{number:,}" for number in consumers])


def _logarithmic(panel: Axes, at: list[int], labels: list[str]) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(at, labels)
    panel.set_xticks([], minor=True)
    ink(panel)
    panel.legend(fontsize="small", framealpha=0)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How many times each event happens.")
@click.option("--quick", is_flag=True, help="The two smaller sizes, 2 rounds; writes no report.")
@OUTPUT
def main(rounds: int, quick: bool, output: Path) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    load = machine.load()
    figures = Figures()
    for size in SIZES[:-1] if quick else SIZES:
        with (
            tempfile.TemporaryDirectory(prefix="bench-scale-") as folder,
            stage(Path(folder)) as standing,
        ):
            with step(f"{size}: topics and consumers"):
                standing.set_up(size)
            with step(f"{size}: first plan"), standing.consumers.still():
                figures.runs[size, "start"].append(run(standing.place))
            for _ in range(min(rounds, 2) if quick else rounds):
                for event in EVENTS:
                    standing.happen(event, size)
                    with standing.consumers.still():
                        figures.runs[size, event].append(run(standing.place))
                    say(figures.said(size, event))
            with step(f"{size}: quiet consumers"):
                figures.traffic[size] = standing.traffic()
            say(figures.asked(size))
    write(None if quick else output, figures, load)
