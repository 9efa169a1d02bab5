"""The few calls of Airflow's public REST API that tasks make: they have no database, and this is how to reach it.

Tried on Airflow 3.3. Whose rights count is the connection's user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
from airflow.sdk.bases.hook import BaseHook

PAGE = 100
"""Runs that are asked for at once; more than that Airflow does not give."""
TIMEOUT = 30.0
"""Seconds that a call may take."""


class RestError(RuntimeError):
    """Airflow did not do what was asked; the message has its answer, and what to do."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A DAG run that is over. `note` is None for a run without one."""

    dag_id: str
    run_id: str
    state: str
    note: str | None


class AirflowRest:
    """A logged-in user. `connection` is an Airflow connection of type `http`: host, port, schema, login, password."""

    def __init__(self, connection: str) -> None:
        self.connection = connection
        found = BaseHook.get_connection(connection)
        address = f"{found.schema or 'http'}://{found.host}" + (f":{found.port}" if found.port else "")
        self._client = httpx.Client(base_url=address, timeout=TIMEOUT)
        self._login = {"username": found.login, "password": found.password}

    def __enter__(self) -> Self:
        """Log in. Raises `RestError`."""
        try:
            answer = self._client.post("/auth/token", json=self._login)
        except httpx.HTTPError as error:
            raise self._error(f"cannot be reached ({error!r}); check host and port") from error
        if answer.status_code != httpx.codes.CREATED:
            raise self._error(f"login refused: {answer.status_code}; check login and password")
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._client.close()

    def dag_ids(self, tag: str) -> list[str]:
        """The DAGs that have `tag`, also those whose file is gone."""
        found: list[str] = []
        while True:
            parameters: dict[str, Any] = {
                "tags": tag,
                "exclude_stale": False,
                "limit": PAGE,
                "offset": len(found),
            }
            answer = self._request("GET", "/dags", params=parameters)
            found += [str(dag["dag_id"]) for dag in answer["dags"]]
            if not answer["dags"] or len(found) >= answer["total_entries"]:
                return found

    def finished(self, dag_id: str, before: float, state: str) -> Iterator[FinishedRun]:
        """Runs in `state` that ended before `before` (seconds since the epoch), oldest first, a page at a time.

        A caller that deletes runs while it goes through them misses some, and meets them the next time.
        """
        ended = datetime.fromtimestamp(before, UTC).isoformat()
        offset = 0
        while True:
            parameters: dict[str, Any] = {
                "state": state,
                "end_date_lt": ended,
                "order_by": "end_date",
                "limit": PAGE,
                "offset": offset,
            }
            runs = self._request("GET", f"/dags/{quote(dag_id)}/dagRuns", params=parameters)["dag_runs"]
            for run in runs:
                yield FinishedRun(dag_id, run["dag_run_id"], run["state"], run.get("note"))
            if len(runs) < PAGE:
                return
            offset += PAGE

    def delete_run(self, run: FinishedRun) -> bool:
        """Delete a run with its task instances, XComs and note. False if it is gone, or runs again."""
        path = f"/api/v2/dags/{quote(run.dag_id)}/dagRuns/{quote(run.run_id, safe='')}"
        answer = self._send("DELETE", path)
        if answer.status_code in {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
            return False
        self._check("DELETE", path, answer)
        return True

    def _request(self, method: str, path: str, **arguments: Any) -> Any:
        answer = self._send(method, f"/api/v2{path}", **arguments)
        self._check(method, path, answer)
        return answer.json()

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise self._error(f"{method} {path}: {error!r}; check that the API server runs") from error

    def _check(self, method: str, path: str, answer: httpx.Response) -> None:
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise self._error(
                f"{method} {path}: 403; its user may not do this, which takes the right to delete runs"
            )
        if answer.is_error:
            raise self._error(f"{method} {path}: {answer.status_code} {answer.text[:300]}; try again")

    def _error(self, problem: str) -> RestError:
        return RestError(
            f"Airflow's API at {self._client.base_url} (connection {self.connection}): {problem}"
        )
