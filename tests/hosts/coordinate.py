"""The coordinator of one cluster without Airflow: `python -m tests.hosts.coordinate CLUSTER`.

It does what the DAG's four tasks do, run after run, and prints a line of JSON a run that had something to do, to say,
or failed. As with a task in Airflow, whatever a run fails with fails that run, and the next one begins with new
connections. It prunes the history after each run that has written something. Between two runs it says how much it
holds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.opening import open_coordinator
from muster.settings.cluster_settings import ClusterSettings, RetentionSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, StatusPageSettings, ZooKeeperSettings
from tests.week.looks import Answers

VARIABLE = "MUSTER_TEST_CONNECTIONS"
"""Environment variable with the settings of `zookeeper`, `consul`, `kafka` and `status`, as JSON."""
PAUSE = 0.5
"""Seconds between two runs."""


def _say(**told: object) -> None:
    print(json.dumps({"at": time.time(), **told}, default=str), flush=True)


def _run(coordinator: Coordinator, cluster: ClusterSettings, kept: RetentionSettings) -> None:
    partitions = coordinator.fetch_partitions()
    if trouble := [*partitions.errors.values(), *filter(None, [partitions.kafka_error])]:
        _say(failed=trouble)
    plan = coordinator.compute_assignment(cluster.long_poll_timeout)
    if plan.stuck or plan.held or plan.assignor:
        _say(stuck=plan.stuck, held=plan.held, assignor=plan.assignor)
    if plan.trouble:
        _say(failed=plan.trouble)
    if plan.needed:
        report = coordinator.advance(cluster.advance_budget)
        _say(changes=[str(change) for change in report.changes], stuck=report.stuck, errors=report.errors)
        coordinator.store.prune_history(
            keep_seconds=kept.history,
            keep_entries=kept.history_entries,
            keep_bytes=kept.history_megabytes * 2**20,
        )


def main() -> None:
    """Coordinate until killed."""
    given = json.loads(os.environ[VARIABLE])
    clusters = load_clusters(Path(os.environ["MUSTER_CLUSTERS"]))
    cluster, kept = clusters[sys.argv[1]], clusters.retention or RetentionSettings()
    looks = Answers(f"coordinator-{cluster.name}")
    while True:
        try:
            with open_coordinator(
                cluster,
                ZooKeeperSettings(**given["zookeeper"]),
                ConsulSettings(**given["consul"]),
                KafkaSettings(**given["kafka"]),
                StatusPageSettings(**given.get("status", {})),
                by="test",
            ) as coordinator:
                _run(coordinator, cluster, kept)
        except Exception as error:
            _say(failed=[f"{type(error).__name__}: {error}"])
        looks.answer()
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
