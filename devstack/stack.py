"""The whole local stack: Kafka, ZooKeeper, Consul and Airflow, in one folder."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from devstack.airflow import ROOT, Airflow
from devstack.connector import connector_jar
from devstack.consul import Consul
from devstack.consul_binary import consul_binary
from devstack.guard import guard
from devstack.jars import jars, java
from devstack.kafka import Kafka
from devstack.leftovers import MARKER, end_all, end_consumers, processes_of
from devstack.postgresql import PostgreSQL
from devstack.process import ServerProcess
from devstack.progress import say, step
from devstack.secret import write_secret
from devstack.server import Server
from devstack.zookeeper import ZooKeeper
from muster.cli.local_stack import FILE

GRACEFUL = 60.0
"""Seconds that consumers get at `down` to close their partitions."""


def default_folder() -> Path:
    """Return `$MUSTER_DEVSTACK_DIR`, else `.devstack` in the checkout."""
    return Path(os.environ.get("MUSTER_DEVSTACK_DIR") or ROOT / ".devstack").resolve()


def stacks() -> list[Path]:
    """Return the folder of `make up`, and after it those of stacks that are kept inside it (the demo's)."""
    folder = default_folder()
    return [folder, *sorted(state.parent for state in folder.glob("*/state.json"))]


class Stack:
    """Brings everything up and down. What runs is written to `state.json`, so any later command finds it.

    `ports` fixes ports by server: `kafka`, `zookeeper`, `consul`, `airflow`. The others are chosen once and kept,
    because ZooKeeper's data names Kafka's address. With `guarded` nothing outlives this Python process.

    With `database` there is a PostgreSQL that handlers may write to (`MUSTER_DATABASE`, a conninfo of libpq); a stack
    that was made with one keeps it. `rack` is that of the Kafka broker.
    """

    def __init__(
        self,
        folder: Path | None = None,
        ports: Mapping[str, int] | None = None,
        guarded: bool = False,
        environment: Mapping[str, str] | None = None,
        database: bool = False,
        rack: str = "",
    ) -> None:
        self.folder = (folder or default_folder()).resolve()
        self._guarded = guarded
        fixed = dict(ports or {})

        def port(server: str, role: str) -> dict[str, int]:
            return {role: fixed[server]} if server in fixed else {}

        mark = {MARKER: str(self.folder)}
        self.zookeeper = ZooKeeper(self.folder / "zookeeper", port("zookeeper", "client"), guarded, mark)
        self.consul = Consul(self.folder / "consul", port("consul", "http"), guarded, mark)
        self.kafka = Kafka(self.folder / "kafka", port("kafka", "broker"), guarded, mark, rack=rack)
        files = self.folder / "postgresql"
        there = database or files.exists()
        self.database = PostgreSQL(files, None, guarded, mark) if there else None
        self.airflow = Airflow(self.folder / "airflow", fixed.get("airflow"), guarded=guarded)
        self._extra_environment = dict(environment or {})
        self._load()

    @property
    def data(self) -> Path:
        """Where consumers' handlers write (`MUSTER_DATA`)."""
        return self.folder / "data"

    def servers(self) -> dict[str, Server]:
        """Return every server process by its key in `state.json`."""
        return {
            "zookeeper": self.zookeeper,
            "consul": self.consul,
            "kafka": self.kafka,
            **({} if self.database is None else {"database": self.database}),
            "airflow-api-server": self.airflow.api,
            "airflow-scheduler": self.airflow.scheduler,
            "airflow-dag-processor": self.airflow.dag_processor,
            "airflow-triggerer": self.airflow.triggerer,
            **({} if self.airflow.worker is None else {"airflow-celery-worker": self.airflow.worker}),
            **self.airflow.backend.servers(),
        }

    def environment(self) -> dict[str, str]:
        """Return what is added to the environment of Airflow and of all that it starts; also good for a shell.

        Chooses ports that were not chosen yet.
        """
        for server in self._below_airflow:
            server.choose_ports()
        database = {} if self.database is None else {"MUSTER_DATABASE": self.database.url("postgresql")}
        self.airflow.extra_environment = {
            MARKER: str(self.folder),
            "MUSTER_DATA": str(self.data),
            "AIRFLOW_CONN_MUSTER_KAFKA": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": self.kafka.address}}
            ),
            "AIRFLOW_CONN_MUSTER_ZOOKEEPER": json.dumps(
                {"conn_type": "zookeeper", "host": "127.0.0.1", "port": self.zookeeper.port}
            ),
            "AIRFLOW_CONN_MUSTER_CONSUL": json.dumps(
                {"conn_type": "consul", "host": "127.0.0.1", "port": self.consul.port, "schema": "http"}
            ),
            "AIRFLOW_CONN_MUSTER_SPARK": json.dumps(
                {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}
            ),
            **database,
            **self._extra_environment,
        }
        return self.airflow.environment()

    def for_shells(self) -> dict[str, str]:
        """Return the `environment` without the mark of the stack's processes: a shell must outlive them."""
        return {key: value for key, value in self.environment().items() if key != MARKER}

    @property
    def _below_airflow(self) -> tuple[Server, ...]:
        database = () if self.database is None else (self.database,)
        return (self.zookeeper, self.consul, self.kafka, *database)

    @property
    def running(self) -> bool:
        """Whether any of its servers runs."""
        return any(server.running for server in self.servers().values())

    def fetch(self) -> None:
        """Get the software that is not Python into the cache. Raises `DevstackError` naming what is missing."""
        java()
        jars("zookeeper")
        jars("kafka")
        consul_binary()
        connector_jar()

    def up(self) -> None:
        """Start what does not run, and wait until everything is healthy. Raises `DevstackError`."""
        with self._locked():
            if self._guarded:
                guard.watch_marker(MARKER, str(self.folder))
            self.fetch()
            self._release_taken_ports()
            self.data.mkdir(parents=True, exist_ok=True)
            environment = self.environment()
            self._save()
            self._restart_airflow_if_changed(environment)
            try:
                with ThreadPoolExecutor() as pool:
                    waiting = [
                        pool.submit(self._start, server, server.start) for server in self._below_airflow
                    ]
                    waiting.append(pool.submit(self._migrate))
                    for one in waiting:
                        one.result()
                self._start_airflow()
                # By this file the command `muster` finds the stack, if it is given in the checkout.
                write_secret(self.folder / FILE, json.dumps(self.for_shells(), indent=2))
            finally:
                self._save(_digest(environment))

    def down(self, grace: float = GRACEFUL) -> None:
        """Stop everything in order: consumers close their partitions first, while all servers are still there.

        What runs Airflow's tasks is stopped even before them, so that they are not submitted again. In the end
        whatever else belongs to the stack is ended as well, with or without a state file.
        """
        with self._locked():
            (self.folder / FILE).unlink(missing_ok=True)
            for component in self.airflow.stopped_first:
                self._stop(component)
            if processes_of(self.folder, consumers_only=True):
                with step("Consumers: closing their partitions") as progress:
                    jobs, killed = end_consumers(self.folder, grace)
                    progress.result = f"{jobs} stopped" + (f", {killed} of them by force" if killed else "")
            self._stop(*self.airflow.components)
            self._stop(*self.airflow.backend.servers().values())
            self._stop(*self._below_airflow)
            if left := end_all(self.folder):
                say(f"Ended {left} more processes of the stack")
            self._save()

    def start_again(self, server: Server) -> None:
        """Start one of the servers that was stopped, and note it for later commands. Raises `DevstackError`."""
        with self._locked():
            server.start()
            self._save()

    def _start(self, server: Server, start: Callable[[], None]) -> None:
        if server.running and server.healthy():
            say(f"{server.name}: runs")
            return
        with step(f"{server.name}: starting") as progress:
            start()
            progress.result = f"up at {server.address}" if server.roles else "up"

    def _migrate(self) -> None:
        with step("Airflow: preparing its database"):
            self.airflow.migrate()

    def _start_airflow(self) -> None:
        if all(component.running and component.healthy() for component in self.airflow.components):
            say("Airflow: runs")
            return
        with step("Airflow: starting") as progress:
            self.airflow.start()
            progress.result = f"up at {self.airflow.url}"

    def _stop(self, *servers: Server) -> None:
        """Stop `servers` at the same time, those that have a process at all."""

        def stop(server: Server) -> None:
            with step(f"{server.name}: stopping") as progress:
                server.stop()
                progress.result = "stopped"

        there = [server for server in servers if server.process is not None and server.process.members()]
        with ThreadPoolExecutor(max(len(there), 1)) as pool:
            for stopped in [pool.submit(stop, server) for server in there]:
                stopped.result()

    def _release_taken_ports(self) -> None:
        for server in self.servers().values():
            if not server.running:
                for role in server.release_taken_ports():
                    say(
                        f"{server.name}: its port ({role}) is in use by another program, so it gets a new one"
                    )

    def _restart_airflow_if_changed(self, environment: Mapping[str, str]) -> None:
        """Stop Airflow if its settings changed: its processes find a server that moved only if they start again."""
        now = _digest(environment)
        if any(c.running for c in self.airflow.components) and self._read().get("environment") != now:
            say("Airflow: its settings changed, so it starts again")
            self.airflow.stop()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._load()
            yield

    @property
    def _state_file(self) -> Path:
        return self.folder / "state.json"

    def _read(self) -> dict[str, object]:
        try:
            state = json.loads(self._state_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}  # without it ports are chosen again, and `down` finds processes by their environment
        return state if isinstance(state, dict) else {}

    def _load(self) -> None:
        known = self._read().get("servers")
        for key, server in self.servers().items():
            if not isinstance(known, dict) or key not in known:
                continue
            if server.running:
                continue  # started by this object, perhaps after the file was written
            entry = known[key]
            if entry.get("pid"):
                server.process = ServerProcess(entry["pid"], entry["started"])
            server.restore_ports(entry.get("ports", {}))

    def _save(self, environment: str | None = None) -> None:
        servers = {}
        for key, server in self.servers().items():
            alive = server.process is not None and bool(server.process.members())
            servers[key] = {
                "pid": server.process.pid if server.process and alive else None,
                "started": server.process.started if server.process and alive else None,
                "ports": server.ports,
            }
        state = {"servers": servers, "environment": environment or self._read().get("environment")}
        partial = self._state_file.with_suffix(".partial")
        partial.write_text(json.dumps(state, indent=2), encoding="utf-8")
        partial.replace(self._state_file)


def _digest(environment: Mapping[str, str]) -> str:
    """Return what changes when Airflow must start again, which is not for another PATH in the shell of `make up`."""
    ours = {key: value for key, value in environment.items() if key.startswith(("AIRFLOW", "MUSTER"))}
    return sha256(json.dumps(ours, sort_keys=True).encode()).hexdigest()
