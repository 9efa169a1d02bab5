"""Muster installed in another Airflow: a fresh environment, an empty AIRFLOW_HOME, a handler in its own package.

Only ZooKeeper, Consul and Kafka are the checkout's; Airflow, the jobs and the command line come from the environment,
and have nothing of the checkout on any path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.airflow import ROOT, Airflow
from devstack.airflow_api import AirflowApi
from devstack.demo.arrivals import count_numbers
from devstack.demo.cluster_view import ClusterView
from devstack.guard import guard
from devstack.leftovers import MARKER, end_all, end_consumers
from devstack.wheel import install_as_typed, install_lowest, make_environment
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.install.proof import Proof
from tests.support.airflow_home import give_database
from tests.support.number_producer import NumberProducer

PARTITIONS = 6
HANDLER_PROJECT = """
[project]
name = "numbers-store"
version = "1"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
py-modules = ["numbers_store"]
"""
HANDLER = '''
"""Stores each batch as Parquet files, by a function in Python."""
import os
import uuid

from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

FOLDER = f"{os.environ['NUMBERS']}/writer={uuid.uuid4()}"


@udf(BinaryType())
def same(value):
    return value


def process(batch_df, batch):
    batch_df.withColumn("value", same("value")).write.mode("append").parquet(FOLDER)
'''
PAGES_SPARK = "4.3.0"
"""The other Spark that the page's line names."""


@dataclass(frozen=True)
class Servers:
    """The checkout's, and an empty database of Airflow's."""

    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    kafka: KafkaSettings
    database: Path


