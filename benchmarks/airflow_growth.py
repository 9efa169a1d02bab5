"""What grows in Airflow over 100,000 runs of a coordinator, and in its triggerer over thousands of deferrals.

A real Airflow with this checkout's `airflow.cfg` on PostgreSQL. Real runs with nothing to do show the rows, bytes and
logs of a run. The last of them is then copied, by SQL and with its log folder, until there are 100,000 runs, each
`COPIES_APART` before the other. Runs, scheduler and pages are measured before and after that, and when
`muster_pruning` has deleted what its default `retention` lets it: some runs of it do so, the rest is then deleted by
SQL. At last tasks defer to the coordinator's trigger.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, median

import click
import httpx

from benchmarks.airflow_share_figures import WAITS
from benchmarks.airflow_share_measure import PATIENCE, clean, grown, trigger, usage
from benchmarks.airflow_share_stage import PRUNING_DAG, Settings, Stage, coordinator
from benchmarks.harness.report import render, table
from devstack.airflow import ROOT
from devstack.airflow_api import AirflowApi, wait_for
from devstack.airflow_backend import DATABASE
from devstack.progress import say
from muster.airflow.watcher import BLOCK

GROWING = "growing"
DAG = coordinator(GROWING)
POLL = 2.0
COPIES_APART = 20.7
"""Seconds from one copied run to the next: the default long poll, and what a run takes beside it."""
COPIED: dict[str, dict[str, str]] = {
    "dag_run": {},
    "task_instance": {"id": "gen_random_uuid()"},
    "xcom": {
        "dag_run_id": "(SELECT id FROM dag_run WHERE dag_id = s.dag_id AND run_id = s.run_id || '~' || n)"
    },
    "log": {},
}
"""The tables in which a run with nothing to do leaves rows that stay, in the order of their foreign keys, and what a
copy has of its own there."""
PAGES = {
    "list of runs": f"/api/v2/dags/{DAG}/dagRuns?limit=50&order_by=-run_after",
    "grid": f"/ui/grid/runs/{DAG}?limit=14&order_by=-run_after",
    "dashboard": f"/muster/api/clusters/{GROWING}/topics",
    "metrics": "/muster/metrics",
}
HEADER = ("", "runs", "MB", "no task waits, s", "loop, ms", "its CPU, ms", *PAGES)
AGAIN, AT_ONCE = "again", 100
"""A DAG with so many tasks that begin in the triggerer."""


class Growth:
    """Looks at the Airflow of a stage that is up: its database, its scheduler's loops, its pages."""

    def __init__(self, stage: Stage, api: AirflowApi, loops: Loops) -> None:
        airflow = stage.stack.airflow
        self.api, self.airflow, self._loops = api, airflow, loops
        self.sql, self.rows = stage.database.sql, stage.database.rows
        self.runs = partial(stage.database.count, DAG)
        user = {"username": "admin", "password": airflow.passwords()["admin"]}
        self._token = httpx.post(f"{airflow.url}/auth/token", json=user, timeout=60).json()["access_token"]
        self.logs = airflow.data_dir / "logs" / f"dag_id={DAG}"

    def look(self, name: str, number: int) -> list[str]:
        """Measure `number` further runs, the loops meanwhile, then the pages; return cells for `HEADER`."""
        newest = self.sql("SELECT max(id) FROM dag_run WHERE dag_id = :dag", dag=DAG)[0][0]
        query = (
            "SELECT t.end_date FROM dag_run AS r JOIN task_instance AS t USING (dag_id, run_id) "
            "WHERE r.id > :newest AND r.dag_id = :dag AND r.state = 'success' AND t.task_id = :task ORDER BY r.id"
        )
        before, _ = usage(self.airflow)
        self._loops.seen.clear()
        ended = partial(self.sql, query, newest=newest, dag=DAG, task=WAITS)
        wait_for(f"{number} runs", lambda: len(ended()) > number, PATIENCE, interval=1)
        loops, cpu = list(self._loops.seen), usage(self.airflow)[0]["scheduler"] - before["scheduler"]
        deaf = [(later.end_date - run.end_date).total_seconds() - POLL for run, later in pairwise(ended())]
        size = self.sql("SELECT pg_database_size(current_database())")[0][0]
        cells = [name, f"{self.runs():,}", f"{size / 1e6:,.0f}", f"{median(deaf):.2f}"]
        figures = (median(loops), 1000 * cpu / len(loops), *map(self._answered, PAGES.values()))
        cells += [f"{figure:.0f}" for figure in figures]
        say(f"{dict(zip(HEADER, cells, strict=True))}")
        return cells

    def _answered(self, path: str) -> float:
        """Return the milliseconds of the quickest of fifteen answers, which other work disturbs least."""
        token = "metrics" if path.endswith("/metrics") else self._token
        took = []
        with httpx.Client(base_url=self.airflow.url, headers={"Authorization": f"Bearer {token}"}) as client:
            for _ in range(15):
                began = time.monotonic()
                client.get(path, timeout=60).raise_for_status()
                took.append(1000 * (time.monotonic() - began))
        return min(took)

    def fill(self, number: int) -> None:
        """Copy the last run that has ended, and did nothing, until there are `number`."""
        query = "SELECT run_id FROM dag_run WHERE dag_id = :dag AND state = 'success' ORDER BY end_date DESC LIMIT 1"
        template = self.sql(query, dag=DAG)[0][0]
        copies = number - self.runs()
        listed = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = :name"
        for name, own in COPIED.items():
            made = {}
            for column, kind in self.sql(listed, name=name):
                earlier = f" - n * interval '{COPIES_APART} s'" if kind.startswith("timestamp") else ""
                made[column] = f"s.{column}{earlier}"
            made.pop("id", None)
            made |= {"run_id": "s.run_id || '~' || n", **own}
            self.sql(
                f"INSERT INTO {name} ({', '.join(made)}) SELECT {', '.join(made.values())} "  # noqa: S608
                f"FROM {name} AS s, generate_series(1, {copies}) AS n WHERE s.dag_id = :dag AND s.run_id = :run",
                dag=DAG,
                run=template,
            )
            say(f"{name}: copied for {copies:,} runs")
        for n in range(1, copies + 1):
            shutil.copytree(self.logs / f"run_id={template}", self.logs / f"run_id={template}~{n}")
        self.sql("ANALYZE")

    def held(self) -> dict[str, float]:
        leader = self.airflow.triggerer.process
        members = leader.members() if leader else []
        return {
            "handles": sum(process.num_fds() for process in members),
            "threads": sum(process.num_threads() for process in members),
            "megabytes": sum(process.memory_full_info().uss for process in members) / 1e6,
        }


