"""Killed, frozen, stopped, joined, restarted: how soon records flow again, with Muster and with Kafka's own groups.

All read the same topic in one run, in turns. The last line has Muster's figures and the ratios to
the quickest tuned group, with session time-outs of 6 s and of 2 s.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
import numpy as np

from benchmarks.failover_breakdown import REPLACEMENT_STEPS, STEPS
from benchmarks.failover_contest import Contest
from benchmarks.failover_figures import MEMBERS, PARTITIONS, PLANNED, TOPIC, Event, Name
from benchmarks.failover_muster import NAME, Muster
from benchmarks.failover_peers import (
    HEARTBEAT,
    KINDS,
    LEAST_OF_CONSUMER_GROUPS,
    SHORT,
    TUNED,
    Peer,
    tune_consumer_groups,
)
from benchmarks.harness import machine, report
from benchmarks.harness.drawing import INK, drawing, ink, spans
from benchmarks.harness.options import OUTPUT
from benchmarks.harness.report import middle
from tests.support.timed_numbers import PAUSE, NumberProducer

COLOURS = {NAME: "#0969da", "tuned": "#1a7f37", "default": "#bc4c00"}
CONTESTANTS = (NAME, *map(str, KINDS))
BUSY = (1, 6)
"""Busy loops a core."""


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
        return [event for event in self.events if event.contestant == contestant and event.name in names]

    def flows(self, contestant: str, name: str) -> list[float]:
        return [event.flows for event in self.of(contestant, name) if event.flows is not None]

    def moved(self, contestant: str, name: str) -> list[float]:
        return [pause for event in self.of(contestant, name) for pause in event.moved.values()]

    def stayed(self, contestant: str, *names: str) -> list[float]:
        """Return the longest pause of a partition that stayed, of each event, in seconds."""
        return [max(event.stayed.values()) for event in self.of(contestant, *names) if event.stayed]

    def ratio(self, name: str, session: int = TUNED) -> str:
        """Divide Muster's by that of the quickest group with this session time-out, in seconds."""
        peers = [middle(self.flows(str(kind), name)) for kind in KINDS if kind.session == session]
        return f"{middle(self.flows(NAME, name)) / min(peers):.2f}"

    def pause(self, name: str) -> str:
        return f"{middle(self.moved(NAME, name)) * 1e3:.0f}"


def last_line(whole: Run) -> str:
    """Format the last line of a run; ratios below 1 are in Muster's favour, `nan` was not measured."""
    run, busy = whole.beside(0), whole.beside(max(BUSY))
    stayed = middle(run.stayed(NAME, Name.LEAVE, Name.JOIN))
    line = {
        "kill_ratio": run.ratio(Name.KILL),
        "freeze_ratio": run.ratio(Name.FREEZE),
        "kill_ratio_2s": run.ratio(Name.KILL, SHORT),
        "freeze_ratio_2s": run.ratio(Name.FREEZE, SHORT),
        "replaced_s": f"{middle(run.flows(NAME, Name.REPLACE)):.1f}",
        "leave_pause_ms": run.pause(Name.LEAVE),
        "join_pause_ms": run.pause(Name.JOIN),
        "unmoved_pause_ratio": f"{stayed / middle(run.stayed(NAME, Name.QUIET)):.2f}",
        "dup_planned": f"{sum(event.doubled for event in whole.of(NAME, *PLANNED))}",
        "lost": f"{run.lost}",
        "busy_kill_ratio": busy.ratio(Name.KILL),
        "busy_leave_pause_ms": busy.pause(Name.LEAVE),
    }
    return report.last_line("failover", line)


def write(folder: Path | None, whole: Run) -> None:
    run = whole.beside(0)
    parts = {name: [event.parts for event in run.of(NAME, name) if event.parts] for name in Name}
    report.publish(
        folder,
        "failover",
        last_line(whole),
        partial(_plot, run),
        run=run,
        beside=[(loops, whole.beside(loops)) for loops in BUSY if whole.beside(loops).events],
        events=tuple(Name),
        contestants=CONTESTANTS,
        partitions=PARTITIONS,
        heartbeat=HEARTBEAT,
        least=LEAST_OF_CONSUMER_GROUPS,
        busiest=max(BUSY),
        steps=STEPS,
        replacement_steps=REPLACEMENT_STEPS,
        parts=parts,
    )


def _plot(run: Run, path: Path) -> None:
    """Plot bars of medians, whose lines span the rounds: until all flows after a kill and a freeze, and pauses of
    partitions that moved in a leave and a join."""
    with drawing(path, "failover", (10, 6)) as sheet:
        panels = sheet.subplots(2, 2, sharey=True).flatten()
        for panel, name in zip(panels, (Name.KILL, Name.FREEZE, Name.LEAVE, Name.JOIN), strict=True):
            values = run.flows if name in {Name.KILL, Name.FREEZE} else run.moved
            shown = {one: found for one in CONTESTANTS if (found := values(one, name))}
            places = np.arange(len(shown))
            middles, around = spans(list(shown.values()))
            colours = [
                COLOURS[one if one == NAME else "default" if "default" in one else "tuned"] for one in shown
            ]
            panel.barh(places, middles, 0.7, xerr=around, color=colours, ecolor=INK)
            panel.set_yticks(places, list(shown))
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.xaxis.set_minor_formatter(_twos_and_fives)
            what = (
                "seconds until all flows again"
                if values == run.flows
                else "pause of a partition that moved, s"
            )
            panel.set_title(f"{name}: {what}", color=INK, fontsize="medium")
            ink(panel, "x")
        panels[0].invert_yaxis()


def _twos_and_fives(value: float, _: int) -> str:
    text = f"{value:g}"
    return text if text.strip("0.") in {"2", "5"} else ""


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How many times each goes through the events.")
@click.option("--rate", default=100, show_default=True, help="Records a second and partition.")
@click.option("--quick", is_flag=True, help="One round, no default settings or restarts; writes no report.")
@OUTPUT
def main(rounds: int, rate: int, quick: bool, output: Path) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    rounds = 1 if quick else rounds
    load = machine.load()
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as name, Muster(Path(name)) as muster:
        muster.up()
        least = tune_consumer_groups(muster.servers)
        producer = NumberProducer(muster.servers, TOPIC, PARTITIONS, at_once=max(1, round(rate * PAUSE)))
        tuned, default = (
            [Peer(kind, muster.servers, Path(name)) for kind in KINDS if (kind.session is not None) is wanted]
            for wanted in (True, False)
        )
        contest = Contest(muster, producer)

        def tell(turns: int) -> None:
            produced, lost = contest.account()
            run = Run(contest.events, produced, lost, least, turns, rate, load)
            write(None if quick else output, run)

        producer.start()
        try:
            # Their time-outs are most of it, so it is no harm to them that JVMs start meanwhile.
            with ThreadPoolExecutor(1) as pool:
                started = pool.submit(muster.start)
                if not quick:
                    with contest.playing(default):
                        contest.round(1, default)
                started.result()
            for turn in range(1, rounds + 1):
                number = (turn - 1) % MEMBERS + 1
                contest.round(number, [muster])
                with contest.playing(tuned):
                    contest.round(number, tuned)
                tell(turn)
            if not quick:
                contest.roll([muster])
                with contest.playing(tuned):
                    contest.roll(tuned)
                for loops in BUSY:
                    contest.busy_round(loops, tuned)
                tell(rounds)
        finally:
            for peer in (*tuned, *default):
                peer.stop()
            producer.stop()
