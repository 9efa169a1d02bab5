"""Measures quiet runs, runs that compute and advance, and pruning, on a stage that is up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import psutil

from benchmarks.airflow_share_database import grown
from benchmarks.airflow_share_figures import PARTS, STEPS, WAITS, Pruning, Quiet, Reaction
from benchmarks.airflow_share_stage import PRUNING_DAG, Stage, coordinator
from benchmarks.scale_inputs import Consumers
from devstack.airflow import Airflow
from devstack.airflow_api import AirflowApi, wait_for
from devstack.command import run_to_end
from muster.core.history import Record, Transitions
from muster.edges.zookeeper import TopicStore

IDLE = 40.0
"""Seconds for which Airflow is watched without a run: all DAG files are parsed twice in it."""
LEAST = 25.0
"""Seconds for which a long poll's length is watched at least; then until the next end of a run."""
SETTLED = 2.5
"""Seconds after its start from when on the task that waits is sure to be in its long poll."""
EMPTY = {"quiet_runs": "1s", "failures": "1s"}
"""Retention that keeps rebalances only."""
CLEANING = (
    *("db", "clean", "--tables", "log", "--skip-archive", "--yes", "--error-on-cleanup-failure"),
    "--clean-before-timestamp",
)
"""Airflow's command that deletes what a pruned run leaves."""
_PATIENCE = 300.0


@dataclass(frozen=True)
class Standing:
    """CPU seconds by part, MB by part, rows and bytes by table, at a moment."""

    at: float
    cpu: dict[str, float]
    memory: dict[str, float]
    rows: dict[str, int]
    bytes: dict[str, int]
    logs: int


def usage(airflow: Airflow) -> tuple[dict[str, float], dict[str, float]]:
    """Measure CPU seconds so far, and MB now, by part."""
    cpu, memory = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
    for component, part in (
        (airflow.api, "API server"),
        (airflow.scheduler, "scheduler"),
        (airflow.dag_processor, "DAG processor"),
        (airflow.triggerer, "triggerer"),
    ):
        if (leader := component.process) is None:
            continue
        for process in leader.members():
            try:
                times, parent = process.cpu_times(), process.ppid()
                size = process.memory_full_info().pss / 1e6
            except psutil.NoSuchProcess:
                continue
            ended = times.children_user + times.children_system
            of = part
            if part == "scheduler" and process.pid != leader.pid:
                of = "supervisors" if parent == leader.pid else "tasks"
            cpu[of] += times.user + times.system
            cpu["tasks" if part == "scheduler" else part] += ended
            memory[of] += size
    return cpu, memory


def stand(stage: Stage) -> Standing:
    """Measure how things stand now. Needs SQLite, for rows and bytes."""
    airflow = stage.stack.airflow
    cpu, memory = usage(airflow)
    logs = sum(path.stat().st_size for path in (airflow.data_dir / "logs").glob("dag_id=*/*/**/*.log"))
    return Standing(time.monotonic(), cpu, memory, stage.database.rows(), stage.database.bytes(), logs)


def idle(stage: Stage) -> tuple[dict[str, float], dict[str, float]]:
    """Measure CPU seconds a second and MB, by part, while no run is made."""
    before = stand(stage)
    time.sleep(IDLE)  # what is measured is what happens in this time
    after = stand(stage)
    took = after.at - before.at
    return {part: (after.cpu[part] - before.cpu[part]) / took for part in PARTS}, after.memory


def quiet(stage: Stage, cluster: str, poll: float, without: dict[str, float]) -> Quiet:
    """Measure runs with nothing to do, one after the other; `without` is what `idle` found."""
    dag, database = coordinator(cluster), stage.database
    parsers: set[int] = set()
    first, before = len(database.ended(dag)), stand(stage)
    seen = first

    def over() -> bool:
        nonlocal first, before, seen
        parsers.update(_parsers(stage))
        runs = database.ended(dag)
        more, seen = len(runs) > seen, len(runs)
        if more and database.tasks(dag, runs[-1])["advance_state"].state != "skipped":
            first, before = seen, stand(stage)  # something was done: from here on
            parsers.clear()
        return seen > first and more and time.monotonic() - before.at > LEAST

    wait_for("runs with nothing to do", over, _PATIENCE, interval=0.2)
    after = stand(stage)
    tasks = [database.tasks(dag, run) for run in database.ended(dag)[first - 1 : seen]]
    polls = list(pairwise(of_run[WAITS] for of_run in tasks))
    return Quiet(
        poll,
        seen - first,
        after.at - before.at,
        tuple(later.end - earlier.end - poll for earlier, later in polls),
        tuple(later.start - earlier.end for earlier, later in polls),
        sum(1 for of_run in tasks[1:] for task in of_run.values() if task.pid),
        len(parsers),
        {part: after.cpu[part] - before.cpu[part] for part in PARTS},
        without,
        grown(before.rows, after.rows),
        grown(before.bytes, after.bytes),
        after.logs - before.logs,
    )


