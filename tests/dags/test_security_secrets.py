"""No secret shows: all parts run with secrets that occur nowhere else, on servers that ask for them, and everything
that people can look at is searched. The connections, rights and settings are those of `docs/security.md`."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.certificates import Authority
from devstack.ports import free_port
from devstack.secured import SecureConsul, SecureKafka, SecureZooKeeper
from devstack.server import Server
from muster.airflow.submission import Submission
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.settings.connections import ConsulSettings, KafkaSettings
from tests.conftest import Eventually
from tests.dags.dag_runner import DagRunner, Run
from tests.support.only_long import only_long
from tests.support.secured import (
    CLUSTER,
    CONSUMER,
    COORDINATOR,
    GROUP,
    SERVICE,
    TOPIC,
    ConsulTokens,
    Passwords,
    as_environment,
    connection,
    example,
)

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]

JOB = f"{CLUSTER}-1"
RECORDS = 100


def shows(where: str, text: bytes, hidden: dict[str, str]) -> list[str]:
    """Which of the secrets stand in `text`, as they are or as HTTP would carry them."""
    found = []
    for name, secret in hidden.items():
        forms = {secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode().rstrip("=")}
        found += [f"{name} in {where}" for form in forms if form.encode() in text]
    return found


def test_the_search_finds_what_it_looks_for() -> None:
    hidden = {"password": "pass/word"}
    assert shows("here", b"x pass/word x", hidden) == ["password in here"]
    assert shows("here", b"http://h/?token=pass%2Fword&x", hidden) == ["password in here"]
    assert shows("here", b"Basic " + base64.b64encode(b"pass/word"), hidden) == ["password in here"]
    assert shows("here", b"pass word", hidden) == []


class CommandLines:
    """Every command line that any process has while it watches, short-lived ones as far as one can see them."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.seen.add(process.read_bytes())


@dataclass
class Locked:
    """The three servers with locks, what opens them, and Airflow's environment for it."""

    zookeeper: SecureZooKeeper
    consul: SecureConsul
    kafka: SecureKafka
    hidden: dict[str, str]
    environment: dict[str, str]
    discovery: ConsulCluster
    offsets: GroupOffsets
    status: str
    ui: int
    runs: dict[str, Run] = field(default_factory=dict)
    folder: Path = Path()


@pytest.fixture
def locked(
    secure_zookeeper: SecureZooKeeper,
    secure_consul: SecureConsul,
    secure_kafka: SecureKafka,
    consul_tokens: ConsulTokens,
    passwords: Passwords,
    authority: Authority,
    airflow_environment: dict[str, str],
    tmp_path: Path,
) -> Iterator[Locked]:
    ca = str(authority.ca)
    status = f"{secrets.token_hex(8)}/+{secrets.token_hex(8)}"
    ui = free_port()
    consul = {"HOST": "127.0.0.1", "CA": ca}
    zookeeper = {"HOSTS": secure_zookeeper.secure_address, "CA": ca}
    kafka = {"SERVERS": secure_kafka.address, "CA": ca}
    connections = {
        "muster_zookeeper": connection("zookeeper-coordinator", PASSWORD=passwords.coordinator, **zookeeper),
        "muster_zookeeper_consumer": connection(
            "zookeeper-consumer", PASSWORD=passwords.consumer, **zookeeper
        ),
        "muster_consul": connection("consul-connection", TOKEN=consul_tokens.airflow, **consul),
        "muster_consul_consumer": connection("consul-connection", TOKEN=consul_tokens.consumer, **consul),
        "muster_kafka": connection(
            "kafka-connection", USER=COORDINATOR, PASSWORD=passwords.coordinator, **kafka
        ),
        "muster_kafka_consumer": connection(
            "kafka-connection", USER=CONSUMER, PASSWORD=passwords.consumer, **kafka
        ),
        "muster_status": connection("status-connection", TOKEN=status),
        "muster_spark": {"conn_type": "spark", "host": "local[1]"},
    }
    for name in ("muster_consul", "muster_consul_consumer"):
        connections[name]["port"] = secure_consul.port
    clusters = yaml.safe_load(example("clusters", PATH=str(tmp_path / "data")))
    clusters["clusters"][CLUSTER] |= {"long_poll_timeout": "1s"}
    clusters["clusters"][CLUSTER]["consumers"] |= {
        "spark_conf": {"spark.ui.enabled": True, "spark.ui.port": ui, "spark.driver.memory": "512m"},
        "graceful_timeout": "15s",
    }
    file = tmp_path / "clusters.yaml"
    file.write_text(yaml.safe_dump(clusters), encoding="utf-8")
    token = consul_tokens.airflow
    settings = {"host": "127.0.0.1", "port": secure_consul.port, "scheme": "https", "ca": ca, "token": token}
    offsets = GroupOffsets(
        KafkaSettings(config=connections["muster_kafka_consumer"]["extra"], operation_timeout=30.0), GROUP
    )
    yield Locked(
        secure_zookeeper,
        secure_consul,
        secure_kafka,
        {
            "the coordinator's password": passwords.coordinator,
            "the consumer's password": passwords.consumer,
            "Airflow's Consul token": consul_tokens.airflow,
            "the consumer's Consul token": consul_tokens.consumer,
            "the status pages' token": status,
        },
        airflow_environment | as_environment(connections) | {"MUSTER_CLUSTERS": str(file)},
        ConsulCluster(ConsulSettings.model_validate(settings), CLUSTER, SERVICE),
        offsets,
        status,
        ui,
        folder=tmp_path,
    )
    offsets.close()


