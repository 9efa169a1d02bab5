"""What Airflow itself costs: time, processes, CPU and rows of a coordinator with nothing to do, with long polls of
several lengths; what it adds to a failover; and the size of its database that retention settles at.

A real Airflow with this checkout's `airflow.cfg`, and one with Airflow's defaults, both with simulated consumers. The
last line has, with `airflow.cfg`, the seconds between two long polls, the CPU seconds and the bytes of a
run, and what the database settles at with the default long poll and retention; and the ratios to Airflow's
defaults of the first two, of the CPU without a run, and of the time from a consumer's leaving to the new plan.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from benchmarks.airflow_share_figures import KEEPER, Reaction, Side, joined, write
from benchmarks.airflow_share_measure import idle, prune, quiet, react, stand
from benchmarks.airflow_share_stage import Settings, Stage
from benchmarks.harness import machine
from benchmarks.harness.options import OUTPUT, RESULTS
from benchmarks.harness.report import shown
from devstack.airflow_api import AirflowApi
from devstack.progress import say

REACTING = "reacting"
"""The cluster whose consumers leave and join."""
SIDES = {"tuned": Settings(), "bare": Settings(bare=True), "cold": Settings(preload=False)}


@click.command()
@click.option("--long-poll", "polls", multiple=True, type=float, default=(2, 5, 15, 60), show_default=True)
@click.option("--events", default=6, show_default=True, help="Leaves and joins; as many on a busy machine.")
@click.option("--prune/--no-prune", "pruning", default=True, help="Whether the runs are pruned in the end.")
@click.option(
    "--settings",
    "names",
    multiple=True,
    type=click.Choice(list(SIDES)),
    default=("tuned", "bare"),
    show_default=True,
    help="airflow.cfg, Airflow's defaults, or airflow.cfg without what is preloaded.",
)
@click.option(
    "--but",
    "changed",
    multiple=True,
    metavar="VARIABLE=VALUE",
    help="Another value of a setting, such as AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME=1.",
)
@click.option("--quick", is_flag=True, help="A long poll of 2 s, 4 events; writes no report.")
@OUTPUT
@RESULTS
def main(
    polls: tuple[float, ...],
    events: int,
    pruning: bool,
    names: tuple[str, ...],
    changed: tuple[str, ...],
    quick: bool,
    output: Path,
    kept: Path | None,
) -> None:
    """Print what is measured as it comes, and write tables."""
    load_before = machine.load()
    if quick:
        polls, events = (2.0,), min(events, 4)
    sides = KEEPER.load(kept) or ()
    for name in names:
        settings = replace(SIDES[name], changed=dict(_pair(text) for text in changed))
        sides = joined(sides, _measure(settings, polls, events, pruning and name == "tuned"))
        KEEPER.save(kept, sides)
    write(None if quick else output, sides, load_before)


def _measure(settings: Settings, polls: tuple[float, ...], events: int, pruning: bool) -> Side:
    clusters = {f"poll-{poll:g}": poll for poll in polls}
    with tempfile.TemporaryDirectory(prefix="bench-share-") as folder:
        stage = Stage(Path(folder), settings, {**clusters, REACTING: 20.0})
        with stage.up() as api:
            without, memory = idle(stage)
            say(
                f"{settings.name}: without a run {sum(without.values()):.3f} CPU s a second: {shown(without)}"
            )
            new = stand(stage)
            side = Side(settings.name, without, memory)
            for cluster, poll in clusters.items():
                with stage.coordinated(api, cluster):
                    seen = quiet(stage, cluster, poll, without)
                side = replace(side, quiet=(*side.quiet, seen))
                a_run = seen.cpu_a_run
                say(
                    f"long poll {poll:g}: {seen.runs} runs in {seen.seconds:.0f} s, "
                    f"deaf for {median(seen.deaf):.2f} s; a run: {sum(a_run.values()):.2f} CPU s ({shown(a_run)}), "
                    f"{sum(seen.rows.values()) / seen.runs:.1f} rows"
                )
            if events:
                side = replace(side, reactions=tuple(_reactions(stage, api, events)))
            if pruning and clusters:
                side = replace(side, pruning=prune(stage, api, new, [*clusters, REACTING]))
                say(f"{side.pruning}")
    return side


def _reactions(stage: Stage, api: AirflowApi, events: int) -> Iterator[Reaction]:
    with stage.coordinated(api, REACTING) as consumers:
        for busy in (False, True):
            # As consumers do that are behind.
            with machine.busy((os.cpu_count() or 1) * busy):
                for event in (["leave", "join"] * events)[:events]:
                    found = react(stage, REACTING, consumers, event, busy)
                    state = "busy" if busy else "quiet"
                    say(f"{event}, machine {state}: {found.total:.2f} s ({shown(found.steps)})")
                    yield found


def _pair(text: str) -> tuple[str, str]:
    variable, equals, value = text.partition("=")
    if not equals or len(variable.split("__")) != len(("AIRFLOW", "section", "key")):
        raise click.BadParameter(f"{text!r} is not AIRFLOW__SECTION__KEY=VALUE")
    return variable, value