class Loops:
    """How long the scheduler's loops take, which Airflow sends by StatsD."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            for found in re.findall(rb"scheduler_loop_duration:([0-9.]+)\|ms", self._socket.recv(65536)):
                self.seen.append(float(found))


@click.command()
@click.option("--runs", default=100_000, show_default=True, help="Runs in the database, most of them copies.")
@click.option("--real", default=20, show_default=True, help="Real runs of each look.")
@click.option("--prunings", default=3, show_default=True, help="Runs of the pruning.")
@click.option("--deferrals", default=3_000, show_default=True, help="A multiple of 500.")
@click.option("--quick", is_flag=True, help="10,000 runs, 10 real ones a look, 1,000 deferrals.")
def main(runs: int, real: int, prunings: int, deferrals: int, quick: bool) -> None:
    """Print what is measured as it comes, and tables at the end."""
    if quick:
        runs, real, deferrals = 10_000, 10, 1_000
    os.environ[DATABASE] = "postgresql"
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        loops = Loops()
        stage = Stage(Path(folder), _settings(Path(folder), loops), {GROWING: POLL})
        with stage.up() as api:
            growth = Growth(stage, api, loops)
            with stage.coordinated(api, GROWING):
                looks = _pruned(growth, runs, real, prunings)
                slopes = list(_deferred(growth, deferrals))
    say("\n".join(["", looks, "", *slopes]))


def _settings(folder: Path, loops: Loops) -> Settings:
    dags = folder / "dags"
    dags.mkdir()
    for file in (ROOT / "dags").glob("*.py"):
        (dags / file.name).symlink_to(file)
    text = render("again.py", cluster=GROWING, dag=AGAIN, at_once=AT_ONCE)
    (dags / "again.py").write_text(text, encoding="utf-8")
    metrics = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(loops.port)}
    changed = {f"AIRFLOW__METRICS__{key}": value for key, value in metrics.items()}
    token = json.dumps({"conn_type": "generic", "password": "metrics"})
    return Settings(
        changed={**changed, "AIRFLOW__CORE__DAGS_FOLDER": str(dags), "AIRFLOW_CONN_MUSTER_METRICS": token}
    )


def _pruned(growth: Growth, runs: int, real: int, prunings: int) -> str:
    before, files = growth.rows(), _logs(growth.logs)
    looks = [growth.look("few", real)]
    rows, more = grown(before, growth.rows()), _logs(growth.logs)
    made = rows["dag_run"]
    say(f"{made} real runs left rows of " + ", ".join(f"{name} {n / made:.2f}" for name, n in rows.items()))
    say(f"and {(more[0] - files[0]) / made:.1f} log files of {(more[1] - files[1]) / made:,.0f} bytes a run")
    growth.fill(runs)
    looks.append(growth.look("many", real))
    full = growth.rows()
    growth.api.set_paused(PRUNING_DAG, False)
    for number in range(1, prunings + 1):
        count = growth.runs()
        took = trigger(growth.api, PRUNING_DAG)
        left, folders = growth.runs(), sum(1 for _ in growth.logs.iterdir())
        say(f"pruning {number}: {took:.0f} s; {count:,} runs before, {left:,} after, {folders:,} log folders")
    say(f"pruning changed the rows of {grown(full, growth.rows())}")
    # What all further hours would come to. Then what is free goes back to the disk: the size is that of what is left.
    growth.sql("DELETE FROM dag_run WHERE dag_id = :dag AND end_date < now() - interval '1 day'", dag=DAG)
    growth.sql("VACUUM FULL ANALYZE")
    looks.append(growth.look("pruned", real))
    took = clean(growth.airflow.environment(), datetime.now(UTC) - timedelta(days=1))
    say(f"airflow db clean: {took:.0f} s")
    growth.sql("VACUUM FULL ANALYZE")
    looks.append(growth.look("audit log cleaned", real))
    say(f"rows now: { {name: count for name, count in growth.rows().items() if count} }")
    return table(HEADER, looks)


def _logs(folder: Path) -> tuple[int, int]:
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return len(sizes), sum(sizes)


def _deferred(growth: Growth, number: int) -> Iterator[str]:
    """Yield by how much what the triggerer holds at rest grows in a thousand deferrals, after the first fifth."""
    wait_for("the DAG that defers", partial(growth.api.has_dag, AGAIN), PATIENCE)
    held = {}
    for done in range(AT_ONCE, number + 1, AT_ONCE):
        trigger(growth.api, AGAIN)
        if done % (number // 5) == 0:
            busy = growth.held()
            time.sleep(1.2 * BLOCK)  # what the last watches have asked ends by itself in this time
            held[done] = growth.held()
            say(f"{done} deferrals: {busy}, at rest {held[done]}")
    say(f"rows of triggers left: {growth.rows()['trigger']}")
    for what, last in held[number].items():
        slope = linear_regression(list(held), [each[what] for each in held.values()]).slope * 1000
        first = held[min(held)][what]
        yield f"growth: deferrals={number} {what} first={first:.0f} last={last:.0f} a_thousand={slope:.2f}"