def run_dag(locked: Locked, kind: str, log: Path) -> Run:
    environment = os.environ | locked.environment
    runner = DagRunner(environment)
    try:
        return runner.run(f"muster_{kind}__{CLUSTER}", environment, log)
    finally:
        runner.close()


def fill_topic(kafka: SecureKafka) -> int:
    """Write records; the end of the topic's one partition."""
    admin = AdminClient(kafka.client_settings(), logger=librdkafka_logger())
    if TOPIC not in admin.list_topics(timeout=60).topics:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    producer = Producer(kafka.client_settings(), logger=librdkafka_logger())
    ends: list[int] = []
    for number in range(RECORDS):
        producer.produce(
            TOPIC, str(number).encode(), partition=0, on_delivery=lambda _, m: ends.append(m.offset() + 1)
        )
    assert producer.flush(60) == 0
    return max(ends)


@only_long
def test_no_secret_shows_anywhere(locked: Locked, eventually: Eventually) -> None:
    end = fill_topic(locked.kafka)
    consumers_log = locked.folder / "consumers.log"
    consumers: list[Run] = []
    running = threading.Thread(target=lambda: consumers.append(run_dag(locked, "consumers", consumers_log)))
    pages: dict[str, bytes] = {}
    with CommandLines() as commands:
        running.start()
        try:
            watched = f"watching consumer {JOB}"
            eventually(lambda: consumers_log.exists() and watched in consumers_log.read_text(), 300, watched)
            coordinator = run_dag(locked, "coordinator", locked.folder / "coordinator.log")
            assert coordinator.state == "success", coordinator.log

            def consumed() -> bool:
                return locked.offsets.committed([(TOPIC, 0)])[TOPIC, 0] == end

            eventually(consumed, 300, "all records are read and committed")
            pages |= consumer_pages(locked)
            pages |= spark_pages(locked.ui)
        finally:
            stop(locked, running)
    [run] = consumers
    assert run.tasks == {f"consumer[{JOB}]": "skipped"}, run.log
    assert "was stopped by anna: the test is over" in run.log
    searched = {
        **{f"page {name}": text for name, text in pages.items()},
        **{f"command line {line[:60]!r}": line for line in commands.seen},
        **{f"the log of {s.name}": s.log.read_bytes() for s in servers(locked)},
        **dict(files(locked.folder, "*.log")),
        **dict(files(Path(locked.environment["AIRFLOW_HOME"]), "*")),
        "XComs": json.dumps([coordinator.xcoms, run.xcoms, coordinator.events]).encode(),
        "rendered templates": rendered(locked),
    }
    found = [hit for where, text in searched.items() for hit in shows(where, text, locked.hidden)]
    assert not found, "\n".join(found)
    that_it_looked_at_something(searched)


