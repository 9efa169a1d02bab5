"""The dashboard in a real Airflow API server: no route is open, viewers look, admins command, other sites do not.

Consul is real, so that a command given over HTTP can be seen to have the user's name; ZooKeeper and Kafka are out of
reach, so that reading is seen to answer without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from fastapi.routing import APIRoute

from devstack.airflow import Airflow
from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings
from tests.dags.conftest import connection
from tests.support.airflow_home import give_database, tokens_of
from tests.support.simulated_dashboard import OURS, by_header

pytestmark = pytest.mark.airflow

CLUSTER = "permitted"
RECORD: dict[str, object] = {"topic": "t", "partition": "0", "offset": "0"}
BODIES: dict[str, dict[str, object]] = {
    "isolate": {"consumer": "nobody"},
    "restore": {"consumer": "nobody"},
    "drain": {"consumer": "nobody"},
    "undrain": {"consumer": "nobody"},
    "pin": {"topic": "t", "partitions": "0", "consumer": "nobody"},
    "unpin": {"topic": "t", "partitions": "0"},
    "exclude": {"consumer": "nobody", "topic": "t"},
    "include": {"consumer": "nobody", "topic": "t"},
    **{f"{name}-record": RECORD for name in ("retry", "skip", "dead-letter")},
    **{f"{name}-record/foresee": RECORD for name in ("retry", "skip", "dead-letter")},
    "subscribe": {"topic": "(", "pattern": True},
    "unsubscribe": {"topic": "(", "pattern": True},
    "pause-consumption": {"topic": "nothing of the kind"},
    "resume-consumption": {"topic": "nothing of the kind"},
    "seek": {"to": "nowhere"},
    "seek/foresee": {"to": "nowhere"},
    "import-offsets": {"group": "g"},
    "import-offsets/foresee": {"checkpoint": "/"},
    "cancel-seek": {"topic": "nothing of the kind"},
    "standing-answer": {"topic": "nothing of the kind", "error": "E", "answer": "skip"},
    "standing-answer/foresee": {"topic": "nothing of the kind", "error": "E", "answer": "skip"},
    "end-standing-answer": {"topic": "nothing of the kind", "error": "E"},
    "replay-deadletters": {"topic": "nothing of the kind"},
    "assignor": {"assignor": {"name": "nothing of the kind"}},
    "apply": {"what_if": {}, "plan": "p", "way": "pins"},
}
"""Requests that are understood and change nothing."""
AT_ONCE = 6
"""Routes that are asked at the same time."""
HARMLESS = {"pause", "resume", "rebalance"}
"""Commands that always do something where they can; what an admin gets is tested with the commands."""


@dataclass
class Server:
    url: str
    tokens: dict[str, str]

    def __call__(
        self,
        user: str | None,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: object = None,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if user is not None:
            sent["Authorization"] = f"Bearer {self.tokens[user]}"
        content = None if body is None else json.dumps(body)
        return httpx.request(
            method, f"{self.url}/muster{path}", headers=sent, content=content, timeout=60, trust_env=False
        )

    def as_browser(self, headers: dict[str, str], content: str, command: str = "isolate") -> httpx.Response:
        """The admin's browser, which sends the cookie along with whatever a page makes it send."""
        return httpx.post(
            f"{self.url}/muster/api/clusters/{CLUSTER}/levers/{command}",
            headers={"Cookie": f"_token={self.tokens['admin']}", **headers},
            content=content,
            timeout=60,
            trust_env=False,
        )


