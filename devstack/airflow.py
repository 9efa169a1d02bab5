"""A local Airflow: API server, scheduler, DAG processor and triggerer, each a process with a log of its own.

Not `airflow standalone`: that is a fifth process with all of Airflow loaded, leaves the others running when it gets
SIGTERM, and cannot restart one of them while the others go on.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import httpx
from cryptography.fernet import Fernet

from devstack.airflow_backend import Backend
from devstack.command import run_to_end
from devstack.place import HERE, Place
from devstack.redis import Redis
from devstack.secret import write_secret
from devstack.server import Server

ROOT = Path(__file__).resolve().parents[1]
"""The checkout, which is Airflow's home: airflow.cfg, dags and plugins are there."""

USERS = {"admin": "admin", "viewer": "viewer"}
"""User name to role."""


class AirflowComponent(Server):
    """One of Airflow's processes. Healthy means: its heartbeat is fresh, as the API server sees it."""

    roles: ClassVar[tuple[str, ...]] = ()
    stop_grace = 10.0
    subcommand = ""
    health_key = ""
    python = Path(sys.executable)

    def __init__(
        self, data_dir: Path, api: AirflowApiServer | None, ports: Mapping[str, int], guarded: bool
    ) -> None:
        super().__init__(data_dir, ports, guarded)
        self._api = api

    def prepare(self) -> None:
        """Do nothing: the environment says it all."""

    def command(self) -> Sequence[str | Path]:
        """Return Airflow's command of the component."""
        return [self.python, "-m", "airflow", self.subcommand]

    def healthy(self) -> bool:
        """Tell whether there was a heartbeat since this process started."""
        if self._api is None or self.process is None:
            return False
        health = self._api.health().get(self.health_key, {})
        beat = health.get(f"latest_{self.health_key}_heartbeat")
        if health.get("status") != "healthy" or not beat:
            return False
        return bool(datetime.fromisoformat(beat).timestamp() > self.process.started)


class AirflowApiServer(AirflowComponent):
    """The web UI, the public REST API, and the API that tasks talk to."""

    name = "Airflow API server"
    roles = ("http",)
    subcommand = "api-server"

    def __init__(self, data_dir: Path, ports: Mapping[str, int], guarded: bool) -> None:
        super().__init__(data_dir, None, ports, guarded)

    def healthy(self) -> bool:
        """Tell whether it answers."""
        return bool(self.health())

    def health(self) -> dict[str, dict[str, str]]:
        """Return what the API server knows of all components; empty if it does not answer."""
        try:
            answer = httpx.get(f"http://{self.address}/api/v2/monitor/health", timeout=5, trust_env=False)
            return dict(answer.json()) if answer.status_code == httpx.codes.OK else {}
        except (httpx.HTTPError, ValueError):
            return {}


class AirflowScheduler(AirflowComponent):
    """Starts runs and, with the LocalExecutor, their tasks, which are processes of its session."""

    name = "Airflow scheduler"
    subcommand = "scheduler"
    health_key = "scheduler"

    def command(self) -> Sequence[str | Path]:
        """Go without a log server: the API server reads the log files itself, and the other listens everywhere."""
        return [*super().command(), "--skip-serve-logs"]


class AirflowDagProcessor(AirflowComponent):
    """Parses the DAG files."""

    name = "Airflow DAG processor"
    subcommand = "dag-processor"
    health_key = "dag_processor"


class AirflowTriggerer(AirflowComponent):
    """Runs the triggers, which watch the consumers."""

    name = "Airflow triggerer"
    subcommand = "triggerer"
    health_key = "triggerer"

    def command(self) -> Sequence[str | Path]:
        """Go without a log server, as the scheduler."""
        return [*super().command(), "--skip-serve-logs"]

    def stop(self) -> None:
        """End its child; it then ends by itself and in order.

        At SIGTERM it tells the child to end and, in Airflow 3.3, often waits for it in vain for up to 20 s. Killing
        both would do harm: until a triggerer counts as dead, its triggers are not given to the next one.
        """
        if self.process is not None and self.running:
            self.resume()
            self.process.kill_children()
            if self.process.wait_ended(self.stop_grace):
                return
        super().stop()


