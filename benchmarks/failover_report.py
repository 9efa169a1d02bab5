"""What the failover benchmark leaves behind: tables, a plot, and the line of ratios."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.drawing import INK, drawing, ink
from benchmarks.failover_breakdown import REPLACEMENT_STEPS, STEPS
from benchmarks.failover_figures import (
    FREEZE,
    JOIN,
    KILL,
    LEAVE,
    PLANNED,
    QUIET,
    REPLACE,
    ROLL,
    Event,
    Row,
    rows,
    spread,
)
from benchmarks.failover_muster import NAME, PARTITIONS
from benchmarks.failover_peers import HEARTBEAT, KINDS, LEAST_OF_CONSUMER_GROUPS, SHORT, TUNED
from benchmarks.markdown import table

PLOT = "plot-failover.svg"
REPORT = "report-failover.md"
COLOURS = {NAME: "#0969da", "tuned": "#1a7f37", "default": "#bc4c00"}
CONTESTANTS = (NAME, *map(str, KINDS))
BUSY = (1, 6)
"""Busy loops a core."""

HEADER = (
    "event",
    "contestant",
    "events",
    "all flows again after, s",
    "pause of a partition that moved, s",
    "longest pause of one that stayed, s",
    "read twice, an event",
)


@dataclass(frozen=True)
class Run:
    """Everything that was measured. `least` is the least session time-out of a KIP-848 group by default, in ms;
    `load` is the machine's before the run, by other work."""

    events: Sequence[Event]
    produced: int
    lost: int
    least: int
    rounds: int
    rate: int
    load: float

    def beside(self, loops: int) -> Run:
        """Return the events that went on beside so many busy loops a core."""
        return replace(self, events=[event for event in self.events if event.loops == loops])

    def of(self, contestant: str, *names: str) -> list[Event]:
        """Return the events of these names that `contestant` went through."""
        return [event for event in self.events if event.contestant == contestant and event.name in names]

    def flows(self, contestant: str, name: str) -> float:
        """Return the seconds until all flowed again, median of the rounds."""
        return _middle([event.flows for event in self.of(contestant, name) if event.flows is not None])

    def ratio(self, name: str, session: int = TUNED) -> float:
        """Divide Muster's by that of the quickest group with this session time-out, in seconds."""
        return self.flows(NAME, name) / min(
            self.flows(str(kind), name) for kind in KINDS if kind.session == session
        )

    def moved(self, *names: str) -> float:
        """Pause of a partition that moved with Muster, median of all such, in seconds."""
        return _middle([pause for event in self.of(NAME, *names) for pause in event.moved.values()])

    @property
    def stayed(self) -> float:
        """The longest pause of a partition that stayed in a planned event, over that in quiet time; medians."""
        at_rest = median([event.longest_stayed for event in self.of(NAME, QUIET)])
        return median([event.longest_stayed for event in self.of(NAME, LEAVE, JOIN)]) / at_rest


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else math.nan


def last_line(whole: Run) -> str:
    """Format the last line of a run; ratios below 1 are in Muster's favour, `nan` was not measured."""
    run, busy = whole.beside(0), whole.beside(max(BUSY))
    return (
        f"bench-failover: kill_ratio={run.ratio(KILL):.2f} freeze_ratio={run.ratio(FREEZE):.2f} "
        f"kill_ratio_2s={run.ratio(KILL, SHORT):.2f} freeze_ratio_2s={run.ratio(FREEZE, SHORT):.2f} "
        f"replaced_s={run.flows(NAME, REPLACE):.1f} leave_pause_ms={run.moved(LEAVE) * 1e3:.0f} "
        f"join_pause_ms={run.moved(JOIN) * 1e3:.0f} "
        f"unmoved_pause_ratio={run.stayed:.2f} "
        f"dup_planned={sum(event.doubled for event in whole.of(NAME, *PLANNED))} lost={run.lost} "
        f"busy_kill_ratio={busy.ratio(KILL):.2f} busy_leave_pause_ms={busy.moved(LEAVE) * 1e3:.0f}"
    )


