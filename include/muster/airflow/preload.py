"""What Airflow's processes load before they fork others, for speed.

The scheduler (or a Celery worker) forks the process of each task, and the DAG processor one for each DAG file, again
and again. What they have loaded by then, none of these processes has to load; docs/airflow-share.md says what that
saves. Modules, and what the settings hold: what has connections or threads must not be there before a fork. A
change of these modules is seen when Airflow's processes start again, of the settings at once.

`airflow_local_settings.py`, in the folder `config` of AIRFLOW_HOME, is where Airflow finds it; docs/install.md has
the lines. They catch every exception, because Airflow does not start if that file cannot be imported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module

log = logging.getLogger(__name__)

_OF_TASKS = (
    # What Airflow itself otherwise imports in each task's process.
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.dagbag",
    "airflow.providers.common.io.assets.file",
    "airflow.providers.standard.operators.python",
    "airflow.sdk.execution_time.cache",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    # What httpx imports with its first question.
    "anyio._backends._asyncio",
    "httpcore",
    # What a coordinator's tasks do, and its DAG file.
    "muster.airflow.coordination",
    "muster.airflow.coordinator_dag",
    "muster.airflow.dags",
)
_OF_DAG_FILES = (
    # What Airflow itself otherwise imports for each file, to serialize its DAGs.
    "airflow.providers.common.io.assets.file",
    "airflow.providers.standard.operators.python",
    "airflow.providers.standard.operators.trigger_dagrun",
    "airflow.providers.standard.sensors.external_task",
    # What the files import.
    "muster.airflow.command_dags",
    "muster.airflow.consumers_dag",
    "muster.airflow.coordinator_dag",
    "muster.airflow.dags",
    "muster.airflow.pruning_dag",
    "muster.airflow.stuck_dag",
    "muster.core.assignors",
)


def preload(arguments: Sequence[str] | None = None) -> None:
    """Load what the component of Airflow with these command-line `arguments` (by default this process's) forks with.

    Never raises: what cannot be loaded is logged, and each process then loads it by itself, as without this call.
    """
    given = set(sys.argv if arguments is None else arguments)
    if {"scheduler", "celery"} & given:
        _load(_OF_TASKS)
        _read_settings()
    if "dag-processor" in given:
        _load(_OF_DAG_FILES)


def _load(modules: Sequence[str]) -> None:
    for module in modules:
        try:
            import_module(module)
        except Exception:
            log.exception("%s cannot be loaded beforehand; each process loads it by itself", module)


def _read_settings() -> None:
    try:
        clusters = import_module("muster.settings.clusters")
        clusters.load_clusters()
    except Exception as error:
        log.warning("the settings cannot be read beforehand, see muster_settings.py: %s", error)
