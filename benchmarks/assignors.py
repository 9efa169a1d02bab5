"""Planning, side by side: Muster's assignors and Kafka's on the same inputs, in one run.

The last line has the ratios at the largest size, Muster's time over that of Kafka's cooperative-sticky: below 1
Muster is faster.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import click

from benchmarks.harness import report
from benchmarks.harness.drawing import INK, drawing, ink
from benchmarks.harness.options import OUTPUT
from devstack.jars import java
from devstack.progress import say
from muster.core.assignors import load_assignor
from muster.core.model import Assignment, Consumer
from tests.support.kafka_assignors import KafkaAssignors

COLOURS = {"start": "#8250df", "leave": "#0969da", "join": "#1a7f37", "leave10": "#bc4c00"}
PEERS = {
    "cooperative-sticky": "sticky",
    "sticky": "sticky",
    "range": "range",
    "round-robin": "round-robin",
}
"""Each of Kafka's assignors, and Muster's that it is held against."""

MAIN_PEER = "cooperative-sticky"


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Topics, partitions a topic, and consumers."""

    topics: int
    partitions: int
    consumers: int

    def __str__(self) -> str:
        return f"{self.topics:,} x {self.partitions:,} x {self.consumers:,}"


SIZES = (Size(10, 100, 10), Size(100, 100, 100), Size(1000, 100, 1000))


@dataclass(frozen=True)
class Input:
    """What an assignor is called with, and what to call that: `event` happened to a group with `kind` of
    subscriptions that was at rest under Muster's sticky assignor."""

    size: Size
    kind: str
    event: str
    topics: Mapping[str, frozenset[int]]
    consumers: Mapping[str, Consumer]
    previous: Assignment


