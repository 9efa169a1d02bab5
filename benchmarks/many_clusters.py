"""Many clusters on one Airflow: how many slots their coordinators wait in, what they cost, and how long it takes from
a consumer's death, leaving or joining to the new plan, beside a single cluster.

A real Airflow with this checkout's `airflow.cfg` on PostgreSQL, because SQLite refuses to be written by so many
at a time ("database is locked"), each cluster with two simulated consumers of one topic.
The last line has the slots that the largest number of clusters waits in, the CPU seconds a second that it takes, the
median seconds from a kill to the plan for one cluster and for the largest number.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import click

from benchmarks.airflow_share_figures import WAITS
from benchmarks.airflow_share_measure import PATIENCE, SETTLED, idle, react
from benchmarks.airflow_share_stage import Settings, Stage, coordinator
from benchmarks.harness.report import shown
from benchmarks.scale_consumers import Crowd
from devstack.airflow_api import wait_for
from devstack.airflow_backend import DATABASE
from devstack.progress import say
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings

MEASURED = "measured"
"""The cluster whose consumers leave and join."""
KILL = "kill"
EVENTS = (KILL, "join", "leave", "join")
"""What a consumer does, in turns."""
WATCHED = 60.0
"""Seconds for which the CPU is watched while nothing happens."""


def _join(stage: Stage, cluster: str) -> Crowd:
    """Register two consumers of a cluster, with pages that say they run what they are given."""
    place = stage.place(cluster)
    crowd = Crowd(place)
    discovery = ConsulCluster(ConsulSettings(host="127.0.0.1", port=place.consul), cluster, place.service)
    for consumer, port in crowd.join([f"{cluster}-1", f"{cluster}-2"]).items():
        meta = {"incarnation": f"{consumer}-1", "pid": "1", "host": "consumer-host-1.example.com"}
        url = f"http://127.0.0.1:{port}/health"
        discovery.catalog.register(consumer, "127.0.0.1", port, meta, url, 30.0, 3600.0, passing=True)
    return crowd


@click.command()
@click.option("--clusters", "numbers", multiple=True, type=int, default=(1, 100), show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Times that a consumer is killed, and leaves.")
def main(numbers: tuple[int, ...], rounds: int) -> None:
    """Print what is measured as it comes."""
    os.environ[DATABASE] = "postgresql"
    seen = [_measure(number, rounds) for number in sorted(numbers)]
    one, (clusters, slots, cpu, many) = seen[0][-1], seen[-1]
    say(f"many-clusters: clusters={clusters} slots={slots} cpu={cpu:.2f} one_s={one:.2f} many_s={many:.2f}")


def _measure(number: int, rounds: int) -> tuple[int, int, float, float]:
    """Return clusters, slots that wait, CPU seconds a second, and the median seconds from a kill to its plan."""
    others = [f"other-{n:03d}" for n in range(1, number)]
    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        stage = Stage(Path(folder), Settings(), dict.fromkeys([MEASURED, *others], 20.0))
        with stage.up() as api, stage.coordinated(api, MEASURED) as consumers:
            crowds = []
            for cluster in others:
                crowds.append(_join(stage, cluster))
                api.set_paused(coordinator(cluster), False)
            states = wait_for("all clusters wait", partial(_all_wait, stage, number), PATIENCE, interval=2)
            slots = states.count("running")
            cpu = sum(idle(stage, WATCHED)[0].values())
            say(f"{number} cluster(s): {slots} slot(s) wait, {cpu:.2f} CPU s a second")
            seconds: dict[str, list[float]] = {what: [] for what in EVENTS}
            for what in EVENTS * rounds:
                found = react(stage, MEASURED, consumers, what)
                seconds[what].append(found.took + found.total)
                say(f"{number} cluster(s), {what}: {seconds[what][-1]:.2f} s: {shown(found.steps)}")
    medians = {what: median(found) for what, found in seconds.items()}
    say(f"{number} cluster(s): seconds from each change to its plan: {shown(medians)}")
    return number, slots, cpu, medians[KILL]


def _all_wait(stage: Stage, number: int) -> list[str]:
    """Return the states of the tasks that wait, when each cluster has one; before, nothing."""
    states = stage.database.states(WAITS)
    return states if len(states) >= number and set(states) <= SETTLED.keys() else []
