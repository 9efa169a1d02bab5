"""Airflow connections in files that only their owner can read: the secrets backend of this checkout's own Airflow.

Airflow has one too, `LocalFilesystemBackend`. It makes connections as Airflow's server does, for which it loads and
sets up the models of the whole database; and it does so in each process that asks for any connection. Under a Celery
worker, which has no use for them otherwise, that took each task of a coordinator 0.6 s, and 1.5 s on a busy machine.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk.bases.secrets_backend import BaseSecretsBackend


class ConnectionFiles(BaseSecretsBackend):
    """Finds the connection `name` in `folder`/`name`.json, which holds what its variable `AIRFLOW_CONN_...` would."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = Path(folder)

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> str | None:  # noqa: ARG002  Airflow's
        """Return the text of a connection, None if there is no such file."""
        file = self._folder / f"{conn_id}.json"
        return file.read_text(encoding="utf-8") if file.is_file() else None
