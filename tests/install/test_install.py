"""Muster in another Airflow: a wheel, a fresh environment, an empty AIRFLOW_HOME, a handler in its own package.

Only ZooKeeper, Consul and Kafka are the checkout's; Airflow, the jobs and the command line come from the environment,
and have nothing of the checkout on any path. With MUSTER_TEST_INSTALL=long on every supported end of Python, else on
the newest.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.airflow import ROOT, Airflow
from devstack.airflow_api import AirflowApi
from devstack.demo.arrivals import count_numbers
from devstack.demo.cluster_view import ClusterView
from devstack.guard import guard
from devstack.leftovers import MARKER, end_all, end_consumers, processes_of
from devstack.wheel import build_wheel, find_python, make_environment
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.install.proof import FILE, Proof, write
from tests.support.airflow_home import give_database
from tests.support.number_producer import NumberProducer

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(900)]

PARTITIONS = 6
LONG = os.environ.get("MUSTER_TEST_INSTALL") == "long"
PYTHONS = ("3.11", "3.13") if LONG else ("3.13",)

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
"""Stores each batch as Parquet files."""
import os
import uuid

FOLDER = f"{os.environ['NUMBERS']}/writer={uuid.uuid4()}"


def process(batch_df, batch):
    batch_df.write.mode("append").parquet(FOLDER)
'''


@dataclass
class World:
    """What the steps look at and act on. The cluster and its only topic have one `name`."""

    version: str
    name: str
    python: Path
    folder: Path
    airflow: Airflow
    api: AirflowApi
    view: ClusterView
    producer: NumberProducer
    wait: Eventually

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
        self.until(lambda: count_numbers(self.data).rows >= produced, 60, f"{produced} records arrive")

    def muster(self, *arguments: str) -> str:
        """Run the installed command and return what it prints."""
        done = subprocess.run(
            [self.python.with_name("muster"), *arguments],
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
        """What the dashboard's API answers to the person whom `api` is."""
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    FILE.unlink(missing_ok=True)
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def proofs() -> Iterator[list[Proof]]:
    made: list[Proof] = []
    yield made
    if len(made) == len(PYTHONS):
        write(made)


@pytest.fixture
def installed(request: pytest.FixtureRequest, wheel: Path) -> Iterator[tuple[str, Path]]:
    """A fresh environment, outside pytest's folders, which keep the last ones: it is large."""
    version = request.param
    python = find_python(version)
    if python is None:
        reason = f"Python {version} is not on this machine"
        (pytest.fail if LONG else pytest.skip)(reason)
    with tempfile.TemporaryDirectory(prefix="muster-installed-") as folder:
        handler = Path(folder, "handler")
        handler.mkdir()
        (handler / "pyproject.toml").write_text(HANDLER_PROJECT)
        (handler / "numbers_store.py").write_text(HANDLER)
        yield version, make_environment(Path(folder, "env"), python, f"{wheel}[airflow,spark]", handler)


