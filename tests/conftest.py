"""Fixtures that all tests share: real servers, each started when a test first asks for it.

The servers live as long as the test session and end with it, even when pytest is killed. A test that does harm to
a server (kill, pause) puts it right again, or starts one of its own with `devstack`'s classes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from devstack.connector import connector_jar
from devstack.consul import Consul
from devstack.hosts import why_not
from devstack.kafka import Kafka
from devstack.postgresql import PostgreSQL
from devstack.server import Server
from devstack.zookeeper import ZooKeeper
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.faults.summary import (  # noqa: F401  hooks
    pytest_report_header,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.support.airflow_home import make_database
from tests.support.debian_programs import needed
from tests.support.secured import (  # noqa: F401  fixtures
    authority,
    consul_tokens,
    passwords,
    secure_consul,
    secure_kafka,
    secure_zookeeper,
    server_certificate,
    stranger_ca,
)
from tests.support.servers import running

T = TypeVar("T")

# Half the machine's time at the start of a JVM goes into compiling what runs for a minute. All that are started here
# take it: servers, Spark's drivers and executors.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

SERVER_FIXTURES = {
    *("zookeeper_server", "consul_server", "kafka_server", "postgresql_server"),
    *("secure_zookeeper", "secure_consul", "secure_kafka"),
}


HEAVY = (
    *(
        "tests/e2e/",
        "tests/faults/real/",
        "tests/hosts/",
        "tests/week/",
        "tests/install/",
        "tests/spark/test_consumer_job.py",
    ),
    *(
        "tests/dags/test_running_airflow.py",
        "tests/dags/test_cluster_mode.py",
        "tests/dags/test_spark_standalone.py",
    ),
)
"""What starts a whole Airflow, several hosts or several Sparks."""

SLOW_FIRST = ("airflow", "spark", "stack")
"""Marks of what takes long."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where a test starts Spark, the checkout's connector is built."""
    if any(item.get_closest_marker(name) for name in ("spark", "airflow")):
        connector_jar()


class Eventually(Protocol):
    """`eventually(condition, timeout=30, what="...")` returns the condition's first true value."""

    def __call__(self, condition: Callable[[], T], timeout: float = 30.0, what: str = "") -> T: ...


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses a server with `stack`, so that `-m "not stack"` needs none.

    Where several processes share the tests, the files that take longest come first, and the others fill up the end.
    """
    slow: set[str] = set()
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stack)
        if any(item.get_closest_marker(mark) for mark in SLOW_FIRST):
            slow.add(scope_of(item.nodeid))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not item.nodeid.startswith(HEAVY), scope_of(item.nodeid) not in slow))


def scope_of(nodeid: str) -> str:
    """Return what a test shares its process with: its part of `HEAVY`, or its file."""
    return next((part for part in HEAVY if nodeid.startswith(part)), nodeid.partition("::")[0])


class InTurn(LoadScopeScheduling):
    """Has one process at a time take `HEAVY` tests: two such stacks at once keep a small machine so busy that neither
    gets on. The others go file by file to the process that is free. At the end, when only heavy ones are left, the
    processes share those."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [units for other, units in self.assigned_work.items() if other is not node]
        under_way = {scope for units in others for scope, tests in units.items() if not all(tests.values())}
        elsewhere = not under_way.isdisjoint(HEAVY)
        wanted = next((scope for scope in self.workqueue if (scope in HEAVY) != elsewhere), None)
        if wanted is not None:
            self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InTurn:
    """Groups by mark (`--dist loadgroup`) do nothing in xdist 3.8 with pytest 9.2."""
    return InTurn(config, log)


def pytest_unconfigure() -> None:
    """librdkafka's threads may still log when pytest has closed the streams; that is no error any more."""
    logging.raiseExceptions = False


@pytest.fixture(scope="session")
def servers_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def zookeeper_server(servers_dir: Path) -> Iterator[Server]:
    with running(ZooKeeper(servers_dir / "zookeeper", guarded=True)) as server:
        yield server


@pytest.fixture(scope="session")
def consul_server(servers_dir: Path) -> Iterator[Server]:
    with running(Consul(servers_dir / "consul", guarded=True)) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(servers_dir: Path) -> Iterator[Server]:
    with running(Kafka(servers_dir / "kafka", guarded=True)) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_server(servers_dir: Path) -> Iterator[Server]:
    needed("pg_lsclusters")
    with running(PostgreSQL(servers_dir / "postgresql", guarded=True)) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(zookeeper_server: ZooKeeper) -> ZooKeeperSettings:
    return ZooKeeperSettings(hosts=zookeeper_server.address)


@pytest.fixture(scope="session")
def consul(consul_server: Consul) -> ConsulSettings:
    return ConsulSettings(host="127.0.0.1", port=consul_server.port)


@pytest.fixture(scope="session")
def kafka(kafka_server: Kafka) -> KafkaSettings:
    return KafkaSettings(config={"bootstrap.servers": kafka_server.address})


@pytest.fixture
def connections(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The three servers as connections of Airflow's, in the environment."""
    for name, values in {
        "zookeeper": {"conn_type": "generic", "host": zookeeper.hosts},
        "consul": {"conn_type": "http", "host": consul.host, "port": consul.port},
        "kafka": {"conn_type": "kafka", "extra": dict(kafka.config)},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_MUSTER_{name.upper()}", json.dumps(values))


@pytest.fixture
def group(kafka: KafkaSettings) -> Iterator[GroupOffsets]:
    """The offsets of a group of its own."""
    made = GroupOffsets(kafka, f"g-{uuid4().hex[:8]}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def airflow_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database of Airflow's, to be copied; the first process that needs it makes it for all of a run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "airflow-database"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make_database(folder)
            (folder / "made").touch()
    return folder / "airflow.db"


@pytest.fixture(scope="session")
def hosts_possible() -> None:
    """For tests with hosts of their own: skipped without the right to make them, but never with `CI` set."""
    if reason := why_not():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Wait for a condition instead of sleeping and hoping.

    An AssertionError within the condition counts as "not yet"; at the deadline it is the failure that is shown.
    """

    def wait(condition: Callable[[], T], timeout: float = 30.0, what: str = "") -> T:
        deadline = time.monotonic() + timeout
        while True:
            failure: AssertionError | None = None
            try:
                if value := condition():
                    return value
            except AssertionError as error:
                failure = error
            if time.monotonic() > deadline:
                message = f"not within {timeout:g} s: {what or getattr(condition, '__name__', condition)}"
                raise AssertionError(message) from failure
            time.sleep(0.05)

    return wait
