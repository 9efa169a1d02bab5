"""Where the time of a failover goes in Muster: from Consul, Airflow's runs, ZooKeeper's history and drivers' logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.failover_figures import Event, Name
from benchmarks.harness.coordination import first_write, seconds_between
from muster.airflow.submission import Submission

if TYPE_CHECKING:
    from benchmarks.failover_muster import Muster

STEPS = (
    "detection (Consul)",
    "until compute_assignment listens",
    "planning (compute_assignment)",
    "Airflow starts advance_state",
    "writing (advance_state, ZooKeeper)",
    "closed where it was, and heard of by the new owner",
    "first batch at the new owner",
)
REPLACEMENT_STEPS = (
    "Airflow notices, and starts spark-submit",
    "spark-submit's JVM, until it starts Python",
    "Python, until its first line in the log",
    "Spark's session",
    "the query's first batch",
    "registration, until Consul has it live",
    "the coordinator, until ZooKeeper has its share",
    "hand-over, until all of its share flows",
)
_STARTUP = ("muster ", "Spark is up", "the query is up")
"""How the lines of a driver's log begin with which the steps from Python to the first batch end."""
_HEARD = re.compile(r"^(\S+ \S+) INFO muster\.consumer\.agent: topic .*: epoch (\d+): ", re.MULTILINE)


def breakdown(muster: Muster, event: Event, consumer: str) -> dict[str, float]:
    """Map `STEPS` to seconds, of an event that took something from `consumer` or gave it something.

    Empty where a part is not to be found: what is not measured is not guessed.
    """
    found = muster.seen(consumer, event.began, live=False) if event.name != Name.JOIN else event.began
    written = first_write(muster.store, event.began)
    if found is None or written is None or event.flows is None:
        return {}
    record, run = written
    tasks = {
        task["task_id"]: task
        for task in muster.api.task_instances(f"muster_coordinator__{muster.cluster.name}", run)
    }
    moments = [
        event.began,
        found,
        max(found, _moment(tasks["compute_assignment"]["start_date"])),
        _moment(tasks["compute_assignment"]["end_date"]),
        _moment(tasks["advance_state"]["start_date"]),
        record.written,
        _heard(muster, record.written, event.began + event.flows),
        event.began + event.flows,
    ]
    return seconds_between(STEPS, moments)


def replacement(muster: Muster, killed: Event, joined: Event, number: int) -> dict[str, float]:
    """Map `REPLACEMENT_STEPS` to seconds, from the kill of consumer `number` until its replacement has its share.

    Empty where a part is not to be found.
    """
    submission = Submission.from_dict(muster.discovery.jobs.submission(muster.consumer(number)))
    if submission is None or not joined.parts or joined.flows is None:
        return {}
    lines = Path(submission.log).read_text(encoding="utf-8", errors="replace").splitlines()
    logged = [
        next((_logged(line[:23]) for line in lines if f"main: {text}" in line), None) for text in _STARTUP
    ]
    if None in logged:
        return {}
    written = joined.began + sum(joined.parts[step] for step in STEPS[:5])
    moments = [
        killed.began,
        submission.started,
        psutil.Process(muster.pid(number)).create_time(),
        *(moment for moment in logged if moment is not None),
        joined.began,
        written,
        joined.began + joined.flows,
    ]
    return seconds_between(REPLACEMENT_STEPS, moments)


def _heard(muster: Muster, written: float, until: float) -> float:
    """Tell when the last of the consumers that were given something by `until` heard of it, by their logs."""
    heard = written
    for log in (muster.stack.airflow.data_dir / "logs" / "muster" / muster.cluster.name).glob("*/*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        of_log = [at for line in _HEARD.finditer(text) if written <= (at := _logged(line[1])) <= until]
        heard = max([heard, *of_log])
    return heard


def _logged(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


def _moment(text: str | None) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else float("nan")