@pytest.fixture
def world(
    installed: tuple[str, Path],
    airflow_database: Path,
    tmp_path: Path,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    eventually: Eventually,
) -> Iterator[World]:
    version, python = installed
    name = f"numbers{version.replace('.', '')}"
    home = tmp_path / "airflow-home"
    init = [python.with_name("muster"), "init", home]
    subprocess.run(init, env=os.environ | {"PYTHONPATH": ""}, cwd=tmp_path, check=True, timeout=60)
    settings = home / "clusters.d" / "example.yaml"
    text = settings.read_text().replace("example", name).replace("my_package.my_module", "numbers_store")
    text = text.replace("# spark_conf: {spark.driver.memory: 1g}", "spark_conf: {spark.driver.memory: 512m}")
    settings.write_text(text)
    environment = {
        MARKER: str(tmp_path),
        "NUMBERS": str(tmp_path / "data"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        **connections(zookeeper, consul, kafka),
    }
    airflow = Airflow(
        tmp_path / "airflow", extra_environment=environment, home=home, guarded=True, python=python
    )
    give_database(airflow, airflow_database)
    guard.watch_marker(MARKER, str(tmp_path))
    admin = AdminClient(dict(kafka.config))
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    try:
        airflow.start()
        with (
            AirflowApi(airflow.url, "admin", airflow.passwords()["admin"]) as api,
            ClusterView(load_clusters(settings)[name], zookeeper, consul, kafka) as view,
        ):
            producer = NumberProducer(kafka.bootstrap_servers, name)
            try:
                yield World(version, name, python, tmp_path, airflow, api, view, producer, eventually)
            finally:
                producer.stop()
    finally:
        airflow.stop()
        end_consumers(tmp_path, 20)
        end_all(tmp_path)


def connections(zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings) -> dict[str, str]:
    found = {
        "kafka": {"conn_type": "kafka", "extra": kafka.config},
        "zookeeper": {"conn_type": "zookeeper", "host": zookeeper.hosts},
        "consul": {"conn_type": "consul", "host": consul.host, "port": consul.port},
        "spark": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
    }
    return {f"AIRFLOW_CONN_MUSTER_{name.upper()}": json.dumps(each) for name, each in found.items()}


@pytest.mark.parametrize("installed", PYTHONS, indirect=True)
def test_muster_is_installed_into_an_airflow_and_loses_nothing(world: World, proofs: list[Proof]) -> None:
    has_nothing_of_the_checkout(world)
    brings_plugin_and_connection_types(world)
    for dag in (world.consumers, world.coordinator):
        world.until(lambda dag=dag: world.api.has_dag(dag), 90, f"{dag} is parsed")
        world.api.set_paused(dag, False)
    world.until(lambda: world.shared(3, 3), 240, "both consumers share the partitions")
    world.flows()
    has_nothing_of_the_checkout(world)
    answers(world)
    leaves_and_returns(world)
    is_isolated_and_restored(world)
    produced = world.producer.stop()
    world.until(lambda: count_numbers(world.data).rows == produced, 60, "every record arrives")
    found = count_numbers(world.data)
    proofs.append(Proof(world.version, produced, found.rows, found.records - found.rows))
    assert found.records == found.rows == produced


def has_nothing_of_the_checkout(world: World) -> None:
    """No process of Airflow's, and no job, has a path into the checkout."""
    there = processes_of(world.folder)
    assert there
    for process in there:
        try:
            environment, command = process.environ(), process.cmdline()
        except psutil.NoSuchProcess:
            continue  # a task that has ended
        seen = [*command, *(environment.get(name, "") for name in ("PYTHONPATH", "SPARK_HOME"))]
        assert not [each for each in seen if str(ROOT) in each], seen
    code = "import muster, numbers_store, sys; print(muster.__file__, numbers_store.__file__, *sys.path)"
    done = subprocess.run(
        [world.python, "-c", code],
        env=os.environ | world.airflow.environment(),
        cwd=world.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in done.stdout
    assert done.stdout.startswith(str(world.python.parents[1]))


def brings_plugin_and_connection_types(world: World) -> None:
    plugins = world.api.request("GET", "/plugins")["plugins"]
    assert [plugin["source"] for plugin in plugins if plugin["name"] == "muster"] != []
    assert world.api.request("GET", "/plugins/importErrors")["total_entries"] == 0
    providers = world.api.request("GET", "/providers", params={"limit": 100})["providers"]
    assert "muster" in {provider["package_name"] for provider in providers}
    types = {each["connection_type"]: each for each in world.page("/ui/connections/hook_meta")}
    assert types["zookeeper"]["extra_fields"].keys() >= {"use_ssl", "acl"}
    assert types["consul"]["standard_fields"]["password"]["title"] == "ACL token"
    for kind, port in (("zookeeper", 9), ("consul", None)):
        value = json.loads(world.airflow.extra_environment[f"AIRFLOW_CONN_MUSTER_{kind.upper()}"])
        asked = {"connection_id": "tried", **value}
        assert world.api.request("POST", "/connections/test", json=asked)["status"] is True
        asked |= {"host": "127.0.0.1:9", "port": port} if kind == "zookeeper" else {"port": 9}
        assert world.api.request("POST", "/connections/test", json=asked)["status"] is False


def answers(world: World) -> None:
    """The page and the command line say what there is."""
    [cluster] = world.page("/muster/api/clusters")["clusters"]
    assert cluster["name"] == world.name
    status = json.loads(world.muster("status", "--cluster", world.name, "--check", "--json"))
    assert [each["state"] for each in status["topics"]] == ["Stable"]
    assert "0 failed" in world.muster("doctor")


def leaves_and_returns(world: World) -> None:
    """One consumer is stopped in order from its task, and comes back when that is cleared."""
    world.until(lambda: world.task(2)[1]["state"] == "deferred", 60, "its task is deferred")
    run, task = world.task(2)
    world.api.mark(world.consumers, run, task["task_id"], 1, "failed")
    world.until(lambda: world.shared(PARTITIONS), 90, "the other one has all")
    world.flows()
    world.api.clear(world.consumers, run, task["task_id"], 1)
    world.until(lambda: world.shared(3, 3), 120, "both share again")
    world.flows()


def is_isolated_and_restored(world: World) -> None:
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