def inputs(size: Size) -> Iterator[Input]:
    """Build all inputs of one size.

    `uniform`: everyone takes every topic. `mixed`: a third of the consumers takes every topic, a third the first half
    of them, a third the second half.
    `start`: nothing was assigned. `leave`, `leave10`: the first consumer goes, or the first ten (but at most half of
    them). `join`: one more like the first.
    """
    topics = {f"topic-{n:05d}": frozenset(range(size.partitions)) for n in range(size.topics)}
    ids = [f"consumer-{n:05d}" for n in range(size.consumers)]
    half = len(topics) // 2
    halves = (None, frozenset(sorted(topics)[:half]), frozenset(sorted(topics)[half:]))
    groups = {
        "uniform": {name: Consumer(name) for name in ids},
        "mixed": {name: Consumer(name, topics=halves[n % 3]) for n, name in enumerate(ids)},
    }
    for kind, consumers in groups.items():
        settled = load_assignor("sticky").assign(topics, consumers, {})
        newcomer = Consumer(f"consumer-{size.consumers:05d}", topics=consumers[ids[0]].topics)
        events: dict[str, tuple[dict[str, Consumer], Assignment]] = {
            "start": (consumers, {}),
            "leave": ({name: consumers[name] for name in ids[1:]}, settled),
            "join": ({**consumers, newcomer.id: newcomer}, settled),
            "leave10": ({name: consumers[name] for name in ids[min(10, size.consumers // 2) :]}, settled),
        }
        for event, (left, previous) in events.items():
            yield Input(size, kind, event, topics, left, previous)


@dataclass(frozen=True)
class Outcome:
    """How many partitions left a consumer that could have kept them, and how many partitions the consumers with the
    fewest and the most have."""

    moves: int
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True)
class Figure:
    """Both on one input: the median seconds of one plan of `peer`, Kafka's assignor, and of Muster's, and what came
    out. Without an outcome of Kafka's it was stopped after `kafka_seconds`. Each was timed `rounds` times."""

    input: Input
    peer: str
    kafka_seconds: float
    muster_seconds: float
    kafka: Outcome | None
    muster: Outcome
    rounds: int

    @property
    def ratio(self) -> float:
        """Muster's time over Kafka's: below 1 Muster is faster."""
        return self.muster_seconds / self.kafka_seconds


def measure(kafka: KafkaAssignors, given: Input, peer: str, rounds: int, patience: float) -> Figure:
    """Time both, Kafka's first in each round, `rounds` times, or as often as fits into `patience` seconds.

    Both are warmed up by as much again beforehand, unless a single plan of Kafka's takes longer than that.
    """
    assignor = load_assignor(PEERS[peer])

    def ours() -> float:
        began = time.perf_counter()
        assignor.assign(given.topics, given.consumers, given.previous)
        return time.perf_counter() - began

    def both(until: float) -> Iterator[tuple[float, float]]:
        for _ in range(rounds):
            yield kafka.seconds(peer), ours()
            if time.monotonic() > until:
                break

    settled: Assignment | None = None
    kafka.ask(given.topics, given.consumers, given.previous)
    try:
        settled = kafka.assign(peer)
        list(both(time.monotonic() + patience))
        times = list(both(time.monotonic() + patience))
    except TimeoutError:
        settled = None
        times = [(kafka.limit, ours()) for _ in range(min(rounds, 3))]
    kafka_seconds, muster_seconds = (median(column) for column in zip(*times, strict=True))
    plan = assignor.assign(given.topics, given.consumers, given.previous)
    return Figure(
        given,
        peer,
        kafka_seconds,
        muster_seconds,
        None if settled is None else _outcome(given, settled),
        _outcome(given, plan),
        len(times),
    )


def _outcome(given: Input, assignment: Assignment) -> Outcome:
    load = Counter(dict.fromkeys(given.consumers, 0))
    for owners in assignment.values():
        load.update(owners.values())
    moves = sum(
        owner in given.consumers and assignment[topic][partition] != owner
        for topic, owners in given.previous.items()
        for partition, owner in owners.items()
    )
    return Outcome(moves, min(load.values()), max(load.values()))


@click.command()
@click.option("--rounds", default=11, show_default=True, help="How many times each is timed.")
@click.option("--patience", default=5.0, show_default=True, help="Seconds in which rounds of a case begin.")
@click.option(
    "--limit", default=10.0, show_default=True, help="Seconds for a plan of Kafka's; then it is stopped."
)
@click.option("--quick", is_flag=True, help="The two smaller sizes and few rounds; writes no report.")
@OUTPUT
def main(rounds: int, patience: float, limit: float, quick: bool, output: Path) -> None:
    """Print times, moves and balance of both, and write them to a report with a plot of time against size."""
    if quick:
        rounds, patience, limit = min(rounds, 5), min(patience, 1.0), min(limit, 5.0)
    figures = []
    sizes = SIZES[:-1] if quick else SIZES
    # The mixed ones last: Kafka's process has to be started again where it is stopped, and then is not warm any more.
    cases = sorted(
        chain.from_iterable(map(inputs, sizes)), key=lambda given: (given.kind == "mixed", given.size)
    )
    with KafkaAssignors(limit) as kafka:
        for given in cases:
            for peer in PEERS:
                figures.append(measure(kafka, given, peer, rounds, patience))
                say(_said(figures[-1]))
    write(None if quick else output, figures)


def _said(figure: Figure) -> str:
    given, under = figure.input, "" if figure.kafka else "under "
    return (
        f"{given.size}, {given.kind}, {given.event}, {figure.peer}: Kafka {figure.kafka_seconds * 1e3:,.2f} ms, "
        f"Muster {figure.muster_seconds * 1e3:,.2f} ms, ratio {under}{figure.ratio:.2f}"
    )


def ratios(figures: Sequence[Figure]) -> str:
    """Format the last line of a run: Muster's time over that of Kafka's main peer, at the largest size measured.
    Where Kafka's was stopped, it is the most that the ratio can be."""
    largest = max(figure.input.size for figure in figures)
    found = {
        f"{'' if figure.input.kind == 'uniform' else 'mixed_'}{figure.input.event}_ratio": f"{figure.ratio:.2f}"
        for figure in figures
        if figure.input.size == largest and figure.peer == MAIN_PEER
    }
    return report.last_line("assignors", found)


def write(folder: Path | None, figures: Sequence[Figure]) -> None:
    version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)  # noqa: S603
    report.publish(
        folder,
        "assignors",
        ratios(figures),
        partial(_plot, figures),
        figures=figures,
        java=version.stderr.splitlines()[0],
    )


def _plot(figures: Sequence[Figure], path: Path) -> None:
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
