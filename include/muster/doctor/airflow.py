"""Airflow: whether there are the pools that the settings name, and room for all consumers.

Airflow itself is asked, in a process of its own: this takes a few seconds. It schedules no task of a pool that is not
there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from muster.doctor.findings import Check, Part
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters
from muster.settings.connection_lookup import airflow_is_set_up

TIMEOUT = 60.0
"""Seconds for Airflow's command line to import Airflow and answer."""

LEAST_SLOTS = 8
"""Of `[core] parallelism`: what the DAGs need at the same time where coordinators wait in the triggerer
(docs/production.md)."""


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


def check_room(part: Part, clusters: Clusters) -> Iterator[Check]:
    """Check whether Airflow, if there is one, has room for the consumers of all clusters and for coordinators."""
    if not airflow_is_set_up():
        return
    consumers = sum(each.consumers.count for each in clusters.clusters.values())
    asked = [("triggerer", "capacity", consumers), ("core", "parallelism", LEAST_SLOTS)]
    figures = ", ".join(f"conf.getint({section!r}, {key!r})" for section, key, _ in asked)
    command = [sys.executable, "-c", f"from airflow.configuration import conf; print({figures})"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)  # noqa: S603
        found = list(map(int, done.stdout.splitlines()[-1].split()))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        why = f"Airflow's configuration cannot be read ({type(error).__name__})"
        yield part.warning("room", why, "see: airflow config get-value triggerer capacity")
        return
    for (section, key, least), there in zip(asked, found, strict=True):
        name = f"[{section}] {key}"
        if there < least:
            yield part.failed(
                name, f"{there}, and {least} is the least", f"set it to {least} or more in airflow.cfg"
            )
        elif section == "core" and there < clusters.slots:
            yield part.warning(
                name,
                f"{there}, so coordinators wait in the triggerer and act about a second later",
                f"set it to {clusters.slots} or more in airflow.cfg if that is too late",
            )
        else:
            yield part.ok(name, f"{there}, and {least} is the least")


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