class AirflowCeleryWorker(AirflowComponent):
    """Runs the tasks, with the CeleryExecutor. Airflow knows nothing of its health; healthy means that it listens."""

    name = "Airflow Celery worker"
    # A coordinator's task may wait for as long as its cluster's `long_poll_timeout`, 20 s by default.
    stop_grace = 30.0

    def __init__(self, data_dir: Path, redis: Redis, guarded: bool) -> None:
        super().__init__(data_dir, None, {}, guarded)
        self._redis = redis

    def command(self) -> Sequence[str | Path]:
        """Go without a log server, as the scheduler, and without events, which no process watches."""
        worker = ["celery", "worker", "--skip-serve-logs", "--without-gossip", "--without-mingle"]
        return [self.python, "-m", "airflow", *worker]

    def healthy(self) -> bool:
        """Tell whether it hears what is said to all workers."""
        return self.running and self._redis.listeners() > 0

    def stop(self) -> None:
        """Have it end as soon as the tasks under way have; what takes longer than `stop_grace` is killed.

        The signal is for its first process only: the others would end at once, and the tasks in them with no word.
        """
        if not self._ended_at(signal.SIGTERM):
            self.kill()


class Airflow:
    """All of Airflow, with its database, logs and secrets in `data_dir`.

    What it keeps its database in and how it runs its tasks, the environment says (`devstack.airflow_backend`).

    `extra_environment` is what the stack adds: connections, and where consumers write; a PYTHONPATH in it comes after
    the checkout's. `home` is the folder with `airflow.cfg`, `dags` and `plugins`. All of it runs at `place`. Another
    `python` than this one runs what is installed there, and has nothing of the checkout on its path.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        extra_environment: Mapping[str, str] | None = None,
        home: Path = ROOT,
        guarded: bool = False,
        place: Place = HERE,
        python: Path = Path(sys.executable),
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.home = home.resolve()
        self.python = python
        ports = {} if port is None else {"http": port}
        self.extra_environment = dict(extra_environment or {})
        self.api = AirflowApiServer(self.data_dir / "api-server", ports, guarded)
        self.scheduler = AirflowScheduler(self.data_dir / "scheduler", self.api, {}, guarded)
        self.dag_processor = AirflowDagProcessor(self.data_dir / "dag-processor", self.api, {}, guarded)
        self.triggerer = AirflowTriggerer(self.data_dir / "triggerer", self.api, {}, guarded)
        self.backend = Backend(self.data_dir, guarded)
        redis = self.backend.redis
        self.worker = (
            redis if redis is None else AirflowCeleryWorker(self.data_dir / "worker", redis, guarded)
        )
        for component in self.components:
            component.place = place
            component.python = python

    @property
    def components(self) -> tuple[AirflowComponent, ...]:
        """The API server first, because the others ask it."""
        always = (self.api, self.scheduler, self.dag_processor, self.triggerer)
        return always if self.worker is None else (*always, self.worker)

    @property
    def url(self) -> str:
        """Where the UI is, without a slash at the end."""
        return f"http://{self.api.address}"

    @property
    def dashboard(self) -> str:
        """Where Muster's page is, within Airflow's, which asks for the login first."""
        return f"{self.url}/plugin/muster"

    def passwords(self) -> dict[str, str]:
        """Map user name to password; empty before the first start."""
        if not self._passwords_file.exists():
            return {}
        return dict(json.loads(self._passwords_file.read_text(encoding="utf-8")))

    def environment(self) -> dict[str, str]:
        """Return what has to be added to the environment of everything that belongs to this Airflow.

        It chooses the API server's port if there is none yet, because all have to know it.
        """
        self.api.choose_ports()
        logs = self.data_dir / "logs"
        address = self.api.place.address
        local = sorted({"127.0.0.1", "localhost", address})
        no_proxy = ",".join(filter(None, [*local, os.environ.get("NO_PROXY", "")]))
        extra = (
            self._environment_of_the_checkout() if self.python == Path(sys.executable) else {"PYTHONPATH": ""}
        )
        return {
            "AIRFLOW_HOME": str(self.home),
            "MUSTER_CLUSTERS": "",  # whatever the shell has is of another Airflow
            **self.backend.environment(),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(logs),
            "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(logs / "dag_processor"),
            "AIRFLOW__API__HOST": address,
            "AIRFLOW__API__PORT": str(self.api.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{u}:{r}" for u, r in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords_file),
            # Read from files that only their owner can read, because environments are for more eyes than files.
            "AIRFLOW__CORE__FERNET_KEY_CMD": self._cat("fernet_key"),
            "AIRFLOW__API__SECRET_KEY_CMD": self._cat("secret_key"),
            "AIRFLOW__API_AUTH__JWT_SECRET_CMD": self._cat("jwt_secret"),
            "PATH": os.pathsep.join([str(self.python.parent), os.environ.get("PATH", "")]),
            # Airflow sets process titles, which by default overwrites the memory that a process's environment is
            # read from, and with it the mark by which the processes of a stack are found.
            "SPT_NOENV": "1",
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # A proxy that is meant for the internet must not get what is meant for the local servers.
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
            **self.extra_environment,
            **extra,
        }

    def _environment_of_the_checkout(self) -> dict[str, str]:
        path = self.extra_environment.get("PYTHONPATH")
        return {
            # Airflow looks for its secrets backend before it has put the folder `config` on its path.
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "include"), str(ROOT / "config"), path])),
            "AIRFLOW__SECRETS__BACKEND": "connection_files.ConnectionFiles",
            "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"folder": str(self._connections)}),
        }

    def migrate(self) -> None:
        """Create the database or bring it up to date, and make the secrets. Raises `DevstackError`.

        Starts the database's server if it has one.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._secrets_folder.mkdir(mode=0o700, exist_ok=True)
        self._secret("fernet_key", Fernet.generate_key().decode())
        self._secret("secret_key", secrets.token_urlsafe(48))
        self._secret("jwt_secret", secrets.token_urlsafe(48))
        self._secret("passwords.json", json.dumps({user: secrets.token_urlsafe(9) for user in USERS}))
        self._connect_to_itself()
        for server in self.backend.servers().values():
            server.extra_environment = self.extra_environment
        self.backend.start()
        done = self.backend.migrated
        wanted = version("apache-airflow")
        there = self.backend.postgresql is not None or (self.data_dir / "airflow.db").exists()
        if there and done.exists() and done.read_text(encoding="utf-8") == wanted:
            return
        run_to_end(
            [str(self.python), "-m", "airflow", "db", "migrate"],
            f"Airflow's database in {self.data_dir} cannot be set up",
            lines=25,
            env={**os.environ, **self.environment()},
            cwd=self.data_dir,
        )
        done.write_text(wanted, encoding="utf-8")

    def start(self) -> None:
        """Start what does not run, all at once, and wait until all is healthy. Raises `DevstackError`."""
        self.migrate()
        environment = self.environment()
        for component in self.components:
            component.extra_environment = environment
        with ThreadPoolExecutor(len(self.components)) as pool:
            for started in [pool.submit(component.start) for component in self.components]:
                started.result()

    @property
    def stopped_first(self) -> tuple[AirflowComponent, ...]:
        """Who is stopped before the others, in this order: the scheduler, so that nothing new is started, and who
        runs its tasks, which tell the API server what has come of them."""
        return (self.scheduler,) if self.worker is None else (self.scheduler, self.worker)

    def stop(self) -> None:
        """Stop all, those of `stopped_first` first, the database last. Consumers go on."""
        for component in self.stopped_first:
            component.stop()
        with ThreadPoolExecutor(len(self.components)) as pool:
            for stopped in [pool.submit(component.stop) for component in self.components]:
                stopped.result()
        self.backend.stop()

    def restart(self) -> None:
        """Stop all and start all again, on the same port and database."""
        self.stop()
        self.start()

    def _connect_to_itself(self) -> None:
        """Write the connection `muster_airflow`, through which `muster_pruning` deletes runs."""
        self.api.choose_ports()
        itself = {
            "conn_type": "http",
            "host": self.api.place.address,
            "port": self.api.port,
            "login": "admin",
            "password": self.passwords()["admin"],
        }
        write_secret(self._connections / "muster_airflow.json", json.dumps(itself))

    @property
    def _secrets_folder(self) -> Path:
        return self.data_dir / "secrets"

    @property
    def _connections(self) -> Path:
        return self._secrets_folder / "connections"

    @property
    def _passwords_file(self) -> Path:
        return self._secrets_folder / "passwords.json"

    def _cat(self, name: str) -> str:
        return f"cat {shlex.quote(str(self._secrets_folder / name))}"

    def _secret(self, name: str, value: str) -> None:
        if not (path := self._secrets_folder / name).exists():
            write_secret(path, value)