def consumer_pages(locked: Locked) -> dict[str, bytes]:
    registration = locked.discovery.catalog.members().registered[JOB]
    url = f"http://{registration.address}:{registration.port}"
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.get(f"{url}/status").status_code == 401
        allowed = {"Authorization": f"Bearer {locked.status}"}
        answers = {
            path: client.get(url + path, headers=allowed) for path in ("/status", "/metrics", "/health")
        }
    assert {answer.status_code for answer in answers.values()} == {200}
    catalog = locked.consul.get(f"/v1/health/service/{SERVICE}").content
    keys = b"".join(
        base64.b64decode(entry["Value"] or "")
        for entry in locked.consul.get(f"/v1/kv/muster/{CLUSTER}/?recurse=1").json()
    )
    return {path: answer.content for path, answer in answers.items()} | {"catalog": catalog, "keys": keys}


def spark_pages(port: int) -> dict[str, bytes]:
    """What Spark's UI shows: settings, plans of the queries, tasks."""
    base = f"http://127.0.0.1:{port}"
    with httpx.Client(trust_env=False, timeout=60) as client:
        [application] = client.get(f"{base}/api/v1/applications").json()
        api = f"/api/v1/applications/{application['id']}"
        paths = [
            f"{api}/environment",
            f"{api}/sql?details=true&planDescription=true&length=50",
            f"{api}/stages",
        ]
        paths += [f"{api}/jobs", "/environment/", "/StreamingQuery/", "/SQL/"]
        answers = {path: client.get(base + path) for path in paths}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {path: answer.content for path, answer in answers.items()}


def stop(locked: Locked, running: threading.Thread) -> None:
    """End the job in order, and by force if it comes to that."""
    noted = Submission.from_dict(locked.discovery.jobs.submission(JOB))
    if noted is not None:
        locked.discovery.jobs.request_stop(JOB, noted.incarnation, "anna", "the test is over")
    running.join(300)
    if noted is not None and noted.pid is not None:
        with suppress(psutil.NoSuchProcess):
            for process in [psutil.Process(noted.pid), *psutil.Process(noted.pid).children(recursive=True)]:
                process.kill()


def servers(locked: Locked) -> list[Server]:
    return [locked.zookeeper, locked.consul, locked.kafka]


def files(folder: Path, pattern: str) -> Iterable[tuple[str, bytes]]:
    for path in folder.rglob(pattern):
        if path.is_file():
            yield f"file {path.relative_to(folder)}", path.read_bytes()


def rendered(locked: Locked) -> bytes:
    """What Airflow keeps of rendered templates."""
    database = Path(locked.environment["AIRFLOW_HOME"]) / "airflow.db"
    with sqlite3.connect(database) as connected:
        rows: list[Any] = connected.execute("SELECT * FROM rendered_task_instance_fields").fetchall()
    return json.dumps(rows, default=str).encode()


def that_it_looked_at_something(searched: dict[str, bytes]) -> None:
    """Each kind of place shows what it may show, so its silence on secrets means something."""

    def somewhere(kind: str, text: str) -> Callable[[], bool]:
        return lambda: any(text.encode() in found for where, found in searched.items() if kind in where)

    expected = {
        "command line": f"muster {CLUSTER} {JOB}",
        "environment": "spark.app.name",
        "planDescription": "muster",
        "/status": JOB,
        "the log of Consul": "/v1/agent/service/register",
        "file coordinator.log": "advance_state",
        f"file logs/muster/{CLUSTER}/{JOB}": "registered as",
        "rendered templates": JOB,
        "XComs": TOPIC,
        "keys": "incarnation",
    }
    for kind, text in expected.items():
        assert somewhere(kind, text)(), f"{kind} does not show {text}: {[w for w in searched if kind in w]}"
