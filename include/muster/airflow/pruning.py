"""What the DAG `muster_pruning` does: delete old runs of Muster's DAGs and their log files.

Runs go through Airflow's public REST API, which takes task instances, XComs and notes with them, beside a live
scheduler, on any database; whose rights count is the connection's user's. `airflow db clean` would not do: it cannot
tell a rebalance from a quiet run, takes runs that are still under way, and needs the database, which tasks lack.
Asset events stay: the API has no way to delete them.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from ssl import SSLContext
from typing import Any
from urllib.parse import quote

import httpx

from muster.airflow.connections import CONNECTIONS
from muster.airflow.run_notes import OURS
from muster.edges.tls import context_of
from muster.settings.cluster_settings import RetentionSettings
from muster.settings.clusters import Clusters, SettingsError, load_clusters
from muster.settings.connections import AirflowApiSettings

log = logging.getLogger(__name__)

TAG = "muster"
"""The tag of all of Muster's DAGs."""
COORDINATORS = f"{OURS}coordinator__"
"""How the ids of coordinators begin, the only ones that have quiet runs."""
AT_ONCE = 2_000
"""Runs of a kind that one run of the DAG deletes; a coordinator makes some 180 an hour, or 1,800 when it fails."""
BUDGET = 300.0
"""Seconds that one run of the DAG deletes runs for; the next one goes on."""
PAGE = 100
"""What is listed at once; more than that Airflow does not give."""
TIMEOUT = 30.0
"""Seconds that a call may take."""


class RestError(RuntimeError):
    """Airflow did not do what was asked; the message has its answer, and what to do."""


def retention(clusters: Clusters) -> RetentionSettings:
    """Return what is to be kept. Raises `SettingsError` if the entry is wrong: then nothing is deleted."""
    if clusters.retention is None:
        raise SettingsError(
            f"{'; '.join(clusters.general.values())}; nothing is deleted until that is put right"
        )
    return clusters.retention


def prune_runs(logs: Path, budget: float = BUDGET) -> dict[str, int]:
    """Delete runs that are older than they are to be kept, with their log files below `logs` on this machine.

    Returns how many of each DAG were deleted. Raises `RestError`.
    """
    kept = retention(load_clusters())
    now = time.time()
    deadline = now + budget
    deleted: dict[str, int] = {}
    with logged_in(kept.airflow) as airflow:
        for dag_id in sorted(airflow.dag_ids(TAG)):
            if not dag_id.startswith(OURS):
                continue
            count = 0
            for run_id in _old(airflow, dag_id, kept, now):
                if time.time() > deadline:
                    log.info("%g s are over; the next run goes on", budget)
                    return deleted | {dag_id: count}
                if airflow.delete_run(dag_id, run_id):
                    count += 1
                    _delete_logs(logs, dag_id, run_id)
            if count:
                deleted[dag_id] = count
    return deleted


def _old(airflow: AirflowRest, dag_id: str, kept: RetentionSettings, now: float) -> Iterable[str]:
    """Yield runs to delete, at most `AT_ONCE` of each kind; each kind is listed before the first of it is deleted."""
    if dag_id.startswith(COORDINATORS):
        succeeded = airflow.finished(dag_id, now - min(kept.quiet_runs, kept.rebalances), "success")
        yield from list(islice((run_id for run_id, note in succeeded if not note), AT_ONCE))
    for state, seconds in (("failed", kept.failures), ("success", kept.rebalances)):
        ended = airflow.finished(dag_id, now - seconds, state)
        yield from [run_id for run_id, _ in islice(ended, AT_ONCE)]


def prune_logs(logs: Path) -> int:
    """Delete log folders of Muster's runs that nothing was written to for longer than anything is kept; say how many.

    `prune_runs` deletes the logs that it finds where it runs. These are the others: on other workers, or of runs that
    another process deleted.
    """
    oldest = time.time() - retention(load_clusters()).longest
    folders = [run for dag in logs.glob(f"dag_id={OURS}*") for run in dag.glob("run_id=*") if run.is_dir()]
    old = [folder for folder in folders if _last_written(folder) < oldest]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return len(old)


