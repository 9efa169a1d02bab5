"""What Airflow itself costs while a coordinator has nothing to do: time, processes, CPU and rows, at several ticks.

A real Airflow with this checkout's `airflow.cfg`, and simulated consumers that change nothing. The last line has, at
the first tick, the seconds between the end of one long poll and the beginning of the next, the CPU seconds of a run,
and the bytes that its rows take.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import click
import psutil
import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.scale_inputs import Consumers
from benchmarks.scale_tasks import Place
from devstack.airflow_api import AirflowApi, wait_for
from devstack.progress import say
from devstack.stack import Stack

REPORT = "report-airflow-share.md"
CLUSTER = "share"
DAG = f"muster_coordinator__{CLUSTER}"
DAY = 86_400
LEAST = 30.0
"""Seconds for which a tick is watched, and at least two runs."""


@dataclass(frozen=True)
class Standing:
    """Where things stand: seconds of CPU that Airflow has taken, rows by table, bytes of the database."""

    at: float
    cpu: float
    rows: dict[str, int]
    bytes: int


@dataclass(frozen=True)
class Share:
    """What was seen at one tick. `gap` is the median of seconds from the end of a long poll to the next one."""

    tick: float
    runs: int
    seconds: float
    gap: float
    processes: float
    cpu: float
    idle_cpu: float
    rows: float
    bytes: float

    @property
    def runs_a_day(self) -> float:
        """As many as would be made."""
        return DAY * self.runs / self.seconds

    @property
    def cpu_a_run(self) -> float:
        """Beyond what Airflow takes when no run is made."""
        return (self.cpu - self.idle_cpu * self.seconds) / self.runs


def _stand(stack: Stack) -> Standing:
    cpu = 0.0
    for component in stack.airflow.components:
        for process in component.process.members() if component.process else ():
            try:
                cpu += sum(process.cpu_times()[:4])  # with the children that have ended
            except psutil.NoSuchProcess:
                continue
    path = stack.folder / "airflow" / "airflow.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {
            table: int(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608
            for table in tables
        }
        pages, free, size = (
            int(database.execute(f"PRAGMA {key}").fetchone()[0])
            for key in ("page_count", "freelist_count", "page_size")
        )
    return Standing(time.monotonic(), cpu, rows, (pages - free) * size)


def _gap(runs: Sequence[dict[str, str]], tasks: dict[str, list[dict[str, str]]]) -> float:
    polls = sorted(
        (datetime.fromisoformat(task["start_date"]), datetime.fromisoformat(task["end_date"]))
        for run in runs
        for task in tasks[run["dag_run_id"]]
        if task["task_id"] == "fetch_consumers" and task["end_date"]
    )
    gaps = [(later[0] - earlier[1]).total_seconds() for earlier, later in pairwise(polls)]
    return median(gaps) if gaps else 0.0


def _measure(stack: Stack, api: AirflowApi, clusters: Path, tick: float, idle_cpu: float) -> Share:
    _write(clusters, tick)
    old = {run["dag_run_id"] for run in api.runs(DAG, 1)}

    def ended() -> list[dict[str, str]]:
        return [run for run in api.runs(DAG, 100) if run["end_date"] and run["dag_run_id"] not in old]

    wait_for("a run at the new tick", ended, 120 + 2 * tick)
    before = _stand(stack)
    old |= {run["dag_run_id"] for run in ended()}
    due = before.at + max(LEAST, 2 * tick)
    wait_for("more runs", lambda: time.monotonic() > due and len(ended()) > 1, 300 + 3 * tick)
    after, runs = _stand(stack), ended()
    tasks = {run["dag_run_id"]: api.task_instances(DAG, run["dag_run_id"]) for run in runs}
    processes = sum(1 for of_run in tasks.values() for task in of_run if task["state"] != "skipped")
    rows = sum(after.rows.values()) - sum(before.rows.values())
    return Share(
        tick,
        len(runs),
        after.at - before.at,
        _gap(runs, tasks),
        processes / len(runs),
        after.cpu - before.cpu,
        idle_cpu,
        rows / len(runs),
        (after.bytes - before.bytes) / len(runs),
    )


def _write(path: Path, tick: float) -> None:
    cluster = {
        "consul_service": f"muster-{CLUSTER}",
        "group_id": CLUSTER,
        "topics": ["t-0"],
        "tick": f"{tick:g}s",
        "consumers": {"count": 0, "handler": "muster.handlers.parquet.ParquetHandler"},
    }
    path.write_text(yaml.safe_dump({"clusters": {CLUSTER: cluster}}), encoding="utf-8")


def rows(shares: Sequence[Share]) -> list[str]:
    """The table."""
    head = (
        "tick s",
        "runs seen",
        "runs a day",
        "nobody listens for s",
        "processes a run",
        "CPU s a run",
        "CPU s an hour",
        "rows a run",
        "rows a day",
        "kB a run",
        "MB after a day of ticks",
    )
    return [
        f"| {' | '.join(head)} |",
        f"| {' | '.join('---' for _ in head)} |",
        *(
            f"| {s.tick:g} | {s.runs} | {s.runs_a_day:,.0f} | {s.gap:.2f} | {s.processes:.1f} | {s.cpu_a_run:.2f} "
            f"| {s.cpu / s.seconds * 3600:,.0f} | {s.rows:.0f} | {s.rows * s.runs_a_day:,.0f} "
            f"| {s.bytes / 1e3:.1f} | {s.bytes * s.runs_a_day / 1e6:,.0f} |"
            for s in shares
        ),
    ]


@click.command()
@click.option("--tick", "ticks", multiple=True, type=float, default=(2, 5, 15, 60), show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(__file__).parent,
    help="Where the report goes.",
)
def main(ticks: tuple[float, ...], output: Path) -> None:
    """Print what is measured as it comes, and write a table."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-share-") as folder:
        clusters = Path(folder) / "clusters.yaml"
        _write(clusters, ticks[0])
        stack = Stack(Path(folder) / "stack", guarded=True, environment={"MUSTER_CLUSTERS": str(clusters)})
        try:
            stack.up()
            admin = AdminClient({"bootstrap.servers": stack.kafka.address})
            admin.create_topics([NewTopic("t-0", 12, 1)])["t-0"].result(60)
            place = Place(
                stack.zookeeper.address,
                stack.consul.ports["http"],
                stack.kafka.address,
                CLUSTER,
                f"muster-{CLUSTER}",
            )
            login = "admin", stack.airflow.passwords()["admin"]
            with Consumers(place) as consumers, AirflowApi(stack.airflow.url, *login) as api:
                consumers.tell("join 3")
                wait_for("the DAG", lambda: api.has_dag(DAG), 120)
                first = _stand(stack)
                time.sleep(20)  # what Airflow takes by itself in this time is measured
                second = _stand(stack)
                idle = (second.cpu - first.cpu) / (second.at - first.at)
                say(f"without a run: {idle:.3f} CPU s a second, database {second.bytes / 1e6:.1f} MB")
                api.set_paused(DAG, False)
                shares = []
                for tick in ticks:
                    shares.append(_measure(stack, api, clusters, tick, idle))
                    say(rows(shares)[-1])
        finally:
            stack.down()
    text = [
        "# Airflow's own share",
        "",
        "Written by `python -m benchmarks.airflow_share`: do not edit. A coordinator with nothing to do, on a real",
        "Airflow (SQLite, LocalExecutor, this checkout's `airflow.cfg`), at several ticks. `nobody listens` is the",
        "median from the end of one long poll to the beginning of the next. CPU is that of Airflow's processes and",
        f"of the tasks; `a run` is without what Airflow takes when no run is made, {idle:.2f} CPU seconds a second.",
        "Rows and kB are those that the database grows by, all tables together; log files are not in it.",
        "",
        f"{os.cpu_count()} cores, load {load:.1f} before the run.",
        ""
        if load < 1
        else "**The machine was not quiet: seconds and CPU are too high; rows and bytes are not.**",
        "",
        *rows(shares),
        "",
    ]
    (output / REPORT).write_text("\n".join(text), encoding="utf-8")
    one = shares[0]
    say(
        f"airflow-share: gap_s={one.gap:.2f} cpu_s_a_run={one.cpu_a_run:.2f} bytes_a_run={one.bytes:.0f} "
        f"idle_cpu={idle:.3f}"
    )


if __name__ == "__main__":
    main()