def _parsers(stage: Stage) -> set[int]:
    processor = stage.stack.airflow.dag_processor.process
    return set() if processor is None else {child.pid for child in psutil.Process(processor.pid).children()}


def react(stage: Stage, cluster: str, consumers: Consumers, event: str, busy: bool) -> Reaction:
    """Have a consumer leave or join while the coordinator is in its long poll; `busy` says how the machine is."""
    dag, database = coordinator(cluster), stage.database

    def polls() -> bool:
        poll = database.tasks(dag, database.newest(dag)).get(WAITS)
        return poll is not None and poll.state == "running" and time.time() - poll.start > SETTLED

    wait_for("a long poll", polls, _PATIENCE, interval=0.1)
    with stage.history(cluster) as store:
        asked = time.time()
        if event == "join":
            consumers.join(1)
        else:
            consumers.leave()
        began = time.time()  # it is so now; the plan may even be written, when Consul was slow to answer
        written: Record = wait_for("a plan", lambda: first_write(store, asked), _PATIENCE, interval=0.2)
        run = written.entry.by.partition(" ")[2] if isinstance(written.entry, Transitions) else ""
        wait_for("the run's end", lambda: run in database.ended(dag), _PATIENCE, interval=0.2)
    tasks = database.tasks(dag, run)
    advance = tasks["advance_state"]
    moments = (began, tasks[WAITS].end, advance.start, written.written)
    steps = {step: later - earlier for step, (earlier, later) in zip(STEPS, pairwise(moments), strict=True)}
    return Reaction(event, busy, steps)


@contextmanager
def busy_machine() -> Iterator[None]:
    """Run as many programs as there are cores, which take all that they get, as consumers do that are behind."""
    spin = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
    spinning = [
        subprocess.Popen([sys.executable, "-c", spin, str(os.getpid())])  # noqa: S603  our own command line
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def first_write(store: TopicStore, since: float) -> Record | None:
    """Find the first write since `since` that moved something, None if there is none."""
    for record in reversed(store.history(since=since).records):
        if isinstance(record.entry, Transitions) and any(step.moves for step in record.entry.steps):
            return record
    return None


def prune(stage: Stage, api: AirflowApi, new: Standing, clusters: list[str]) -> Pruning:
    """Have `muster_pruning` delete all quiet runs, and Airflow's own command what stays of them in the table `log`.

    `new` is how things stood before the first run.
    """
    runs = sum(len(stage.database.ended(coordinator(cluster))) for cluster in clusters)
    full = stand(stage)
    stage.write_clusters(EMPTY)
    api.set_paused(PRUNING_DAG, False)
    began = time.monotonic()
    run = api.trigger(PRUNING_DAG)
    wait_for("pruning", lambda: run in stage.database.ended(PRUNING_DAG), _PATIENCE, interval=0.2)
    took = time.monotonic() - began
    api.set_paused(PRUNING_DAG, True)
    left = sum(len(stage.database.ended(coordinator(cluster))) for cluster in clusters)
    pruned = stand(stage)
    run_to_end(
        [sys.executable, "-m", "airflow", *CLEANING, datetime.now(UTC).isoformat()],
        "'airflow db clean' failed",
        env={**os.environ, **stage.stack.environment()},
    )
    cleaned = stand(stage)
    return Pruning(
        runs - left,
        took,
        sum(new.bytes.values()),
        sum(full.bytes.values()),
        sum(pruned.bytes.values()),
        sum(cleaned.bytes.values()),
        grown(pruned.rows, full.rows),
        grown(cleaned.rows, pruned.rows),
    )
