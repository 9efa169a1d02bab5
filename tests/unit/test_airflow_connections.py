"""The local stack's connection to Airflow itself, as a task finds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TASK = """
import sys
from airflow.sdk import BaseHook
before = set(sys.modules)
print(BaseHook.get_connection("muster_airflow").password, BaseHook.get_connection("other").host)
print(*sorted(name for name in set(sys.modules) - before if name.startswith("airflow.models")))
"""
"""What a worker has loaded before its tasks is not what is tested; what a connection takes on top is."""


def test_connections_come_from_files_and_variables_without_the_models_of_airflows_database(
    tmp_path: Path,
) -> None:
    (tmp_path / "muster_airflow.json").write_text(json.dumps({"conn_type": "http", "password": "pw"}))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "config"),
        "AIRFLOW_HOME": str(tmp_path),
        "_AIRFLOW_PROCESS_CONTEXT": "client",  # as in a task
        "AIRFLOW__SECRETS__BACKEND": "connection_files.ConnectionFiles",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"folder": str(tmp_path)}),
        "AIRFLOW_CONN_OTHER": json.dumps({"conn_type": "generic", "host": "there"}),
    }
    done = subprocess.run(
        [sys.executable, "-c", TASK], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == ["pw there", ""]
