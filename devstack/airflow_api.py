"""The few calls of Airflow's public REST API (v2) that the demo and the end-to-end tests make, as a person would
make them by clicking."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx


class AirflowApiError(RuntimeError):
    """Airflow did not do what was asked; the message has its answer."""


class AirflowAwayError(AirflowApiError):
    """Airflow's API server did not answer in time."""


class AirflowApi:
    """A logged-in user of one Airflow. `base_url` without a trailing slash; a context manager."""

    def __init__(self, base_url: str, username: str, password: str, timeout: float = 30.0) -> None:
        self._client = httpx.Client(base_url=base_url, timeout=timeout)
        self._username = username
        self._password = password
        self._login()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._client.close()

    def _login(self) -> None:
        answer = self._client.post(
            "/auth/token", json={"username": self._username, "password": self._password}
        )
        if answer.status_code != httpx.codes.CREATED:
            raise AirflowApiError(
                f"login as {self._username} refused: {answer.status_code} {answer.text[:200]}"
            )
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def request(self, method: str, path: str, **arguments: Any) -> Any:
        """Call `/api/v2` + `path` and return the JSON answer. Raises `AirflowApiError` with Airflow's words.

        An expired token is renewed once. For 30 s it asks again where a person would click again: while the API
        server restarts, and when SQLite was locked. Airflow writes its audit log from the event loop that
        a request which holds the lock needs to commit, so on SQLite such a click can end in "Database error".
        """
        deadline = time.monotonic() + 30
        renewed = False
        while True:
            try:
                answer = self._client.request(method, f"/api/v2{path}", **arguments)
            except httpx.TransportError as error:
                if time.monotonic() > deadline:
                    raise AirflowAwayError(f"{method} {path}: {error!r}") from error
                time.sleep(0.5)
                continue
            if answer.status_code == httpx.codes.UNAUTHORIZED and not renewed:
                renewed = True
                self._login()
                continue
            if answer.is_server_error and "Database error" in answer.text and time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            if answer.is_error:
                raise AirflowApiError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
            return answer.json() if answer.content else None

    def has_dag(self, dag_id: str) -> bool:
        """Tell whether the DAG has been parsed yet."""
        try:
            self.request("GET", f"/dags/{dag_id}")
        except AirflowApiError as error:
            if ": 404 " in str(error):
                return False
            raise
        return True

    def set_paused(self, dag_id: str, paused: bool) -> None:
        """Pause or unpause a DAG."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run by hand and return its id."""
        body = {"conf": conf or {}, "logical_date": None}
        return str(self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def runs(self, dag_id: str, limit: int = 20) -> list[dict[str, Any]]:
        """List the newest runs first."""
        path = f"/dags/{dag_id}/dagRuns"
        found = self.request("GET", path, params={"limit": limit, "order_by": "-run_after"})
        return list(found["dag_runs"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of one run: queued, running, success or failed."""
        return str(self.request("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}")["state"])

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """List every task instance of a run, mapped ones each on their own."""
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances"
        return list(self.request("GET", path, params={"limit": 1000})["task_instances"])

    def mark(self, dag_id: str, run_id: str, task_id: str, map_index: int, state: str) -> None:
        """Mark a task instance as 'failed', 'success' or 'skipped', as the button in the UI does."""
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/{map_index}"
        self.request("PATCH", path, json={"new_state": state})

    def clear(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> None:
        """Clear a task instance, so that it runs again."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [[task_id, map_index]],
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def log(self, dag_id: str, run_id: str, task_id: str, map_index: int, attempt: int) -> str:
        """Return the log of one attempt, one entry a line; entries with an error have all its detail behind them."""
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/logs/{attempt}"
        content = self.request(
            "GET",
            path,
            params={"map_index": map_index, "full_content": True},
            headers={"Accept": "application/json"},
        )["content"]
        return "\n".join(_line(entry) for entry in content)

    def questions(self, dag_id: str) -> list[dict[str, Any]]:
        """Return what the tasks of a DAG ask a person (human in the loop) and is not answered yet."""
        found = self.request("GET", f"/dags/{dag_id}/dagRuns/~/hitlDetails")["hitl_details"]
        return [each for each in found if not each["response_received"]]

    def answer(self, dag_id: str, question: dict[str, Any], option: str) -> None:
        """Choose one option of a question, as a person does on the page; nothing if it is answered by now."""
        instance = question["task_instance"]
        run = quote(instance["dag_run_id"], safe="")
        task = f"{instance['task_id']}/{instance['map_index']}"
        path = f"/dags/{dag_id}/dagRuns/{run}/taskInstances/{task}/hitlDetails"
        try:
            self.request("PATCH", path, json={"chosen_options": [option], "params_input": {}})
        except AirflowApiError as error:
            if ": 409 " not in str(error):
                raise

    def asset_events(self, source_dag_id: str, limit: int = 100) -> list[dict[str, Any]]:
        """Return the asset events that a DAG caused, oldest first."""
        params: dict[str, str | int] = {
            "source_dag_id": source_dag_id,
            "limit": limit,
            "order_by": "timestamp",
        }
        return list(self.request("GET", "/assets/events", params=params)["asset_events"])


def _line(entry: object) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    detail = entry.get("error_detail")
    return f"{entry.get('event', entry)} {json.dumps(detail)}" if detail else str(entry.get("event", entry))


def wait_for(
    what: str,
    condition: Callable[[], Any],
    timeout: float,
    *,
    interval: float = 0.3,
    detail: Callable[[], str] = str,
) -> Any:
    """Ask `condition` until it gives something true and return that; TimeoutError naming `what` after `timeout` s."""
    deadline = time.monotonic() + timeout
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            more = detail()
            raise TimeoutError(f"waited {timeout:.0f} s in vain for: {what}{'; ' + more if more else ''}")
        time.sleep(interval)
