"""Runs of a DAG with `dag.test()` in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


HERE = Path(__file__).parent


class Run:
    """What came of one DAG run: `state`, `note`, `tasks`, `xcoms`, `events` and the whole `log`."""

    def __init__(self, code: int, log: str) -> None:
        self.log = log
        assert code == 0, log
        found = json.loads(next(line for line in reversed(log.splitlines()) if line.startswith("{")))
        self.state: str = found["state"]
        self.note: str | None = found["note"]
        self.tasks: dict[str, str] = found["tasks"]
        self.xcoms: dict[str, Any] = found["xcoms"]
        self.events: list[tuple[str, dict[str, Any]]] = found["events"]


@pytest.fixture(scope="module")
def airflow_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("airflow")
    environment = {
        "AIRFLOW_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        timeout=180,
    )
    return environment
