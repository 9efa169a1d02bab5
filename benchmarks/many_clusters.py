"""Many clusters on one Airflow: how many slots their coordinators wait in, what they cost, and how long it takes from
a consumer's death, leaving or joining to the new plan, beside a single cluster.

A real Airflow with this checkout's `airflow.cfg` on PostgreSQL, because SQLite refuses to be written by so many
at a time ("database is locked"), each cluster with two simulated consumers of one topic.
The last line has the slots that the largest number of clusters waits in, the CPU seconds a second that it takes, the
median seconds from a kill to the plan for one cluster and for the largest number.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import cast

import click

from benchmarks.airflow_share_figures import WAITS
from benchmarks.airflow_share_measure import first_write, usage
from benchmarks.airflow_share_stage import Settings, Stage, coordinator
from benchmarks.scale_consumers import Assigned, _Page
from devstack.airflow_api import wait_for
from devstack.airflow_backend import DATABASE
from devstack.progress import say
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, ZooKeeperSettings

MEASURED = "measured"
"""The cluster whose consumers leave and join."""
SETTLED = {"running": 3.0, "deferred": 8.0}
"""Seconds in this state after which a task is sure to wait: one that has just deferred is woken late."""
KILL = "kill"
EVENTS = (KILL, "join", "leave", "join")
"""What a consumer does, in turns."""
WATCHED = 60.0
"""Seconds for which the CPU is watched while nothing happens."""
_PATIENCE = 1200.0


@dataclass(frozen=True)
class Seen:
    """`slots` that wait, CPU seconds a second, and the median seconds from each change to its plan."""

    clusters: int
    slots: int
    cpu: float
    seconds: dict[str, float]


class Crowd:
    """Two simulated consumers for each of the other clusters, in this process."""

    def __init__(self, stage: Stage) -> None:
        self._consul = ConsulSettings(host="127.0.0.1", port=stage.stack.consul.ports["http"])
        self._zookeeper = ZooKeeperSettings(hosts=stage.stack.zookeeper.address, operation_timeout=60.0)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def join(self, cluster: str) -> None:
        """Register two consumers of a cluster, with pages that say they run what they are given."""
        assigned = Assigned()
        # Of an agent the watch only calls what `Assigned` has.
        watch = AssignmentWatch(self._zookeeper, cluster, cast(Agent, assigned), 3600.0)
        threading.Thread(target=watch.run, args=(lambda: None,), daemon=True).start()
        discovery = ConsulCluster(self._consul, cluster, f"muster-{cluster}")
        for consumer in (f"{cluster}-1", f"{cluster}-2"):
            made = self._loop.create_server(partial(_Page, consumer, assigned), "127.0.0.1", 0)
            server = asyncio.run_coroutine_threadsafe(made, self._loop).result()
            port = server.sockets[0].getsockname()[1]
            meta = {"incarnation": f"{consumer}-1", "pid": "1", "host": "consumer-host-1.example.com"}
            url = f"http://127.0.0.1:{port}/health"
            discovery.catalog.register(consumer, "127.0.0.1", port, meta, url, 30.0, 3600.0, passing=True)


@click.command()
@click.option("--clusters", "numbers", multiple=True, type=int, default=(1, 100), show_default=True)
@click.option(
    "--rounds", default=5, show_default=True, help="How many times a consumer is killed, and leaves."
)
def main(numbers: tuple[int, ...], rounds: int) -> None:
    """Print what is measured as it comes."""
    os.environ[DATABASE] = "postgresql"
    seen = [_measure(number, rounds) for number in sorted(numbers)]
    one, many = seen[0], seen[-1]
    say(
        f"many-clusters: clusters={many.clusters} slots={many.slots} cpu={many.cpu:.2f} "
        f"one_s={one.seconds[KILL]:.2f} many_s={many.seconds[KILL]:.2f}"
    )


def _measure(number: int, rounds: int) -> Seen:
    others = [f"other-{n:03d}" for n in range(1, number)]
    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        stage = Stage(Path(folder), Settings(), dict.fromkeys([MEASURED, *others], 20.0))
        with stage.up() as api:
            crowd = Crowd(stage)
            with stage.coordinated(api, MEASURED) as consumers:
                for cluster in others:
                    crowd.join(cluster)
                    api.set_paused(coordinator(cluster), False)
                states = wait_for(
                    "all clusters wait", partial(_all_wait, stage, number), _PATIENCE, interval=2
                )
                slots = states.count("running")
                cpu = _cpu(stage)
                say(f"{number} cluster(s): {slots} slot(s) wait, {cpu:.2f} CPU s a second")
                seconds: dict[str, list[float]] = {what: [] for what in EVENTS}
                for what in EVENTS * rounds:
                    with _waiting(stage) as run:
                        began = time.time()
                        consumers.join(1) if what == "join" else getattr(consumers, what)()
                        planned = _planned(stage, began)
                    seconds[what].append(planned - began)
                    say(f"{number} cluster(s), {what}: {_split(stage, run, began, planned)}")
    medians = {what: median(found) for what, found in seconds.items()}
    say(f"{number} cluster(s): " + ", ".join(f"{what} {found:.2f} s" for what, found in medians.items()))
    return Seen(number, slots, cpu, medians)


def _all_wait(stage: Stage, number: int) -> list[str]:
    """Return the states of the tasks that wait, when each cluster has one; before, nothing."""
    states = stage.database.states(WAITS)
    return states if len(states) >= number and set(states) <= SETTLED.keys() else []


def _cpu(stage: Stage) -> float:
    began, (before, _) = time.monotonic(), usage(stage.stack.airflow)
    time.sleep(WATCHED)  # what is measured is what happens in this time
    after, _ = usage(stage.stack.airflow)
    return (sum(after.values()) - sum(before.values())) / (time.monotonic() - began)


@contextmanager
def _waiting(stage: Stage) -> Iterator[str]:
    """Begin while the coordinator waits, and end when the run that it then had, which is given, is over."""
    dag, database = coordinator(MEASURED), stage.database

    def waits() -> bool:
        task = database.tasks(dag, database.newest(dag)).get(WAITS)
        return task is not None and task.state in SETTLED and time.time() - task.start > SETTLED[task.state]

    wait_for("the coordinator waits", waits, _PATIENCE, interval=0.2)
    run = database.newest(dag)
    yield run
    wait_for("the run's end", lambda: run in database.ended(dag), _PATIENCE, interval=0.2)


def _planned(stage: Stage, began: float) -> float:
    with stage.history(MEASURED) as store:
        return float(wait_for("a plan", lambda: first_write(store, began), _PATIENCE, interval=0.1).written)


def _split(stage: Stage, run: str, began: float, planned: float) -> str:
    tasks = stage.database.tasks(coordinator(MEASURED), run)
    waited, writes = tasks[WAITS].end, tasks["advance_state"].start
    return (
        f"{planned - began:.2f} s: the wait ends after {waited - began:.2f}, advance_state starts "
        f"{writes - waited:.2f} later and writes after {planned - writes:.2f}"
    )


if __name__ == "__main__":
    main()
