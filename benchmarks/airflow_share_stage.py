"""The stack of the benchmark of Airflow's own share: with this checkout's settings of Airflow, or without some; and a
look into Airflow's database from outside, which costs Airflow nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from benchmarks.airflow_share_figures import DEFAULTS, TUNED
from benchmarks.harness.servers import create_topic
from benchmarks.scale_consumers import Consumers
from benchmarks.scale_tasks import Place
from devstack.airflow import ROOT
from devstack.airflow_api import AirflowApi, wait_for
from devstack.stack import Stack
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ZooKeeperSettings

TOPIC, PARTITIONS, CONSUMERS = "t-0", 12, 3
PRUNING_DAG = "muster_pruning"
_PATIENCE = 180.0
_BARE = "[core]\nload_examples = False\n"
"""Of `airflow.cfg` what is no matter of speed: with Airflow's examples there would be 90 more DAGs to parse."""


@dataclass(frozen=True)
class Task:
    """A task instance. Times are in seconds since the epoch; `pid` is 0 for one that was skipped."""

    name: str
    state: str
    start: float
    end: float
    pid: int


class Database:
    """The database at `url`, as SQLAlchemy writes it."""

    def __init__(self, url: str) -> None:
        # A connection a look: none stays open in the way of a server that stops.
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def sql(self, query: str, **values: Any) -> list[Any]:
        with self._engine.connect() as connection:
            done = connection.execute(text(query), values)
            return list(done) if done.returns_rows else []

    def count(self, dag: str) -> int:
        query = "SELECT count(*) FROM dag_run WHERE dag_id = :dag AND state = 'success'"
        return int(self.sql(query, dag=dag)[0][0])

    def ended(self, dag: str) -> list[str]:
        """List the runs that have succeeded, the oldest first."""
        found = self.sql(
            "SELECT run_id FROM dag_run WHERE dag_id = :dag AND state = 'success' ORDER BY end_date", dag=dag
        )
        return [str(run) for (run,) in found]

    def newest(self, dag: str) -> str:
        """Return the run that began last, '' if there is none."""
        query = "SELECT run_id FROM dag_run WHERE dag_id = :dag ORDER BY id DESC LIMIT 1"
        found = self.sql(query, dag=dag)
        return str(found[0][0]) if found else ""

    def tasks(self, dag: str, run: str) -> dict[str, Task]:
        found = self.sql(
            "SELECT task_id, coalesce(state, ''), start_date, end_date, coalesce(pid, 0) FROM task_instance "
            "WHERE dag_id = :dag AND run_id = :run",
            dag=dag,
            run=run,
        )
        return {
            name: Task(name, state, _seconds(start), _seconds(end), 0 if state == "skipped" else pid)
            for name, state, start, end, pid in found
        }

    def states(self, task: str) -> list[str]:
        """Return the states of this task in the runs that are under way, of all DAGs."""
        found = self.sql(
            "SELECT coalesce(t.state, '') FROM task_instance AS t JOIN dag_run AS r "
            "ON r.dag_id = t.dag_id AND r.run_id = t.run_id WHERE t.task_id = :task AND r.state = 'running'",
            task=task,
        )
        return [str(state) for (state,) in found]

    def rows(self) -> dict[str, int]:
        tables = inspect(self._engine).get_table_names()
        return {table: int(self.sql(f'SELECT count(*) FROM "{table}"')[0][0]) for table in tables}  # noqa: S608

    def bytes(self) -> dict[str, int]:
        """Count the bytes of the pages in use, by table with its indexes. Only SQLite can say it so."""
        found = self.sql(
            "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat AS s "
            "LEFT JOIN sqlite_master AS m ON m.name = s.name GROUP BY 1"
        )
        return {str(table): int(size) for table, size in found}


