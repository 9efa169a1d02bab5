"""What the DAG `muster_pruning` does: delete old runs of Muster's DAGs and their log files.

Runs go through Airflow's REST API, which takes task instances, XComs and notes with them, beside a live scheduler, on
any database. `airflow db clean` would not do: it cannot tell a rebalance from a tick, takes runs that are still under
way, and wants the database, which tasks do not have. Asset events stay: the API has no way to delete them.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from muster.airflow.rest import AirflowRest, FinishedRun
from muster.airflow.run_notes import OURS
from muster.settings.clusters import Clusters, RetentionSettings, SettingsError, load_clusters

log = logging.getLogger(__name__)

TAG = "muster"
"""The tag of all of Muster's DAGs."""
COORDINATORS = f"{OURS}coordinator__"
"""How the ids of coordinators begin, the only ones that have ticks."""
AT_ONCE = 2_000
"""Runs of a kind that one run of the DAG deletes; a coordinator makes some 180 an hour, or 1,800 when it fails."""
BUDGET = 300.0
"""Seconds that one run of the DAG deletes runs for; the next one goes on."""


def retention(clusters: Clusters) -> RetentionSettings:
    """What is to be kept. Raises `SettingsError` if the entry is wrong: then nothing is deleted."""
    if clusters.retention is None:
        raise SettingsError(f"{clusters.errors['retention']}; nothing is deleted until that is put right")
    return clusters.retention


def prune_runs(logs: Path, budget: float = BUDGET) -> dict[str, int]:
    """Delete runs that are older than they are to be kept, with their log files below `logs` on this machine.

    Returns how many of each DAG were deleted. Raises `RestError`.
    """
    kept = retention(load_clusters())
    now = time.time()
    deadline = now + budget
    deleted: dict[str, int] = {}
    with AirflowRest(kept.airflow) as airflow:
        for dag_id in sorted(airflow.dag_ids(TAG)):
            if not dag_id.startswith(OURS):
                continue
            count = 0
            for run in _old(airflow, dag_id, kept, now):
                if time.time() > deadline:
                    log.info("%g s are over; the next run goes on", budget)
                    return deleted | {dag_id: count}
                if airflow.delete_run(run):
                    count += 1
                    _delete_logs(logs, run)
            if count:
                deleted[dag_id] = count
    return deleted


def _old(airflow: AirflowRest, dag_id: str, kept: RetentionSettings, now: float) -> Iterable[FinishedRun]:
    """Runs to delete, at most `AT_ONCE` of each kind; each kind is listed before the first of it is deleted."""
    if dag_id.startswith(COORDINATORS):
        succeeded = airflow.finished(dag_id, now - min(kept.ticks, kept.rebalances), "success")
        yield from list(islice((run for run in succeeded if not run.note), AT_ONCE))
    yield from list(islice(airflow.finished(dag_id, now - kept.failures, "failed"), AT_ONCE))
    yield from list(islice(airflow.finished(dag_id, now - kept.rebalances, "success"), AT_ONCE))


def prune_logs(logs: Path) -> int:
    """Delete log folders of Muster's runs that nothing was written to for longer than anything is kept; say how many.

    `prune_runs` deletes the logs that it finds where it runs. These are the others: on other workers, or of runs that
    another process deleted.
    """
    oldest = time.time() - retention(load_clusters()).longest
    folders = [run for dag in logs.glob(f"dag_id={OURS}*") for run in dag.glob("run_id=*") if run.is_dir()]
    old = [folder for folder in folders if _last_written(folder) < oldest]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return len(old)


def _delete_logs(logs: Path, run: FinishedRun) -> None:
    folder = logs / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
    if folder.parent.parent == logs and folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)


def _last_written(folder: Path) -> float:
    return max((path.stat().st_mtime for path in [folder, *folder.rglob("*")] if path.exists()), default=0.0)