@pytest.fixture(scope="module")
def server(
    airflow_database: Path, tmp_path_factory: pytest.TempPathFactory, consul: ConsulSettings
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("dashboard-airflow")
    clusters = folder / "clusters.yaml"
    entry = {
        "consul_service": f"{CLUSTER}-service",
        "group_id": "g",
        "topics": ["t"],
        "consumers": {"count": 1, "handler": "muster.handlers.nothing"},
    }
    clusters.write_text(yaml.safe_dump({"clusters": {CLUSTER: entry}}))
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 0.2}
    environment = {
        "MUSTER_CLUSTERS": str(clusters),
        "AIRFLOW_CONN_MUSTER_CONSUL": connection(conn_type="http", host=consul.host, port=consul.port),
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER": connection(
            conn_type="generic", host="127.0.0.1:9", extra={"operation_timeout": 0.2}
        ),
        "AIRFLOW_CONN_MUSTER_KAFKA": connection(conn_type="kafka", extra=nowhere),
    }
    airflow = Airflow(folder / "airflow", extra_environment=environment, guarded=True)
    give_database(airflow, airflow_database)
    airflow.migrate()
    airflow.api.extra_environment = airflow.environment()  # no other part of Airflow is needed
    airflow.api.start()
    try:
        yield Server(airflow.url, tokens_of(airflow))
    finally:
        airflow.api.stop()


def routes(folder: Path) -> list[tuple[str, str]]:
    """Every method and path of the application, filled in."""
    app = create_app(Answers(), by_header(), str(folder))
    found = []
    for route in app.routes:
        # What is no APIRoute has no dependencies, and so could not ask for anything.
        assert isinstance(route, APIRoute), f"{route} asks for no permission"
        path = route.path_format.format(
            cluster=CLUSTER, topic="t", consumer=f"{CLUSTER}-1", dag_id="d", path="index.html"
        )
        found += [(method, path) for method in sorted(route.methods)]
    return found


def test_no_route_is_open_viewers_look_and_admins_give_commands(server: Server, tmp_path: Path) -> None:
    found = routes(tmp_path)
    assert len(found) > 20

    def asked(route: tuple[str, str]) -> None:
        method, path = route
        command = path.rpartition("/levers/")[2] if "/levers/" in path else None
        body = None if method == "GET" else {"reason": "a test", **BODIES.get(command or "", {})}
        if path.endswith("/what-if"):
            body = {}
        headers = {} if method == "GET" else OURS
        assert server(None, method, path, headers, body).status_code == 401, path
        assert (
            server(None, method, path, {**headers, "Authorization": "Bearer x"}, body).status_code == 403
        ), path
        by_viewer = server("viewer", method, path, headers, body)
        if command is not None:
            assert by_viewer.status_code == 403, path
            if command not in HARMLESS:
                # Allowed, and then refused by the command itself, or by a server that is out of reach.
                assert server("admin", method, path, headers, body).status_code in {409, 503}, path
        else:
            # 404: of a topic that nobody could read yet, and of the page where it is not installed.
            assert by_viewer.status_code in {200, 307, 404, 503}, (path, by_viewer.text)
            by_admin = server("admin", method, path, headers, body)
            assert by_admin.status_code == by_viewer.status_code, path

    # Several at once: most wait for servers that are out of reach.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert len(list(pool.map(asked, found))) == len(found)


def test_server_has_no_other_routes(server: Server) -> None:
    for path in ("/docs", "/redoc", "/openapi.json", "/api", "/static", "/../muster/docs"):
        assert server(None, "GET", path).status_code in {401, 404}, path


def test_reading_answers_with_servers_out_of_reach(server: Server) -> None:
    answer = server("viewer", "GET", f"/api/clusters/{CLUSTER}")
    assert answer.status_code == 200
    summary = answer.json()["summary"]
    assert (summary["health"], summary["may_edit"], summary["state"]) == ("critical", False, "Unknown")
    sources = {source["source"]: source for source in summary["freshness"]["sources"]}
    assert not sources["zookeeper"]["reachable"]
    assert "127.0.0.1:9" in sources["zookeeper"]["error"]
    assert sources["zookeeper"]["unreachable_since"] > 0
    assert sources["consul"]["reachable"]
    assert server("admin", "GET", f"/api/clusters/{CLUSTER}").json()["summary"]["may_edit"] is True
    assert server("viewer", "GET", "/api/clusters").json()["user"] == "viewer"


