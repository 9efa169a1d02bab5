"""An Airflow of a test: its database, made once for all tests of a process, and the tokens of its users.

To make a database takes ten seconds of a processor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import httpx

from devstack.airflow import ROOT, Airflow


def environment_of(home: Path) -> dict[str, str]:
    """Return what an Airflow in `home` needs that has only what the test's own processes run of it."""
    return {
        "AIRFLOW_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "false",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }


def make_database(home: Path) -> Path:
    """Make a database in `home`, and return its file."""
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    environment: Mapping[str, str] = os.environ | environment_of(home)
    subprocess.run(migrate, env=environment, check=True, capture_output=True, timeout=180)
    return home / "airflow.db"


def give_database(airflow: Airflow, database: Path) -> None:
    """Spare a local Airflow its migration, unless its database is a server's."""
    if airflow.backend.postgresql is None:
        airflow.data_dir.mkdir(parents=True)
        shutil.copyfile(database, airflow.data_dir / "airflow.db")
        airflow.backend.migrated.write_text(version("apache-airflow"), encoding="utf-8")


def tokens_of(airflow: Airflow) -> dict[str, str]:
    """Log all users in; a token by user."""
    tokens = {}
    for user, password in airflow.passwords().items():
        credentials = {"username": user, "password": password}
        answer = httpx.post(f"{airflow.url}/auth/token", json=credentials, timeout=60, trust_env=False)
        tokens[user] = answer.json()["access_token"]
    return tokens
