"""Measures quiet runs, runs that compute and advance, and pruning, on a stage that is up."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import psutil

from benchmarks.airflow_share_figures import PARTS, STEPS, WAITS, Pruning, Quiet, Reaction
from benchmarks.airflow_share_stage import PRUNING_DAG, Stage, coordinator
from benchmarks.harness.coordination import first_write, seconds_between
from benchmarks.scale_consumers import Consumers
from devstack.airflow import Airflow
from devstack.airflow_api import AirflowApi, wait_for
from devstack.command import run_to_end

IDLE = 40.0
"""Seconds for which Airflow is watched without a run: all DAG files are parsed twice in it."""
LEAST = 25.0
"""Seconds for which a long poll's length is watched at least; then until the next end of a run."""
SETTLED = {"running": 3.0, "deferred": 8.0}
"""Seconds in this state after which a task is sure to wait: one that has just deferred is woken late."""
EMPTY = {"quiet_runs": "1s", "failures": "1s"}
"""Retention that keeps rebalances only."""
CLEANING = ("--tables", "log", "--skip-archive", "--yes", "--error-on-cleanup-failure")
PATIENCE = 1200.0
"""Seconds until something has to have come about: a hundred clusters on a small machine take long."""


@dataclass(frozen=True)
class Standing:
    """CPU seconds by part, MB by part, rows and bytes by table, at a moment."""

    at: float
    cpu: dict[str, float]
    memory: dict[str, float]
    rows: dict[str, int]
    bytes: dict[str, int]
    logs: int


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


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


def idle(stage: Stage, seconds: float = IDLE) -> tuple[dict[str, float], dict[str, float]]:
    """Measure CPU seconds a second and MB, by part, while nothing happens."""
    began, (before, _) = time.monotonic(), usage(stage.stack.airflow)
    time.sleep(seconds)  # what is measured is what happens in this time
    after, memory = usage(stage.stack.airflow)
    took = time.monotonic() - began
    return {part: (after[part] - before[part]) / took for part in PARTS}, memory


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

    wait_for("runs with nothing to do", over, PATIENCE, interval=0.2)
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


def react(stage: Stage, cluster: str, consumers: Consumers, event: str, busy: bool = False) -> Reaction:
    """Have a consumer leave, join or be killed while the coordinator waits; `busy` says how the machine is."""
    dag, database = coordinator(cluster), stage.database

    def waits() -> bool:
        task = database.tasks(dag, database.newest(dag)).get(WAITS)
        return task is not None and task.state in SETTLED and time.time() - task.start > SETTLED[task.state]

    wait_for("the coordinator waits", waits, PATIENCE, interval=0.1)
    with stage.history(cluster) as store:
        asked = time.time()
        {"join": lambda: consumers.join(1), "leave": consumers.leave, "kill": consumers.kill}[event]()
        began = time.time()  # it is so now; the plan may even be written, when Consul was slow to answer
        written, run = wait_for("a plan", lambda: first_write(store, asked), PATIENCE, interval=0.1)
        wait_for("the run's end", lambda: run in database.ended(dag), PATIENCE, interval=0.2)
    tasks = database.tasks(dag, run)
    moments = (began, tasks[WAITS].end, tasks["advance_state"].start, written.written)
    return Reaction(event, busy, seconds_between(STEPS, moments), began - asked)


def trigger(api: AirflowApi, dag: str) -> float:
    """Have a DAG run once; return the seconds that it took."""
    began = time.monotonic()
    run = api.trigger(dag)
    wait_for(f"a run of {dag}", lambda: api.run_state(dag, run) == "success", PATIENCE, interval=0.2)
    return time.monotonic() - began


def clean(environment: dict[str, str], before: datetime) -> float:
    """Have Airflow's own command delete what pruned runs have left of the table `log`; return its seconds."""
    began = time.monotonic()
    run_to_end(
        [
            sys.executable,
            "-m",
            "airflow",
            "db",
            "clean",
            *CLEANING,
            "--clean-before-timestamp",
            before.isoformat(),
        ],
        "'airflow db clean' failed",
        env={**os.environ, **environment},
    )
    return time.monotonic() - began


def prune(stage: Stage, api: AirflowApi, new: Standing, clusters: list[str]) -> Pruning:
    """Have `muster_pruning` delete all quiet runs, and Airflow's own command what stays of them in the table `log`.

    `new` is how things stood before the first run.
    """
    runs = sum(stage.database.count(coordinator(cluster)) for cluster in clusters)
    full = stand(stage)
    stage.write_clusters(EMPTY)
    api.set_paused(PRUNING_DAG, False)
    took = trigger(api, PRUNING_DAG)
    api.set_paused(PRUNING_DAG, True)
    left = sum(stage.database.count(coordinator(cluster)) for cluster in clusters)
    pruned = stand(stage)
    clean(stage.stack.environment(), datetime.now(UTC))
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