def test_another_sites_page_gives_no_command_with_the_users_cookie(server: Server) -> None:
    wanted = json.dumps({"consumer": f"{CLUSTER}-1", "reason": "from elsewhere"})
    ours = {**OURS, "Sec-Fetch-Site": "same-origin", "Origin": server.url}
    elsewhere = "http://evil.example"
    form = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": elsewhere,
        "Sec-Fetch-Site": "cross-site",
    }
    assert server.as_browser(form, "consumer=c&reason=r").status_code == 415
    # The content of a form that is JSON, as `enctype="text/plain"` can make it.
    assert server.as_browser({**form, "Content-Type": "text/plain"}, wanted).status_code == 415
    assert (
        server.as_browser({k: v for k, v in ours.items() if k != "X-Muster-Request"}, wanted).status_code
        == 403
    )
    assert server.as_browser({**ours, "Sec-Fetch-Site": "cross-site"}, wanted).status_code == 403
    assert server.as_browser({**ours, "Sec-Fetch-Site": "same-site"}, wanted).status_code == 403
    assert server.as_browser({**OURS, "Origin": elsewhere}, wanted).status_code == 403
    assert server.as_browser({**OURS, "Origin": "null"}, wanted).status_code == 403
    # And leave that a script of another site might ask for is not given.
    leave = httpx.options(
        f"{server.url}/muster/api/clusters/{CLUSTER}/levers/isolate",
        headers={"Origin": elsewhere, "Access-Control-Request-Method": "POST"},
        trust_env=False,
    )
    assert "access-control-allow-origin" not in leave.headers


def test_a_command_is_given_in_the_name_of_the_user(server: Server, consul: ConsulSettings) -> None:
    discovery = ConsulCluster(consul, CLUSTER, f"{CLUSTER}-service")
    assert discovery.overrides.isolated() == {}
    ours = {**OURS, "Sec-Fetch-Site": "same-origin", "Origin": server.url}
    wanted = json.dumps({"consumer": f"{CLUSTER}-1", "reason": "it is slow"})
    answer = server.as_browser(ours, wanted)
    assert answer.status_code == 200, answer.text
    assert (
        answer.json()["lines"][0]
        == f"consumer {CLUSTER}-1 of cluster {CLUSTER} is isolated: it is slow (by admin)"
    )
    entry = discovery.overrides.isolated()[f"{CLUSTER}-1"]
    assert (entry.by, entry.why) == ("admin", "it is slow")
    again = server.as_browser(ours, wanted)
    assert again.status_code == 409
    assert "is isolated already by admin: it is slow" in again.json()["detail"]
    assert server.as_browser(ours, json.dumps({"consumer": f"{CLUSTER}-1", "reason": " "})).status_code == 422
    assert server.as_browser(ours, wanted, "restore").status_code == 200
    assert discovery.overrides.isolated() == {}


def test_airflow_shows_the_dashboard_in_its_navigation_and_on_dag_pages(server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.tokens['viewer']}"}
    found = httpx.get(f"{server.url}/api/v2/plugins", headers=headers, timeout=60, trust_env=False).json()
    plugin = next(plugin for plugin in found["plugins"] if plugin["name"] == "muster")
    assert [(view["destination"], view["url_route"], view["href"]) for view in plugin["external_views"]] == [
        ("nav", "muster", "muster/"),
        ("dag", "muster-of-dag", "muster/of-dag/{DAG_ID}"),
    ]
    errors = httpx.get(
        f"{server.url}/api/v2/plugins/importErrors", headers=headers, trust_env=False, timeout=60
    )
    assert errors.json()["total_entries"] == 0
    for kind in ("coordinator", "consumers", "commands", "stuck"):
        led = server("viewer", "GET", f"/of-dag/muster_{kind}__{CLUSTER}")
        assert (led.status_code, led.headers["location"]) == (307, f"../#/clusters/{CLUSTER}")
    assert server("viewer", "GET", "/of-dag/another").headers["location"] == "../"


def test_browsers_are_restricted_to_the_pages_own_files(server: Server) -> None:
    for user in ("viewer", None):
        headers = server(user, "GET", "/api/clusters").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff"
