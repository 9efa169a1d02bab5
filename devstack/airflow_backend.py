"""What a local Airflow keeps its database in, and what carries its tasks to where they run.

By default that is SQLite and the LocalExecutor, which need no server. `MUSTER_DEVSTACK_DATABASE=postgresql` makes it
PostgreSQL, and `MUSTER_DEVSTACK_EXECUTOR=celery` a Celery worker as well, over Redis, which implies PostgreSQL. An
Airflow that was made with them keeps them for as long as nothing is said.
"""

from __future__ import annotations

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

from devstack.errors import DevstackError
from devstack.postgresql import PostgreSQL
from devstack.redis import Redis
from devstack.secret import write_secret
from devstack.server import Server

DATABASE, DATABASES = "MUSTER_DEVSTACK_DATABASE", ("sqlite", "postgresql")
EXECUTOR, EXECUTORS = "MUSTER_DEVSTACK_EXECUTOR", ("local", "celery")

WORKER_CONCURRENCY = 4
"""Tasks that the one Celery worker runs at a time. A coordinator has two at most."""


class Backend:
    """The servers behind the Airflow in `data_dir`, as the environment chooses them.

    Raises `DevstackError` if the environment asks for what there is not.
    """

    def __init__(self, data_dir: Path, guarded: bool = False) -> None:
        self._data_dir = data_dir
        for_sql, for_queue = data_dir / "postgresql", data_dir / "redis"
        celery = _chosen(EXECUTOR, EXECUTORS, for_queue.exists())
        postgresql = _chosen(DATABASE, DATABASES, celery or for_sql.exists())
        if celery and not postgresql:
            raise DevstackError(f"{EXECUTOR}=celery does not go with {DATABASE}=sqlite; leave the latter out")
        self.postgresql = PostgreSQL(for_sql, guarded=guarded) if postgresql else None
        self.redis = Redis(for_queue, guarded=guarded) if celery else None

    def servers(self) -> dict[str, Server]:
        """Return the servers that have to run before Airflow does, by a short name."""
        named = {"postgresql": self.postgresql, "redis": self.redis}
        return {name: server for name, server in named.items() if server is not None}

    def environment(self) -> dict[str, str]:
        """Return what Airflow's processes need to find them. Addresses have passwords, so they stand in files."""
        found = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._data_dir / 'airflow.db'}"}
        if self.postgresql is not None:
            found = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": self._cat("database")}
        if self.redis is not None:
            found |= {
                "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
                "AIRFLOW__CELERY__BROKER_URL_CMD": self._cat("broker"),
                "AIRFLOW__CELERY__RESULT_BACKEND_CMD": self._cat("results"),
                "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(WORKER_CONCURRENCY),
            }
        return found

    def start(self) -> None:
        """Start what does not run, and write down where it is. Raises `DevstackError`."""
        for package in self._packages():
            if find_spec(package) is None:
                raise DevstackError(f"the package '{package}' is missing; 'make env CELERY=1' installs it")
        for server in self.servers().values():
            server.start()
        if self.postgresql is not None:
            write_secret(self._file("database"), self.postgresql.url("postgresql+psycopg2"))
            write_secret(self._file("results"), self.postgresql.url("db+postgresql+psycopg2"))
        if self.redis is not None:
            write_secret(self._file("broker"), self.redis.url)

    def stop(self) -> None:
        """Stop all; the data stays."""
        for server in self.servers().values():
            server.stop()

    @property
    def migrated(self) -> Path:
        """The file that says for which Airflow the database was prepared; it goes with the database."""
        return (self._data_dir if self.postgresql is None else self.postgresql.data_dir) / "migrated"

    def _packages(self) -> list[str]:
        postgresql = ["psycopg2", "asyncpg"] if self.postgresql is not None else []
        return postgresql + (["celery", "redis"] if self.redis is not None else [])

    def _file(self, name: str) -> Path:
        return self._data_dir / "secrets" / f"{name}_address"

    def _cat(self, name: str) -> str:
        return f"cat {shlex.quote(str(self._file(name)))}"


def _chosen(variable: str, known: tuple[str, str], otherwise: bool) -> bool:
    """Tell whether `variable` asks for the second of `known`; `otherwise` when it is not set."""
    value = os.environ.get(variable)
    if not value:
        return otherwise
    if value not in known:
        raise DevstackError(f"{variable} is {value!r}; it can be {' or '.join(known)}")
    return value == known[1]
