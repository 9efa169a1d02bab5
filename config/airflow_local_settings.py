"""What Airflow loads as it starts, from the folder `config` of its home.

The scheduler (or a Celery worker) forks the process of each task, and the DAG processor one for each DAG file, again
and again. What they have loaded by then, none of these processes has to load; docs/airflow-share.md says what that
saves. Modules, and what the settings hold: what has connections or threads must not be there before a fork. A
change of these modules is seen when Airflow's processes start again, of the settings at once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

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

if {"scheduler", "celery"} & set(sys.argv):
    for _module in _OF_TASKS:
        import_module(_module)
    _settings = import_module("muster.settings.clusters")
    with suppress(_settings.SettingsError):  # which its DAG file shows
        _settings.load_clusters()

if "dag-processor" in sys.argv:
    for _module in _OF_DAG_FILES:
        import_module(_module)
