"""Airflow's REST API as pruning calls it: with a bearer token, and over TLS with a CA of one's own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Header, HTTPException

from devstack.certificates import Authority
from muster.airflow.pruning import RestError, logged_in
from muster.consumer.http_server import HttpServer
from muster.settings.connections import StatusTls
from tests.conftest import Eventually
from tests.support.secured import connection

pytestmark = pytest.mark.airflow

ACCEPTED = "a-token-of-a-service"


def api() -> FastAPI:
    """What Airflow has of it: a login, and a list of DAGs for those with a token."""
    app = FastAPI()

    @app.post("/auth/token", status_code=201)
    def log_in(given: dict[str, str]) -> dict[str, str]:
        if given != {"username": "ann", "password": "pw"}:
            raise HTTPException(401, "wrong")
        return {"access_token": ACCEPTED}

    @app.get("/api/v2/dags")
    def dags(offset: int, authorization: str = Header("")) -> dict[str, list[dict[str, str]]]:
        if authorization != f"Bearer {ACCEPTED}":
            raise HTTPException(401, "no token")
        return {"dags": [] if offset else [{"dag_id": "muster_pruning"}]}

    return app


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("api-authority") / "ours")


@pytest.fixture(scope="module")
def port(authority: Authority, eventually: Eventually) -> Iterator[int]:
    tls = StatusTls(certfile=str(authority.issue("127.0.0.1")), ca=str(authority.ca))
    server = HttpServer("api", api(), "127.0.0.1", 0, tls)
    server.start()

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((server.host, server.port)) == 0

    eventually(listens, what="it answers")
    yield server.port
    server.stop()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, port: int, authority: Authority):
    def write(**fields: object) -> None:
        """Have the connection of `docs/security.md`, with other `fields`."""
        shown = connection("airflow-connection", HOST="127.0.0.1", TOKEN=ACCEPTED, CA=str(authority.ca))
        whole = shown | {"port": port} | fields
        monkeypatch.setenv("AIRFLOW_CONN_MUSTER_AIRFLOW", json.dumps(whole))

    return write


@pytest.mark.parametrize("user", [{}, {"login": "ann", "password": "pw"}])
def test_api_is_called_over_tls_with_a_token_or_a_login(given, user):
    given(**user)
    with logged_in("muster_airflow") as airflow:
        assert airflow.dag_ids("muster") == ["muster_pruning"]


def test_authority_that_is_not_known_is_refused(given, tmp_path: Path):
    for extra in ({}, {"ca": str(Authority(tmp_path / "strange").ca)}):
        given(password=ACCEPTED, extra=extra)
        with (
            logged_in("muster_airflow") as airflow,
            pytest.raises(RestError, match=r"CERTIFICATE_VERIFY_FAILED.*'ca'"),
        ):
            airflow.dag_ids("muster")
    given(password=ACCEPTED, extra={"ca": str(tmp_path / "none.pem")})
    with pytest.raises(RestError, match="cannot be loaded"), logged_in("muster_airflow"):
        pass


def test_token_that_is_not_valid_is_named_and_not_shown(given):
    old = "an-old-token"
    given(password=old)
    with logged_in("muster_airflow") as airflow, pytest.raises(RestError, match="401") as refused:
        airflow.dag_ids("muster")
    assert old not in str(refused.value)
    given(login="ann", password=old)
    with pytest.raises(RestError, match="login refused: 401"), logged_in("muster_airflow"):
        pass
