"""Requests that another site had a browser send are refused, whatever they try."""

from __future__ import annotations

import pytest

from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import OURS, Dashboard

ISOLATE = "/api/clusters/c/levers/isolate"
FULL = {**OURS, "X-User": "admin"}
WANTED = '{"consumer": "nobody", "reason": "r"}'


@pytest.fixture
def dashboard() -> Dashboard:
    return Dashboard(SimulatedCluster())


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": None}, 415),
        ({"X-Muster-Request": None}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://testserver.evil.example"}, 403),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
@pytest.mark.parametrize("path", [ISOLATE, "/api/clusters/c/what-if"])
def test_requests_from_elsewhere(
    dashboard: Dashboard, changed: dict[str, str | None], status: int, path: str
) -> None:
    headers = {key: value for key, value in {**FULL, **changed}.items() if value is not None}
    answer = dashboard.http.post(path, content=WANTED, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "more",
    [
        {},  # a program with a token, which no browser's page could make it send
        {"Origin": "http://testserver"},
        {"Sec-Fetch-Site": "same-origin"},
        # A proxy that gives another Host: the browser's word counts.
        {"Origin": "https://airflow.example", "Sec-Fetch-Site": "same-origin"},
        {"Content-Type": "application/json; charset=utf-8"},
    ],
)
def test_requests_from_the_page_itself(dashboard: Dashboard, more: dict[str, str]) -> None:
    answer = dashboard.http.post("/api/clusters/c/what-if", content="{}", headers={**FULL, **more})
    assert answer.status_code == 200, answer.text


def test_the_pages_files_are_kept_and_asked_for_again(tmp_path, dashboard: Dashboard) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "app.js").write_text("1;")
    (tmp_path.parent / "secret.txt").write_text("secret")
    dashboard = Dashboard(SimulatedCluster(), static=str(tmp_path))
    user = {"X-User": "viewer"}
    page = dashboard.http.get("/", headers=user)
    assert (page.status_code, page.text) == (200, "<!doctype html>")
    assert page.headers["content-type"].startswith("text/html")
    script = dashboard.http.get("/static/app.js", headers=user)
    assert script.headers["cache-control"] == "private, no-cache"
    assert "javascript" in script.headers["content-type"]
    again = dashboard.http.get("/static/app.js", headers={**user, "If-None-Match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/", "/static/app.js"):
        assert dashboard.http.get(path).status_code == 401
    for path in ("/static/../secret.txt", "/static/%2e%2e/secret.txt", "/static/..%2fsecret.txt", "/static/"):
        assert dashboard.http.get(path, headers=user).status_code == 404, path
