"""Where the command line finds connections: as Airflow itself reads them, and in Airflow's database."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.settings.connection_lookup import CONNECTIONS, read_variable
from muster.settings.connection_parsing import ConnectionSettingsError
from tests.dags.conftest import connection
from tests.support.bare_shell import bare_shell

SECRET = "tell-nobody"  # noqa: S105
ROOT = Path(__file__).parents[2]

VALUES = [
    "generic://h:2181",
    "generic://h",
    "generic://a%3A1%2Cb%3A2%2Froot",
    "generic://me:p%40ss%2Fword@h:2181/some%2Fschema",
    "generic://:only-password@h",
    "http://h:8500?datacenter=dc1&verify=false&n=3",
    "http://h:8500/https?__extra__=%7B%22datacenter%22%3A%20%22dc1%22%7D",
    "http://[::1]:8500",
    connection(conn_type="generic", host="a:1,b:2/root"),
    connection(
        conn_type="http",
        host="h",
        port="8500",
        login="l",
        password="p",  # noqa: S106
        schema="https",
        extra={"verify": False},
    ),
    connection(conn_type="http", host="h", extra='{"verify": false}'),
    "  " + connection(host="h") + "  ",
]


@pytest.mark.parametrize("value", VALUES)
def test_a_variable_is_read_as_airflow_reads_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.secrets.environment_variables import EnvironmentVariablesBackend  # noqa: PLC0415

    monkeypatch.setenv("AIRFLOW_CONN_C", value.strip())
    theirs = EnvironmentVariablesBackend().get_connection("c")
    ours = read_variable("c", "AIRFLOW_CONN_C", value.strip())
    assert theirs is not None
    for field in ("host", "port", "login", "password", "schema"):
        assert (getattr(ours, field) or None) == (getattr(theirs, field) or None), field
    assert json.loads(ours.extra or "{}") == theirs.extra_dejson


def test_settings_come_from_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_Z", "generic://a%3A1%2Cb%3A2?operation_timeout=3")
    monkeypatch.setenv("AIRFLOW_CONN_K", connection(host="h", port=8501, password=SECRET))
    assert (CONNECTIONS.zookeeper("z").hosts, CONNECTIONS.zookeeper("z").operation_timeout) == ("a:1,b:2", 3)
    found = CONNECTIONS.consul("k")
    assert (found.host, found.port) == ("h", 8501)
    assert found.token is not None
    assert found.token.get_secret_value() == SECRET


@pytest.mark.parametrize(
    "value",
    [
        "{" + SECRET,
        "[]",
        SECRET,
        f"http://h:80/?a=http://{SECRET}",
        '{"port": "' + SECRET + '"}',
        '"' + SECRET + '"',
    ],
)
def test_malformed_connection_is_named_and_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_K", value)
    with pytest.raises(
        ConnectionSettingsError, match="environment variable AIRFLOW_CONN_K is no connection"
    ) as got:
        CONNECTIONS.consul("k")
    assert SECRET not in str(got.value)
    assert got.value.__cause__ is None


@pytest.mark.parametrize("extra", ["{" + SECRET, f'["{SECRET}"]'])
def test_an_extra_that_is_none_is_named_and_not_shown(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_K", connection(host="h", extra=extra))
    with pytest.raises(ConnectionSettingsError, match="key 'extra'") as got:
        CONNECTIONS.consul("k")
    assert SECRET not in str(got.value)


IN_THE_DATABASE = """
from airflow import settings
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.connection import Connection
import_all_models()
Base.metadata.create_all(settings.engine, tables=[Connection.__table__, Base.metadata.tables["team"]])
session = settings.Session()
session.add(Connection(conn_id="muster_zookeeper", uri="generic://127.0.0.1:9?operation_timeout=1"))
session.add(Connection(conn_id="muster_consul", uri="http://127.0.0.1:9"))
session.commit()
"""


@pytest.mark.airflow
def test_airflow_is_asked_where_no_variable_is_set(tmp_path: Path) -> None:
    env = bare_shell(
        AIRFLOW_HOME=str(tmp_path),
        MUSTER_CLUSTERS=str(ROOT / "clusters.d"),
        PYTHONPATH=str(ROOT / "include"),
    )

    def muster_plan(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "muster.cli", "plan", "--cluster", "flights"]
        return subprocess.run(
            command, env={**env, **more}, capture_output=True, text=True, timeout=120, check=False
        )

    subprocess.run([sys.executable, "-c", IN_THE_DATABASE], env=env, check=True, timeout=120)
    found = muster_plan()
    assert found.returncode == 3, found.stderr
    assert "Error: ZooKeeper at 127.0.0.1:9: no connection within 1 s" in found.stderr
    assert found.stdout == "", "nothing but the result goes there, whatever Airflow has to say"
    nowhere = muster_plan(AIRFLOW_HOME="", HOME=str(tmp_path / "nowhere"))
    assert nowhere.returncode == 2
    assert "there is no connection 'muster_zookeeper'" in nowhere.stderr
    assert not (tmp_path / "nowhere").exists()
