"""In a real Airflow API server, a user with rights to one cluster can neither look at another nor act on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from devstack import airflow as devstack_airflow
from devstack.airflow import ROOT, Airflow
from muster.commands.table import COMMANDS
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings
from tests.dags.conftest import connection
from tests.support.airflow_home import give_database, tokens_of
from tests.support.simulated_dashboard import OURS

pytestmark = pytest.mark.airflow

CLUSTERS = ("blue", "green")
KINDS = ("coordinator", "consumers", "isolate", "commands", "stuck")
"""What DAGs a cluster has."""
ROLES = {"admin": "admin", "blue": "user", "green": "user", "blue-looks": "user", "stranger": "user"}


@dataclass
class Server:
    url: str
    tokens: dict[str, str]

    def __call__(self, user: str, method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[user]}", **OURS}
        content = None if body is None else json.dumps(body)
        return httpx.request(
            method, f"{self.url}{path}", headers=headers, content=content, timeout=60, trust_env=False
        )

    def clusters(self, user: str) -> dict[str, bool]:
        """The clusters that the page lists, and whether it offers commands."""
        answer = self(user, "GET", "/muster/api/clusters")
        assert answer.status_code == 200, answer.text
        return {each["name"]: each["may_edit"] for each in answer.json()["clusters"]}

    def trigger(self, user: str, dag: str) -> int:
        """Trigger a DAG, with what the one of commands wants; return the status."""
        form = {"command": "pause", "reason": "a test"}
        path = f"/api/v2/dags/{dag}/dagRuns"
        return self(user, "POST", path, {"logical_date": None, "conf": form}).status_code


@pytest.fixture(scope="module")
def server(
    airflow_database: Path, tmp_path_factory: pytest.TempPathFactory, consul: ConsulSettings
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rights-airflow")
    entries = {
        name: {
            "consul_service": f"{name}-rights",
            "group_id": name,
            "topics": ["t"],
            "consumers": {"count": 1, "handler": "muster.handlers.nothing"},
        }
        for name in CLUSTERS
    }
    (folder / "teams.yaml").write_text(yaml.safe_dump({"clusters": entries}))
    environment = {
        "MUSTER_CLUSTERS": str(folder / "teams.yaml"),
        "PYTHONPATH": str(ROOT),  # where the auth manager is
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.dashboard.teams_auth_manager.TeamsAuthManager",
        "AIRFLOW_CONN_MUSTER_CONSUL": connection(conn_type="http", host=consul.host, port=consul.port),
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER": connection(
            conn_type="generic", host="127.0.0.1:9", extra={"operation_timeout": 0.2}
        ),
        "AIRFLOW_CONN_MUSTER_KAFKA": connection(
            conn_type="kafka", extra={"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 0.2}
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devstack_airflow, "USERS", ROLES)
        airflow = Airflow(folder / "airflow", extra_environment=environment, guarded=True)
        give_database(airflow, airflow_database)
        airflow.migrate()
        airflow.api.extra_environment = airflow.environment()  # of Airflow's other parts none is needed
    subprocess.run(
        [sys.executable, "-m", "airflow", "dags", "reserialize"],
        env=os.environ | airflow.api.extra_environment,
        check=True,
        timeout=180,
    )
    airflow.api.start()
    try:
        yield Server(airflow.url, tokens_of(airflow))
    finally:
        airflow.api.stop()


def paused(consul: ConsulSettings, cluster: str) -> str:
    """Name the person who paused the cluster; '' if it is not paused."""
    standing = ConsulCluster(consul, cluster, f"{cluster}-rights").overrides.read().paused
    return "" if standing is None else standing.by


def test_page_lists_the_clusters_of_the_user_and_offers_commands_by_right(server: Server) -> None:
    assert server.clusters("admin") == {"blue": True, "green": True}
    assert server.clusters("blue") == {"blue": True}
    assert server.clusters("blue-looks") == {"blue": False}
    assert server.clusters("stranger") == {}


@pytest.mark.parametrize("path", ["", "/topics", "/topics/t", "/consumers", "/consumers/c", "/timeline"])
def test_reading_another_cluster_is_forbidden(server: Server, path: str) -> None:
    for user in ("green", "stranger"):
        assert server(user, "GET", f"/muster/api/clusters/blue{path}").status_code == 403
    for user in ("blue", "blue-looks"):
        assert server(user, "GET", f"/muster/api/clusters/blue{path}").status_code != 403
    # A DAG that the user may read, named beside the cluster, changes nothing.
    disguised = f"/muster/api/clusters/blue{path}?dag_id=muster_coordinator__green"
    assert server("green", "GET", disguised).status_code == 403


def test_preview_for_another_cluster_is_forbidden(server: Server) -> None:
    assert server("green", "POST", "/muster/api/clusters/blue/what-if", {}).status_code == 403
    assert server("blue-looks", "POST", "/muster/api/clusters/blue/what-if", {}).status_code != 403


@pytest.mark.parametrize("command", [*COMMANDS, "apply"])
def test_command_to_another_cluster_is_forbidden(server: Server, command: str) -> None:
    for user in ("green", "blue-looks", "stranger"):
        path = f"/muster/api/clusters/blue/levers/{command}"
        answer = server(user, "POST", path, {"reason": "a test"})
        assert answer.status_code == 403, answer.text
    assert "create runs of its DAG muster_commands__blue" in answer.json()["detail"]


def test_command_through_the_api_works_for_the_own_cluster(server: Server, consul: ConsulSettings) -> None:
    levers = "/muster/api/clusters/blue/levers"
    assert server("blue", "POST", f"{levers}/pause", {"reason": "a test"}).status_code == 200
    assert (paused(consul, "blue"), paused(consul, "green")) == ("blue", "")
    assert server("green", "POST", f"{levers}/resume", {"reason": "a test"}).status_code == 403
    assert paused(consul, "blue") == "blue"
    assert server("blue", "POST", f"{levers}/resume", {"reason": "a test"}).status_code == 200
    assert paused(consul, "blue") == ""


def test_commands_dag_is_triggered_by_those_with_rights_to_its_cluster(server: Server) -> None:
    assert server.trigger("blue", "muster_commands__blue") == 200
    assert server.trigger("admin", "muster_commands__green") == 200


@pytest.mark.parametrize("dag", [*(f"muster_{kind}__blue" for kind in KINDS), "muster_pruning"])
def test_dag_of_another_cluster_is_not_triggered(server: Server, dag: str) -> None:
    for user in ("green", "blue-looks", "stranger"):
        assert server.trigger(user, dag) == 403


def test_question_about_another_cluster_is_not_answered(server: Server) -> None:
    path = "/api/v2/dags/muster_stuck__blue/dagRuns/r/taskInstances/ask/0/hitlDetails"
    for user, status in {"green": 403, "blue-looks": 403, "stranger": 403, "blue": 404}.items():
        answer = server(user, "PATCH", path, {"chosen_options": ["Wait"]})
        assert answer.status_code == status, (user, answer.text)


def test_run_of_a_commands_dag_cannot_name_another_cluster(server: Server) -> None:
    details = server("admin", "GET", "/api/v2/dags/muster_commands__blue/details").json()
    assert "cluster" not in details["params"]
    assert {"command", "reason", "consumer"} <= details["params"].keys()


def test_dags_are_of_one_cluster_each_and_seen_by_those_with_rights_to_it(server: Server) -> None:
    found = server("admin", "GET", "/api/v2/dags?limit=100").json()["dags"]
    of_clusters = {f"muster_{kind}__{name}" for kind in KINDS for name in CLUSTERS}
    assert {dag["dag_id"] for dag in found} == of_clusters | {"muster_pruning"}
    for dag in of_clusters:
        answer = server("blue", "GET", f"/api/v2/dags/{dag}")
        assert answer.status_code == (200 if dag.endswith("__blue") else 403)