def _seconds(at: str | datetime | None) -> float:
    """Return seconds since the epoch. SQLite gives text without a zone, which is UTC."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return at.timestamp() if at else 0.0


@dataclass(frozen=True)
class Settings:
    """How Airflow is set: `bare` is without `airflow.cfg`, `preload` is the folder `config`; `changed` is a setting
    with another value, such as `{"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1"}`."""

    bare: bool = False
    preload: bool = True
    changed: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        if self.bare:
            return DEFAULTS
        but = [] if self.preload else ["nothing preloaded"]
        but += [f"{key.split('__', 2)[2].lower()} = {value}" for key, value in self.changed.items()]
        return f"{TUNED}, but {', '.join(but)}" if but else TUNED

    def home(self, folder: Path) -> Path:
        """Return a folder that can be Airflow's home, made at `folder` where it is not the checkout."""
        if not self.bare and self.preload:
            return ROOT
        folder.mkdir()
        for name in ("dags", "plugins"):
            (folder / name).symlink_to(ROOT / name)
        text = _BARE if self.bare else (ROOT / "airflow.cfg").read_text(encoding="utf-8")
        (folder / "airflow.cfg").write_text(text, encoding="utf-8")
        return folder


class Stage:
    """A stack with a cluster for each of the `polls` (seconds) in `clusters.yaml`, all of them paused."""

    def __init__(self, folder: Path, settings: Settings, polls: Mapping[str, float]) -> None:
        self._clusters = folder / "clusters.yaml"
        self._polls = polls
        self.write_clusters({})
        self.stack = Stack(
            folder / "stack",
            guarded=True,
            environment={"MUSTER_CLUSTERS": str(self._clusters), **settings.changed},
        )
        self.stack.airflow.home = settings.home(folder / "home")

    @cached_property
    def database(self) -> Database:
        airflow = self.stack.airflow
        if (postgresql := airflow.backend.postgresql) is not None:
            return Database(postgresql.url("postgresql+psycopg2"))
        return Database(f"sqlite:///file:{airflow.data_dir / 'airflow.db'}?mode=ro&uri=true&timeout=30")

    def write_clusters(self, retention: Mapping[str, str]) -> None:
        """Write `clusters.yaml`, as JSON, which is YAML."""
        clusters = {
            name: {
                "consul_service": f"muster-{name}",
                "group_id": name,
                "topics": [TOPIC],
                "long_poll_timeout": f"{poll:g}s",
                "consumers": {"count": 0, "handler": "muster.handlers.parquet.ParquetHandler"},
            }
            for name, poll in self._polls.items()
        }
        more = {"retention": dict(retention)} if retention else {}
        self._clusters.write_text(json.dumps({"clusters": clusters, **more}), encoding="utf-8")

    @contextmanager
    def up(self) -> Iterator[AirflowApi]:
        """Start all, with a topic; stop all at the end. Raises `DevstackError`."""
        try:
            self.stack.up()
            create_topic(self.stack.kafka.address, TOPIC, PARTITIONS)
            password = self.stack.airflow.passwords()["admin"]
            with AirflowApi(self.stack.airflow.url, "admin", password) as api:
                for dag in (*map(coordinator, self._polls), PRUNING_DAG):
                    wait_for(f"DAG {dag} is parsed", partial(api.has_dag, dag), _PATIENCE)
                api.set_paused(PRUNING_DAG, True)  # until it is measured
                yield api
        finally:
            self.stack.down()

    def place(self, cluster: str) -> Place:
        stack = self.stack
        servers = stack.zookeeper.address, stack.consul.ports["http"], stack.kafka.address
        return Place(*servers, cluster, f"muster-{cluster}", check_interval=1.0)

    @contextmanager
    def coordinated(self, api: AirflowApi, cluster: str) -> Iterator[Consumers]:
        """Yield simulated consumers of `cluster`, whose coordinator has given them partitions; paused in the end."""
        dag = coordinator(cluster)
        with Consumers(self.place(cluster)) as consumers:
            consumers.join(CONSUMERS)
            api.set_paused(dag, False)
            try:
                wait_for("the first plan", partial(self.database.ended, dag), _PATIENCE)
                yield consumers
            finally:
                api.set_paused(dag, True)

    @contextmanager
    def history(self, cluster: str) -> Iterator[TopicStore]:
        zookeeper = ZooKeeperSettings(hosts=self.stack.zookeeper.address)
        with TopicStore(zookeeper, cluster, read_only=True) as store:
            yield store


def coordinator(cluster: str) -> str:
    return f"muster_coordinator__{cluster}"