@dataclass
class Installation:
    """What the steps look at and act on. The cluster and its only topic have one `name`."""

    installed: Installed
    name: str
    folder: Path
    airflow: Airflow
    api: AirflowApi
    view: ClusterView
    producer: NumberProducer
    wait: Eventually
    first_record: float = 0.0
    """Seconds from the beginning of the installation until the handler had a record."""

    @property
    def coordinator(self) -> str:
        """The id of the coordinator's DAG."""
        return f"muster_coordinator__{self.name}"

    @property
    def consumers(self) -> str:
        """The id of the consumers' DAG."""
        return f"muster_consumers__{self.name}"

    @property
    def data(self) -> Path:
        """Where the handler writes."""
        return self.folder / "data"

    def until(self, condition: Callable[[], Any], timeout: float, what: str) -> None:
        """Wait for a condition; a failure says how things stand."""
        try:
            self.wait(condition, timeout, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.view.describe(self.name)}") from error

    def shared(self, *shares: int) -> bool:
        """Whether the topic is Stable with these numbers of partitions."""
        return self.view.stable(self.name) and sorted(self.view.shares(self.name).values()) == sorted(shares)

    def flows(self) -> None:
        """Whatever was produced by now arrives."""
        produced = self.producer.produced
        self.until(lambda: count_numbers(self.data).complete_to >= produced, 60, f"{produced} records arrive")

    def muster(self, *arguments: str) -> str:
        """Run the installed command and return what it prints."""
        done = subprocess.run(
            [self.installed.python.with_name("muster"), *arguments],
            env=os.environ | self.airflow.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def page(self, path: str) -> Any:
        """What the dashboard's API answers to the user of `api`."""
        login = {"username": "admin", "password": self.airflow.passwords()["admin"]}
        with httpx.Client(base_url=self.airflow.url, timeout=60, trust_env=False) as client:
            token = client.post("/auth/token", json=login).json()["access_token"]
            answer = client.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def task(self, number: int) -> tuple[str, dict[str, Any]]:
        """The present run of the consumers' DAG, and the task of consumer `number` in it."""
        run = str(self.api.runs(self.consumers, limit=1)[0]["dag_run_id"])
        tasks = self.api.task_instances(self.consumers, run)
        return run, next(task for task in tasks if task["map_index"] == number - 1)


@dataclass(frozen=True)
class Kind:
    """What is installed: a version of Python, of Spark where consumers have an environment of their own, and how.

    `airflow` is the version that is there before, where it is not to come with Muster.
    """

    python: str
    spark: str = ""
    how: str = "pinned"
    airflow: str = ""

    @property
    def first_hour(self) -> bool:
        """Whether it is installed as the page *First hour* has it."""
        return self.how == "typed" and not self.spark and not self.airflow

    def __str__(self) -> str:
        """Return an id for a test."""
        airflow = self.airflow and f"airflow{self.airflow}"
        return "-".join(filter(None, (self.python, airflow, self.spark, self.how)))


@dataclass(frozen=True)
class Installed:
    """The Python of a fresh environment with Airflow, and that of the consumers, which may have another Spark.

    `began` is when its installation did.
    """

    kind: Kind
    spark: str
    airflow: str
    python: Path
    consumers: Path
    began: float

    @property
    def variables(self) -> dict[str, str]:
        """What has Airflow submit consumers with the other Spark, if there is one."""
        if self.consumers == self.python:
            return {}
        [home] = self.consumers.parents[1].glob("lib/python*/site-packages/pyspark")
        path = os.pathsep.join(map(str, (self.python.parent, self.consumers.parent, os.environ["PATH"])))
        return {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(self.consumers), "PATH": path}


def typed(extra: str, page: str = "docs/install.md") -> str:
    """The line that a page has people install an extra by."""
    lines = re.findall(r"pip install '?muster-kafka[^`\n]*", (ROOT / page).read_text("utf-8"))
    (line,) = (line for line in lines if f"[{extra}]" in line)
    return str(line)


@contextmanager
def environment_of(kind: Kind, python: Path, wheel: Path) -> Iterator[Installed]:
    """A fresh environment, outside pytest's folders, which keep the last ones: it is large."""
    began = time.time()
    with tempfile.TemporaryDirectory(prefix=f"muster-installed-{kind.python}-") as folder:
        handler = Path(folder, "handler")
        handler.mkdir()
        (handler / "pyproject.toml").write_text(HANDLER_PROJECT)
        (handler / "numbers_store.py").write_text(HANDLER)
        env = Path(folder, "env")
        if kind.how == "typed":
            before = f"pip install 'apache-airflow=={kind.airflow}.*' && " if kind.airflow else ""
            made = install_as_typed(env, python, before + typed("airflow,spark", "README.md"), wheel, handler)
        elif kind.how == "lowest":
            made = install_lowest(env, python, wheel, ("airflow", "spark"), handler)
        else:
            made = make_environment(env, python, f"{wheel}[airflow,spark]", handler)
        consumers = made
        if kind.spark:
            line = typed("own-spark").replace(PAGES_SPARK, kind.spark)
            assert f"pyspark=={kind.spark}'" in line
            consumers = install_as_typed(Path(folder, "env-of-consumers"), python, line, wheel, handler)
        spark, airflow = version_in(consumers, "pyspark"), version_in(made, "apache-airflow")
        assert airflow.startswith(kind.airflow)
        yield Installed(kind, spark, airflow, made, consumers, began)


def version_in(python: Path, package: str) -> str:
    """The version of a package in an environment."""
    code = f"from importlib.metadata import version; print(version('{package}'))"
    environment = os.environ | {"PYTHONPATH": ""}
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


@contextmanager
def airflow_of(
    installed: Installed, name: str, servers: Servers, folder: Path, wait: Eventually
) -> Iterator[Installation]:
    """An Airflow that runs in a fresh environment, with records for cluster `name`."""
    python = installed.python
    home = folder / "airflow-home"
    init = [python.with_name("muster"), "init", home]
    subprocess.run(init, env=os.environ | {"PYTHONPATH": ""}, cwd=folder, check=True, timeout=60)
    settings = home / "clusters.d" / "example.yaml"
    text = settings.read_text().replace("example", name).replace("my_package.my_module", "numbers_store")
    text = text.replace("spark_conf: {", "spark_conf: {spark.driver.memory: 512m, ")
    settings.write_text(text)
    environment = {
        MARKER: str(folder),
        "NUMBERS": str(folder / "data"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        **connections(servers),
        **installed.variables,
    }
    airflow = Airflow(
        folder / "airflow", extra_environment=environment, home=home, guarded=True, python=python
    )
    if installed.airflow == version("apache-airflow"):  # another one makes a database of its own
        give_database(airflow, servers.database)
    guard.watch_marker(MARKER, str(folder))
    admin = AdminClient(dict(servers.kafka.config))
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    try:
        airflow.start()
        with (
            AirflowApi(airflow.url, "admin", airflow.passwords()["admin"]) as api,
            ClusterView(
                load_clusters(settings)[name], servers.zookeeper, servers.consul, servers.kafka
            ) as view,
        ):
            producer = NumberProducer(servers.kafka.bootstrap_servers, name)
            try:
                yield Installation(installed, name, folder, airflow, api, view, producer, wait)
            finally:
                producer.stop()
    finally:
        airflow.stop()
        end_consumers(folder, 20)
        end_all(folder)


def connections(servers: Servers) -> dict[str, str]:
    """Airflow's, as environment variables."""
    found = {
        "kafka": {"conn_type": "kafka", "extra": servers.kafka.config},
        "zookeeper": {"conn_type": "zookeeper", "host": servers.zookeeper.hosts},
        "consul": {"conn_type": "consul", "host": servers.consul.host, "port": servers.consul.port},
        "spark": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
    }
    return {f"AIRFLOW_CONN_MUSTER_{name.upper()}": json.dumps(each) for name, each in found.items()}


def begins(world: Installation) -> None:
    """Its DAGs are there, and both consumers come up."""
    for dag in (world.consumers, world.coordinator):
        world.until(lambda dag=dag: world.api.has_dag(dag), 90, f"{dag} is parsed")
        world.api.set_paused(dag, False)
    world.until(lambda: count_numbers(world.data).rows, 240, "the handler has a record")
    world.first_record = time.time() - world.installed.began
    world.until(lambda: world.shared(3, 3), 240, "both consumers share the partitions")
    world.flows()


def all_arrived(world: Installation) -> Proof:
    """Every record that was produced until now, and what came of it."""
    produced = world.producer.stop()
    world.until(lambda: count_numbers(world.data).rows == produced, 60, "every record arrives")
    found = count_numbers(world.data)
    installed = world.installed
    doubled = found.records - found.rows
    return Proof(
        installed.kind.python,
        installed.spark,
        installed.airflow,
        produced,
        found.rows,
        doubled,
        world.first_record,
        installed.kind.first_hour,
    )


def leaves_and_returns(world: Installation, number: int = 2) -> None:
    """One consumer is stopped in order from its task, and comes back when that is cleared."""
    world.until(lambda: world.task(number)[1]["state"] == "deferred", 60, "its task is deferred")
    run, task = world.task(number)
    world.api.mark(world.consumers, run, task["task_id"], number - 1, "failed")
    world.until(lambda: world.shared(PARTITIONS), 90, "the other one has all")
    world.flows()
    world.api.clear(world.consumers, run, task["task_id"], number - 1)
    world.until(lambda: world.shared(3, 3), 120, "both share again")
    world.flows()


def is_isolated_and_restored(world: Installation) -> None:
    """By the command line, and by a DAG with a form."""
    consumer = f"{world.name}-1"
    world.muster("isolate", "--cluster", world.name, consumer, "--reason", "its disk is failing")
    world.until(lambda: world.shared(PARTITIONS), 60, "the other one has all")
    world.flows()
    form = {"command": "restore", "consumer": consumer, "reason": "a new disk"}
    dag = f"muster_commands__{world.name}"
    run = world.api.trigger(dag, form)
    world.until(lambda: world.api.run_state(dag, run) == "success", 60, dag)
    world.until(lambda: world.shared(3, 3), 60, "both share again")
