"""What a local Airflow runs on, by the environment and by what it was made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from devstack.airflow_backend import DATABASE, EXECUTOR, Backend
from devstack.errors import DevstackError


@pytest.mark.parametrize(
    ("said", "servers"),
    [
        ({}, []),
        ({DATABASE: "sqlite", EXECUTOR: "local"}, []),
        ({DATABASE: "postgresql"}, ["postgresql"]),
        ({EXECUTOR: "celery"}, ["postgresql", "redis"]),
        ({DATABASE: "postgresql", EXECUTOR: "celery"}, ["postgresql", "redis"]),
    ],
)
def test_the_environment_chooses_and_an_airflow_keeps_what_it_was_made_with(
    said: dict[str, str], servers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (DATABASE, EXECUTOR):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in said.items():
        monkeypatch.setenv(variable, value)
    first = Backend(tmp_path)
    assert list(first.servers()) == servers
    for server in first.servers().values():
        server.data_dir.mkdir()

    for variable in (DATABASE, EXECUTOR):
        monkeypatch.delenv(variable, raising=False)
    assert Backend(tmp_path).environment() == first.environment()


def test_no_password_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTOR, "celery")
    environment = Backend(tmp_path).environment()
    addresses = {
        key: value
        for key, value in environment.items()
        if key.endswith(("CONN_CMD", "URL_CMD", "BACKEND_CMD"))
    }
    assert len(addresses) == 3
    assert all(value.startswith("cat ") for value in addresses.values())
    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" not in environment, "it would win over the file"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({EXECUTOR: "celery", DATABASE: "sqlite"}, "celery does not go with .*sqlite; leave the latter out"),
        ({DATABASE: "mysql"}, "MUSTER_DEVSTACK_DATABASE is 'mysql'; it can be sqlite or postgresql"),
    ],
)
def test_unsupported_backend_is_refused(
    said: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in said.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(DevstackError, match=why):
        Backend(tmp_path)
