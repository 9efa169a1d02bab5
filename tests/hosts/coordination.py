"""What coordinates the clusters on the first host: Airflow, or in the short form a process a cluster.

What they say to people is read from their logs, as lines with a time: a person reads the same.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from devstack.airflow import ROOT, Airflow
from devstack.airflow_api import AirflowApi, wait_for
from devstack.place import Place
from devstack.process import ServerProcess


class Coordination(ABC):
    """Coordinates clusters, until killed and again when started."""

    @abstractmethod
    def prepare(self) -> None:
        """Do what can be done before the servers are up."""

    @abstractmethod
    def start(self, cluster: str) -> None:
        """Have `cluster` coordinated from now on."""

    @abstractmethod
    def kill(self, cluster: str) -> None:
        """SIGKILL what coordinates `cluster`."""

    @abstractmethod
    def said(self, cluster: str, since: float) -> Iterator[str]:
        """What was said about `cluster` since then (seconds since the epoch), in any order."""


class Loops(Coordination):
    """`spawn(cluster)` starts the process that coordinates a cluster, with its output in `log(cluster)`."""

    def __init__(self, spawn: Callable[[str], ServerProcess], log: Callable[[str], Path]) -> None:
        self._spawn = spawn
        self._log = log
        self._running: dict[str, ServerProcess] = {}

    def prepare(self) -> None:
        """There is nothing to do."""

    def start(self, cluster: str) -> None:
        """Start its process."""
        self._running[cluster] = self._spawn(cluster)

    def kill(self, cluster: str) -> None:
        """Kill its process."""
        self._running[cluster].kill()

    def said(self, cluster: str, since: float) -> Iterator[str]:
        """What its processes printed."""
        for line in self._log(cluster).read_text(encoding="utf-8").splitlines():
            if line.startswith('{"at"') and json.loads(line)["at"] >= since:
                yield line


class AirflowCoordination(Coordination):
    """A real Airflow below `folder`, with its coordinator DAGs; `connections` are those of loops."""

    def __init__(
        self,
        folder: Path,
        place: Place,
        connections: Mapping[str, Any],
        clusters: Path,
        mark: Mapping[str, str],
    ) -> None:
        self._airflow = Airflow(
            folder,
            guarded=True,
            place=place,
            extra_environment={
                **mark,
                "MUSTER_CLUSTERS": str(clusters),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "12",
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
                # The DAG files stay as they are; reading them again takes seconds of a processor.
                "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
                **environment_of(connections),
            },
        )
        self._logs = folder / "logs"
        self._started: set[str] = set()

    def prepare(self) -> None:
        """Make its database."""
        self._airflow.migrate()

    def start(self, cluster: str) -> None:
        """Start what does not run of Airflow, and have the DAG run."""
        self._airflow.start()
        if cluster in self._started:
            return
        dag = f"muster_coordinator__{cluster}"
        with AirflowApi(self._airflow.url, "admin", self._airflow.passwords()["admin"]) as api:
            wait_for(f"DAG {dag} is parsed", lambda: api.has_dag(dag), 120)
            api.set_paused(dag, False)
        self._started.add(cluster)

    def kill(self, cluster: str) -> None:
        """Kill the scheduler, with the tasks that it runs."""
        self._airflow.scheduler.kill()

    def said(self, cluster: str, since: float) -> Iterator[str]:
        """What the tasks of its DAG logged."""
        for file in self._logs.glob(f"dag_id=muster_coordinator__{cluster}/**/*.log"):
            if file.stat().st_mtime < since:
                continue
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    at = datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
                except (ValueError, KeyError, TypeError):
                    continue  # what a process printed past its logger, or has not written to its end
                if at >= since:
                    yield line


def environment_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return these connections as Airflow reads them from its environment."""
    zookeeper, consul, kafka = given["zookeeper"], given["consul"], given["kafka"]
    timeouts = {key: zookeeper[key] for key in ("session_timeout", "operation_timeout")}
    connections = {
        "KAFKA": {"conn_type": "kafka", "extra": kafka["config"]},
        "ZOOKEEPER": {"conn_type": "generic", "host": zookeeper["hosts"], "extra": timeouts},
        "CONSUL": {
            "conn_type": "http",
            "host": consul["host"],
            "port": consul["port"],
            "schema": "http",
            "extra": {"timeout": consul["timeout"]},
        },
    }
    return {f"AIRFLOW_CONN_MUSTER_{name}": json.dumps(value) for name, value in connections.items()}