def _delete_logs(logs: Path, dag_id: str, run_id: str) -> None:
    folder = logs / f"dag_id={dag_id}" / f"run_id={run_id}"
    if folder.parent.parent == logs and folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)


def _last_written(folder: Path) -> float:
    return max((path.stat().st_mtime for path in [folder, *folder.rglob("*")] if path.exists()), default=0.0)


@contextmanager
def logged_in(connection: str) -> Iterator[AirflowRest]:
    """Be who the Airflow connection of type `http` says: with login and password, or with a bearer token.

    Raises `ConnectionSettingsError`, and `RestError`.
    """
    found = CONNECTIONS.airflow_api(connection)
    with httpx.Client(base_url=found.address, timeout=TIMEOUT, verify=_tls(found, connection)) as client:
        airflow = AirflowRest(client, connection)
        client.headers["Authorization"] = f"Bearer {_token(found, airflow)}"
        yield airflow


def _tls(settings: AirflowApiSettings, connection: str) -> SSLContext:
    try:
        return context_of(settings, f"Airflow's API at {settings.address} (connection {connection})")
    except OSError as error:
        raise RestError(str(error)) from error


def _token(settings: AirflowApiSettings, airflow: AirflowRest) -> str:
    """Return the connection's token, or one for its user. Raises `RestError` if the login is refused."""
    if settings.token is not None:
        return settings.token.get_secret_value()
    password = settings.password.get_secret_value() if settings.password else None
    answer = airflow.send("POST", "/auth/token", json={"username": settings.username, "password": password})
    if answer.status_code != httpx.codes.CREATED:
        raise airflow.error(f"login refused: {answer.status_code}; check login and password")
    return str(answer.json()["access_token"])


class AirflowRest:
    """The calls of the REST API that pruning makes, by a client that is logged in. They raise `RestError`."""

    def __init__(self, client: httpx.Client, connection: str) -> None:
        self._client = client
        self._connection = connection

    def dag_ids(self, tag: str) -> list[str]:
        """List the DAGs that have `tag`, also those whose file is gone."""
        return [dag["dag_id"] for dag in self._list("/api/v2/dags", "dags", tags=tag, exclude_stale=False)]

    def finished(self, dag_id: str, before: float, state: str) -> Iterator[tuple[str, str | None]]:
        """Yield ids and notes of runs in `state` that ended before `before` (seconds since the epoch), oldest first.

        A caller that deletes runs while it goes through them misses some, and meets them the next time.
        """
        ended = datetime.fromtimestamp(before, UTC).isoformat()
        path = f"/api/v2/dags/{quote(dag_id)}/dagRuns"
        for run in self._list(path, "dag_runs", state=state, end_date_lt=ended, order_by="end_date"):
            yield run["dag_run_id"], run.get("note")

    def delete_run(self, dag_id: str, run_id: str) -> bool:
        """Delete a run with its task instances, XComs and note. False if it is gone, or runs again."""
        path = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"
        answer = self.send("DELETE", path)
        if answer.status_code in {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
            return False
        self._check("DELETE", path, answer)
        return True

    def _list(self, path: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield what is under `key`, a page at a time."""
        offset = 0
        while True:
            answer = self.send("GET", path, params={**parameters, "limit": PAGE, "offset": offset})
            self._check("GET", path, answer)
            found = answer.json()[key]
            yield from found
            if not found:
                return
            offset += len(found)

    def send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Call Airflow, whatever it answers."""
        try:
            return self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise self.error(
                f"{method} {path}: cannot be reached ({error!r}); check host, port, schema and 'ca', and that "
                "the API server runs"
            ) from error

    def _check(self, method: str, path: str, answer: httpx.Response) -> None:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise self.error(
                f"{method} {path}: 401; its token is not valid any more: put a new one into the connection"
            )
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise self.error(
                f"{method} {path}: 403; its user may not do this, which takes the right to delete runs"
            )
        if answer.is_error:
            raise self.error(f"{method} {path}: {answer.status_code} {answer.text[:300]}; try again")

    def error(self, problem: str) -> RestError:
        """Make the error, which names the address and the connection."""
        return RestError(
            f"Airflow's API at {self._client.base_url} (connection {self._connection}): {problem}"
        )