def write(folder: Path, whole: Run) -> None:
    """Write the report and its plot into `folder`."""
    run = whole.beside(0)
    _plot(folder / PLOT, run)
    lines = [
        "# Failover, beside Kafka's own groups",
        "",
        "Written by `make bench-failover`: do not edit. Three consumers share a topic of",
        f"{PARTITIONS} partitions, to each of which {run.rate} records a second are produced. One of them is killed",
        "(SIGKILL of all its processes), frozen (SIGSTOP of all), leaves in order, and joins; then all three are",
        f"restarted one after the other. {run.rounds} rounds, Muster and Kafka's groups in turns on one broker, in",
        "one run; Kafka's groups, which are light, all at the same time. While they are measured Muster's consumers",
        "go on reading; while Muster is measured the groups have no members.",
        "",
        "Muster is the whole path: Consul's check, the coordinator's run in Airflow, ZooKeeper, and three Spark",
        "consumers, with its default settings. A member of Kafka's groups is a plain confluent-kafka consumer, with",
        "its default settings but for the assignor or protocol, and a session time-out of 6 s or 2 s where that",
        "stands. 6 s is the least for classic groups by default; 2 s needs the broker's",
        f"`group.min.session.timeout.ms` lowered, and comes with a heartbeat every {HEARTBEAT} ms. For KIP-848",
        "groups both are the broker's and the group's setting, and the least that a broker allows by default is",
        f"{run.least / 1e3:g} s: the run lowers `{LEAST_OF_CONSUMER_GROUPS}`. Groups with default settings go",
        "through the events once, while Muster's consumers start; their time-outs are nearly all of their time.",
        "Muster's check fails at once when nothing listens, and after 2 s when nothing answers; its Spark drivers",
        "run with JIT and garbage-collector options of Muster's own.",
        "",
        "Flows again: from the event until the last of the partitions that moved has reached its new owner with a",
        "record that was produced after the event. A pause is the longest time between two deliveries of a",
        "partition, from the last before the event to the first after its end; between two batches of Spark there is",
        "always one, see *quiet*. A join begins when the new consumer is live in Consul, or its process is started.",
        "In brackets least and most. A consumer that was frozen goes on once the others have its partitions; what is",
        "read twice by then counts as well. Restarting all three is one event, and each partition's pause in it the",
        "longest of several. Kills, freezes and leaves of Muster's consumers are spread over the coordinator's",
        "long poll, at whose end no process listens to Consul for a second or two.",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {run.load:.1f} before the run; "
        f"{run.produced:,} records.",
        ""
        if run.load < 1
        else "**The machine was not quiet: only the ratios say something, and they are rough.**",
        "",
        f"![Seconds until all flows again, and pauses]({PLOT})",
        "",
        *table(HEADER, [_cells(row) for row in rows(run.events, CONTESTANTS)]),
        "",
        f"Muster lost {run.lost} records.",
        "",
        "## Where Muster's time goes",
        "",
        "Median seconds of each step; detection is from the event until Consul's answer changes. The steps of",
        "Airflow are the times of its task instances, writing is by ZooKeeper's clock, hearing by the consumers'",
        "logs.",
        "",
        *table(("step", KILL, FREEZE, LEAVE, JOIN), _breakdown(run, STEPS, (KILL, FREEZE, LEAVE, JOIN))),
        "",
        "What a join moves pauses longer than what a leave moves, by the first batch of the new owner: its JVM has",
        "gone through one only to warm up, and Spark compiles the handler's query with it, while the other two",
        "consumers hand over. More warming up hardly shortens that",
        "([0035](../docs/decisions/0035-a-consumer-warms-up-with-a-record-that-is-there.md)).",
        "",
        "And until a consumer that was killed is replaced:",
        "",
        *table(("step", REPLACE), _breakdown(run, REPLACEMENT_STEPS, (REPLACE,))),
        "",
        *_busy(whole),
        "`kill_ratio` and `freeze_ratio` are Muster's median over that of the quickest group with a session time-out",
        "of 6 s, with `_2s` of 2 s; `replaced_s` is the median of the seconds from the kill of a consumer until its",
        "replacement has its share; `leave_pause_ms` is the median pause of a partition that moved when a consumer",
        "left in order, `join_pause_ms` when one joined; `unmoved_pause_ratio` is the longest pause of a partition",
        "that stayed while a consumer left or joined, over the longest in quiet time, medians of the events;",
        "`dup_planned` counts records read twice",
        f"in leaves, joins and restarts; `busy_` is beside {max(BUSY)} busy loops a core.",
        "",
        f"`{last_line(whole)}`",
        "",
    ]
    (folder / REPORT).write_text("\n".join(lines), encoding="utf-8")


