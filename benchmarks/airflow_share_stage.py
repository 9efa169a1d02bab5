"""The stack of the benchmark of Airflow's own share: with this checkout's settings of Airflow, or without some."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.airflow_share_database import Database
from benchmarks.airflow_share_figures import DEFAULTS, TUNED
from benchmarks.scale_inputs import Consumers
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
class Settings:
    """How Airflow is set: `bare` is without `airflow.cfg`, `preload` is the folder `config`; `changed` is a setting
    with another value, such as `{"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1"}`."""

    bare: bool = False
    preload: bool = True
    changed: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it is called in the report."""
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
        """Airflow's database, once the stack is up."""
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
        whole: dict[str, Any] = {"clusters": clusters}
        if retention:
            whole["retention"] = dict(retention)
        self._clusters.write_text(json.dumps(whole), encoding="utf-8")

    @contextmanager
    def up(self) -> Iterator[AirflowApi]:
        """Start all, with a topic; stop all at the end. Raises `DevstackError`."""
        try:
            self.stack.up()
            admin = AdminClient({"bootstrap.servers": self.stack.kafka.address})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
            password = self.stack.airflow.passwords()["admin"]
            with AirflowApi(self.stack.airflow.url, "admin", password) as api:
                for dag in (*map(coordinator, self._polls), PRUNING_DAG):
                    wait_for(f"DAG {dag} is parsed", partial(api.has_dag, dag), _PATIENCE)
                api.set_paused(PRUNING_DAG, True)  # until it is measured
                yield api
        finally:
            self.stack.down()

    @contextmanager
    def coordinated(self, api: AirflowApi, cluster: str) -> Iterator[Consumers]:
        """Yield simulated consumers of `cluster`, whose coordinator has given them partitions; paused in the end."""
        dag = coordinator(cluster)
        place = Place(
            self.stack.zookeeper.address,
            self.stack.consul.ports["http"],
            self.stack.kafka.address,
            cluster,
            f"muster-{cluster}",
            check_interval=1.0,
        )
        with Consumers(place) as consumers:
            consumers.join(CONSUMERS)
            api.set_paused(dag, False)
            try:
                wait_for("the first plan", partial(self.database.ended, dag), _PATIENCE)
                yield consumers
            finally:
                api.set_paused(dag, True)

    @contextmanager
    def history(self, cluster: str) -> Iterator[TopicStore]:
        """Open what is written of `cluster` in ZooKeeper."""
        zookeeper = ZooKeeperSettings(hosts=self.stack.zookeeper.address)
        with TopicStore(zookeeper, cluster, read_only=True) as store:
            yield store


def coordinator(cluster: str) -> str:
    """Return the id of the coordinator's DAG."""
    return f"muster_coordinator__{cluster}"
