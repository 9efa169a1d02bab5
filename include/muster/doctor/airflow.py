"""Airflow: whether there are the pools that the settings name. Airflow schedules no task of a pool that is not there.

Airflow's own command line is asked, because pools are in its database: this takes a few seconds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from muster.doctor.findings import Check, Part
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connection_lookup import airflow_is_set_up

TIMEOUT = 60.0
"""Seconds for Airflow's command line to import Airflow and answer."""


def check_pools(part: Part, cluster: ClusterSettings) -> Iterator[Check]:
    """Check whether each pool that the cluster's tasks are to run in is there."""
    tasks = (cluster.airflow.coordinator, cluster.airflow.consumers)
    for pool in sorted({each.pool for each in tasks if each.pool}):
        if not airflow_is_set_up():
            yield part.skipped("pool", f"{pool}: no Airflow is set up here (AIRFLOW_HOME)")
            continue
        problem = _problem(pool)
        if not problem:
            yield part.ok("pool", f"{pool} is there")
        elif "does not exist" in problem:
            yield part.failed(
                "pool",
                f"there is no pool {pool!r} in Airflow, and tasks in it are never scheduled",
                f"create it under Admin > Pools (or: airflow pools set {pool} SLOTS DESCRIPTION), or correct "
                "'airflow' in the cluster's settings",
            )
        else:
            yield part.warning(
                "pool", f"whether there is a pool {pool!r} is unknown: {problem}", "see: airflow pools list"
            )


def _problem(pool: str) -> str:
    """Return what Airflow says if the pool cannot be shown, its last line; '' if it is there."""
    command = [sys.executable, "-m", "airflow", "pools", "get", pool, "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Airflow's command line did not answer ({type(error).__name__})"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1][
        :200
    ]