def _busy(run: Run) -> Iterator[str]:
    """Yield the tables of the rounds beside busy loops."""
    for loops in BUSY:
        if events := run.beside(loops).events:
            yield f"## Beside busy loops, {loops} a core"
            yield ""
            yield "One round of all; each loop is a process that never waits, at the priority of all others."
            yield ""
            yield from table(HEADER, [_cells(row) for row in rows(events, CONTESTANTS)])
            yield ""


def _cells(row: Row) -> tuple[str, ...]:
    least, most = row.doubled[0], row.doubled[-1]
    return (
        row.name,
        row.contestant,
        str(row.events),
        _span(row.flows) if row.name not in {QUIET, ROLL} else "",
        _span(row.moved),
        _span(row.stayed),
        str(least) if least == most else f"{least} to {most}",
    )


def _span(values: tuple[float, float, float] | None) -> str:
    return f"{values[1]:.2f} ({values[0]:.2f} to {values[2]:.2f})" if values else ""


def _breakdown(run: Run, steps: Sequence[str], names: Sequence[str]) -> list[tuple[str, ...]]:
    found = {name: [event.parts for event in run.of(NAME, name) if event.parts] for name in names}
    return [
        (step, *(f"{median(p[step] for p in found[name]):.2f}" if found[name] else "" for name in names))
        for step in steps
    ]


def _plot(path: Path, run: Run) -> None:
    """Plot bars of medians, whose lines span the rounds: until all flows after a kill and a freeze, and pauses of
    partitions that moved in a leave and a join."""
    with drawing(path, "failover", (10, 6)) as sheet:
        panels = sheet.subplots(2, 2, sharey=True).flatten()
        for panel, name in zip(panels, (KILL, FREEZE, LEAVE, JOIN), strict=True):
            unplanned = name in {KILL, FREEZE}
            shown = {}
            for contestant in CONTESTANTS:
                of = run.of(contestant, name)
                values = [e.flows for e in of] if unplanned else [p for e in of for p in e.moved.values()]
                if found := spread([value for value in values if value is not None]):
                    shown[contestant] = found
            places = np.arange(len(shown))
            middle = np.array([found[1] for found in shown.values()])
            sides = np.array([[m - low, high - m] for low, m, high in shown.values()]).T
            colours = [
                COLOURS[
                    contestant if contestant == NAME else "default" if "default" in contestant else "tuned"
                ]
                for contestant in shown
            ]
            panel.barh(places, middle, 0.7, xerr=sides, color=colours, ecolor=INK)
            panel.set_yticks(places, list(shown))
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.xaxis.set_minor_formatter(_twos_and_fives)
            what = "seconds until all flows again" if unplanned else "pause of a partition that moved, s"
            panel.set_title(f"{name}: {what}", color=INK, fontsize="medium")
            ink(panel, "x")
        panels[0].invert_yaxis()


def _twos_and_fives(value: float, _: int) -> str:
    """Label a tick between powers of ten."""
    text = f"{value:g}"
    return text if text.strip("0.") in {"2", "5"} else ""
