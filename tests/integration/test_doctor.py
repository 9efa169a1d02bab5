"""`muster doctor` on real servers: what is right, what is away, what is refused; and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

import muster
from devstack.certificates import Authority
from devstack.ports import free_port
from devstack.secured import SecureConsul, SecureZooKeeper
from muster.cli.main import main
from muster.core.deployment import Deployment
from muster.core.wire import PROTOCOL, assignment_path
from muster.edges.consul import ConsulCluster
from muster.edges.kafka_admin import librdkafka_logger
from muster.edges.zookeeper import TopicStore, make_client, start_client, stop_client
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.obedient_consumers import registered
from tests.support.secured import CLUSTER, ConsulTokens, Passwords, connection
from tests.support.whole_tree import whole_tree

ROOT = Path(__file__).parents[2]
Checks = Mapping[tuple[str, str], dict[str, Any]]
HANDLER = "muster.handlers.parquet.ParquetHandler"


@dataclass
class Site:
    """Settings and connections of clusters, and the command that is pointed at them."""

    path: Path
    connections: dict[str, dict[str, Any]]
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        self.path.write_text(yaml.safe_dump({"clusters": self.clusters}))
        names = {
            f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in self.connections.items()
        }
        return {"MUSTER_CLUSTERS": str(self.path), **names}

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(main, ["doctor", "--timeout", "2", *args], env=self.environment())

    def checks(self, exit_code: int, cluster: str) -> Checks:
        result = self.run("--cluster", cluster, "--json")
        assert result.exit_code == exit_code, result.output
        report = json.loads(result.stdout)
        assert report["well"] == (exit_code == 0)
        checks = [*report["general"], *report["clusters"][cluster]]
        for check in checks:
            assert bool(check["step"]) == (check["outcome"] in {"failed", "warning"}), check
        return {(check["part"], check["name"]): check for check in checks}


def outcomes(checks: Checks, outcome: str) -> set[tuple[str, str]]:
    return {key for key, check in checks.items() if check["outcome"] == outcome}


def entry(name: str, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "consul_service": name,
        "group_id": name,
        "topics": [topic],
        "consumers": {
            "handler": HANDLER,
            "handler_options": {"path": "x"},
            "spark_conf": {"spark.ui.enabled": False},
        },
        **more,
    }


@pytest.fixture(autouse=True)
def no_airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith(("AIRFLOW", "MUSTER"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def topic(kafka: KafkaSettings) -> str:
    name = f"doctored-{uuid4().hex[:8]}"
    admin = AdminClient(kafka.config, logger=librdkafka_logger())
    for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
        future.result(20)
    return name


@pytest.fixture
def name() -> str:
    return f"d{uuid4().hex[:10]}"


@pytest.fixture
def site(
    tmp_path: Path,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    name: str,
    topic: str,
) -> Site:
    return Site(
        tmp_path / "clusters.yaml",
        {
            "muster_zookeeper": {"conn_type": "generic", "host": zookeeper.hosts},
            "muster_consul": {"conn_type": "http", "host": consul.host, "port": consul.port},
            "muster_kafka": {"conn_type": "kafka", "extra": kafka.config},
            "muster_spark": {"conn_type": "spark", "host": "local"},
            "muster_airflow": {"conn_type": "http", "host": "http://127.0.0.1:9", "password": "a-token"},
        },
        {name: entry(name, topic)},
    )


@pytest.fixture
def store(zookeeper: ZooKeeperSettings, name: str, topic: str) -> Iterator[TopicStore]:
    """The cluster's nodes, with one topic."""
    with TopicStore(zookeeper, name) as store:
        store.create_topic(topic, "127.0.0.1:9", name)
        store.set_partitions(topic, frozenset(range(3)))
        yield store


def trace(zookeeper: ZooKeeperSettings, consul: ConsulSettings) -> object:
    """Every node with its versions, and Consul's keys with the index of their last change."""
    raw = make_client(zookeeper)
    start_client(raw, zookeeper)
    try:
        nodes = {
            path: (data, stat.mzxid, stat.pzxid, stat.version, stat.cversion, stat.aversion)
            for path, (data, stat) in whole_tree(raw).items()
        }
    finally:
        stop_client(raw, 5.0)
    keys = httpx.get(f"http://{consul.host}:{consul.port}/v1/kv/?recurse=1", trust_env=False)
    return nodes, keys.text, keys.headers["X-Consul-Index"]


def live(discovery: ConsulCluster, eventually: Eventually, count: int) -> None:
    def there() -> bool:
        membership = discovery.catalog.members().membership
        return membership is not None and len(membership.live) == count

    eventually(there)


def test_doctor_finds_a_healthy_cluster_well_and_leaves_nothing(
    site: Site,
    store: TopicStore,
    name: str,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    eventually: Eventually,
) -> None:
    discovery = ConsulCluster(consul, name, name)
    meta = {"version": muster.__version__, "protocol": str(PROTOCOL), "incarnation": "a-1"}
    with registered(store, discovery, {"a": meta}):
        live(discovery, eventually, 1)
        before = trace(zookeeper, consul)
        checks = site.checks(0, name)
        assert trace(zookeeper, consul) == before
    assert not outcomes(checks, "skipped")
    assert not outcomes(checks, "warning")
    assert checks["zookeeper", "version"]["found"].startswith("ZooKeeper 3.")
    assert checks["consul", "version"]["found"].startswith("Consul 1.")
    assert "1 broker" in checks["kafka", "reachable"]["found"]
    assert checks["kafka", "topics"]["found"] == "1 topics with 3 partitions"
    assert "not tried" in checks["kafka", "group"]["found"]
    assert "fencing" in checks["kafka", "group"]["found"]
    assert checks["zookeeper", "write topics"]["found"] == "may write all 1 nodes of topics"
    assert checks["consumers", "status pages"]["found"] == "all 1 answer"
    assert f"with version {PROTOCOL} of the protocol" in checks["consumers", "versions"]["found"]
    assert {
        ("packages", p) for p in ("muster", "Python", "Airflow", "Spark", "requirements", "extra airflow")
    } <= set(checks)


def test_a_cluster_that_never_ran_is_not_made(
    site: Site, name: str, zookeeper: ZooKeeperSettings, consul: ConsulSettings
) -> None:
    before = trace(zookeeper, consul)
    checks = site.checks(0, name)
    assert trace(zookeeper, consul) == before
    assert checks["zookeeper", "create"]["outcome"] == "ok"
    assert "not there yet" in checks["zookeeper", "read"]["found"]
    assert outcomes(checks, "warning") == {("consumers", "live")}


def test_doctor_reports_every_unreachable_server(site: Site, name: str) -> None:
    ports = {server: free_port() for server in ("zookeeper", "consul", "kafka")}
    site.connections["muster_zookeeper"]["host"] = f"127.0.0.1:{ports['zookeeper']}"
    site.connections["muster_consul"]["port"] = ports["consul"]
    site.connections["muster_kafka"]["extra"] = {"bootstrap.servers": f"127.0.0.1:{ports['kafka']}"}
    began = time.monotonic()
    checks = site.checks(5, name)
    assert time.monotonic() - began < 15
    for server, port in ports.items():
        assert checks[server, "reachable"]["outcome"] == "failed"
        assert str(port) in checks[server, "reachable"]["found"]
        assert "check that" in checks[server, "reachable"]["step"]
    assert checks["settings", "assignor"]["outcome"] == "ok"
    assert {part for part, _ in outcomes(checks, "failed")} == set(ports)
    skipped = {("zookeeper", "create"), ("consul", "write keys"), ("consumers", "versions")}
    skipped |= {("kafka", name) for name in ("topics", "lag in time", "group", "members")}
    assert skipped <= outcomes(checks, "skipped")


@pytest.mark.parametrize("away", ["zookeeper", "consul", "kafka"])
def test_unreachable_server_does_not_hide_the_others(site: Site, name: str, away: str) -> None:
    address: dict[str, dict[str, Any]] = {
        "zookeeper": {"host": f"127.0.0.1:{free_port()}"},
        "consul": {"port": free_port()},
        "kafka": {"extra": {"bootstrap.servers": f"127.0.0.1:{free_port()}"}},
    }
    site.connections[f"muster_{away}"] |= address[away]
    checks = site.checks(5, name)
    assert {part for part, _ in outcomes(checks, "failed")} == {away}
    for server in {"zookeeper", "consul", "kafka"} - {away}:
        assert checks[server, "reachable"]["outcome"] == "ok"


def test_malformed_node_is_named(
    site: Site, store: TopicStore, name: str, zookeeper: ZooKeeperSettings
) -> None:
    raw = make_client(zookeeper)
    start_client(raw, zookeeper)
    try:
        raw.create(assignment_path(name, "broken"), b"{rubbish")
    finally:
        stop_client(raw, 5.0)
    checks = site.checks(5, name)
    assert outcomes(checks, "failed") == {("zookeeper", "topics")}
    found = checks["zookeeper", "topics"]
    assert found["found"].startswith("1 of 2 topics cannot be read: ")
    (detail,) = found["details"]
    assert f"/consumers/{name}/assignments/broken" in detail


def test_decisions_by_hand_are_reported(
    site: Site, store: TopicStore, name: str, consul: ConsulSettings
) -> None:
    discovery = ConsulCluster(consul, name, name)
    discovery.overrides.pause(by="ann", why="release", at=1_700_000_000.0)
    discovery.overrides.choose_assignor("range", {}, by="ann", why="release", at=1_700_000_000.0)
    discovery.overrides.decide_topic("x", pattern=False, subscribed=True, by="ann", why="release", at=1.0)
    checks = site.checks(0, name)
    assert checks["decisions", "deployment"]["found"] == "no coordinator has run yet"
    paused = checks["decisions", "coordination"]
    assert paused["outcome"] == "warning"
    assert paused["found"].startswith("paused by ann since 2023-11-14T22:13:20+00:00: release")
    assert "muster resume" in paused["step"]
    assert checks["decisions", "assignor"]["found"].endswith("instead of sticky in the settings")
    assert checks["decisions", "keys"]["found"].startswith("1 pins, exclusions and decisions")
    discovery.overrides.choose_assignor("nonsense", {}, by="ann", why="release", at=1.0)
    other = Deployment("elsewhere:2181", f"/consumers/{name}", at=time.time())
    assert discovery.overrides.note_deployment(other, None)
    checks = site.checks(5, name)
    shared, refused = checks["decisions", "deployment"], checks["decisions", "assignor"]
    assert f"in Consul: ZooKeeper elsewhere:2181, /consumers/{name}" in shared["found"]
    assert shared["step"].startswith("Give each its own consul_prefix")
    assert "assignor 'nonsense' is unknown" in refused["found"]
    assert "muster assignor --clear" in refused["step"]


def test_consumers_that_are_otherwise_than_they_should_be(
    site: Site, store: TopicStore, name: str, consul: ConsulSettings, eventually: Eventually
) -> None:
    discovery = ConsulCluster(consul, name, name)
    older = {"version": muster.__version__, "incarnation": "a-1"}
    other = {
        "version": muster.__version__,
        "protocol": str(PROTOCOL),
        "incarnation": "b-2",
    }  # its page says b-1
    with registered(store, discovery, {"a": older, "b": other}):
        live(discovery, eventually, 2)
        checks = site.checks(5, name)
    assert outcomes(checks, "failed") == {("consumers", "incarnations")}
    assert checks["consumers", "incarnations"]["details"] == ["b: Consul has b-2, its page says b-1"]
    assert outcomes(checks, "warning") == {("consumers", "versions")}
    assert checks["consumers", "versions"]["details"] == [
        f"a runs muster {muster.__version__} with version 1 of the protocol"
    ]


def test_topics_missing_in_kafka_or_settings_are_reported(site: Site, name: str, topic: str) -> None:
    settings = entry(
        name,
        topic,
        topics={"names": [topic, "nowhere"], "patterns": ["doctored-.*", "no-such-.*"]},
        assignor={"name": "sticky", "options": {"speed": 3}},
        shadow_assignor="no.such.Assignor",
        consumers={"handler": "no.such.handler", "spark": "nothing_there"},
    )
    site.clusters = {name: settings, "wrong": {"topics": []}}
    checks = site.checks(5, name)
    assert checks["kafka", "topics"]["details"] == [
        "topic nowhere: is not there",
        "pattern 'no-such-.*' matches no topic",
    ]
    assert outcomes(checks, "failed") == {
        ("kafka", "topics"),
        ("settings", "assignor"),
        ("settings", "shadow_assignor"),
        ("connections", "spark"),
    }
    assert outcomes(checks, "warning") == {
        ("settings", "handler"),
        ("settings", "Spark UI"),
        ("consumers", "live"),
    }
    everything = json.loads(site.run("--json").stdout)
    assert set(everything["clusters"]) == {name, "wrong"}
    (only,) = everything["clusters"]["wrong"]
    assert (only["outcome"], only["name"]) == ("failed", "cluster")


def test_consumer_that_subscribes_with_the_clusters_group_is_warned_of(
    site: Site, store: TopicStore, name: str, topic: str, kafka: KafkaSettings, eventually: Eventually
) -> None:
    assert site.checks(0, name)["kafka", "members"]["outcome"] == "ok"
    config = {**kafka.config, "group.id": name, "client.id": "somebody-else"}
    consumer = Consumer(config, logger=librdkafka_logger())
    try:
        consumer.subscribe([topic])

        def joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        eventually(joined, 60)
        checks = site.checks(0, name)
    finally:
        consumer.close()
    members = checks["kafka", "members"]
    assert members["outcome"] == "warning"
    assert f"group {name} has 1 member(s)" in members["found"]
    assert members["details"] == ["somebody-else at 127.0.0.1"]
    assert "another group id" in members["step"]
    assert checks["kafka", "group"]["outcome"] == "ok"


def test_the_jobs_own_connections_are_checked_too(site: Site, store: TopicStore, name: str) -> None:
    jobs = {"zookeeper": "jobs_zookeeper", "consul": "jobs_consul", "kafka": "jobs_kafka"}
    site.clusters[name]["consumers"] |= jobs
    site.clusters[name]["allowed_imports"] = {"zookeeper": ["jobs_zookeeper"]}
    for server, conn_id in jobs.items():
        site.connections[conn_id] = site.connections[f"muster_{server}"]
    checks = site.checks(0, name)
    assert checks["consumers.zookeeper", "topics"]["outcome"] == "ok"
    assert ("consumers.zookeeper", "create") not in checks
    assert (
        checks["consumers.consul", "write keys"]["found"]
        == f"may write below muster/{name}/: stop/, generations/, answers/"
    )
    assert checks["kafka", "group"]["outcome"] == "ok"
    site.connections["jobs_kafka"] = {"extra": {"bootstrap.servers": f"127.0.0.1:{free_port()}"}}
    site.connections["jobs_consul"] = {"host": "127.0.0.1", "port": free_port()}
    del site.connections["jobs_zookeeper"]
    checks = site.checks(5, name)
    assert outcomes(checks, "failed") == {
        ("kafka", "group"),
        ("consumers.consul", "reachable"),
        ("connections", "consumers.zookeeper"),
        ("connections", "allowed_imports.zookeeper"),
    }


def test_doctor_runs_as_a_process_of_its_own_without_airflow(site: Site, name: str, tmp_path: Path) -> None:
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").write_text("raise RuntimeError('imported')")
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "include")))
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", "doctor", "--cluster", name],
        env={**os.environ, **site.environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout
    assert "warning: consumers, live: start consumers" in done.stdout


@dataclass
class Locked:
    """A site whose ZooKeeper and Consul have locks, and what must not show."""

    site: Site
    secrets: list[str]

    def checks(self) -> Checks:
        result = self.site.run("--cluster", CLUSTER)
        assert not [secret for secret in self.secrets if secret in result.output]
        return self.site.checks(5, CLUSTER)


@pytest.fixture
def locked(
    site: Site,
    secure_zookeeper: SecureZooKeeper,
    secure_consul: SecureConsul,
    consul_tokens: ConsulTokens,
    passwords: Passwords,
    authority: Authority,
    topic: str,
) -> Locked:
    ca = str(authority.ca)
    site.clusters = {CLUSTER: entry(CLUSTER, topic)}
    consul = connection("consul-connection", HOST="127.0.0.1", TOKEN=consul_tokens.airflow, CA=ca)
    site.connections["muster_consul"] = consul | {"port": secure_consul.port}
    site.connections["muster_zookeeper"] = connection(
        "zookeeper-coordinator", HOSTS=secure_zookeeper.secure_address, PASSWORD=passwords.coordinator, CA=ca
    )
    values = site.connections["muster_zookeeper"]
    settings = ZooKeeperSettings.model_validate(
        {
            "hosts": values["host"],
            "username": values["login"],
            "password": values["password"],
            **values["extra"],
        }
    )
    with TopicStore(settings, CLUSTER) as store:
        store.create_topic(topic, "127.0.0.1:9", CLUSTER)
    return Locked(
        site, [passwords.coordinator, passwords.viewer, consul_tokens.airflow, consul_tokens.viewer]
    )


def test_the_documented_rights_are_enough(locked: Locked) -> None:
    result = locked.site.run("--cluster", CLUSTER, "--json")
    assert result.exit_code == 0, result.output
    assert not [secret for secret in locked.secrets if secret in result.output]
    found = {(c["part"], c["name"]): c for c in json.loads(result.stdout)["clusters"][CLUSTER]}
    assert found["zookeeper", "write topics"]["outcome"] == "ok"
    assert "as user 'muster-coordinator'" in found["zookeeper", "reachable"]["found"]
    assert "muster-airflow" in found["consul", "token"]["found"]


def test_missing_rights_are_reported(
    locked: Locked, passwords: Passwords, consul_tokens: ConsulTokens
) -> None:
    locked.site.connections["muster_zookeeper"] |= {"login": "muster-viewer", "password": passwords.viewer}
    locked.site.connections["muster_zookeeper"]["extra"].pop("acl")
    locked.site.connections["muster_consul"]["password"] = consul_tokens.viewer
    checks = locked.checks()
    refused = {("zookeeper", "create"), ("zookeeper", "write topics"), ("consul", "write keys")}
    assert outcomes(checks, "failed") == refused
    assert f"muster/{CLUSTER}/stop/" in checks["consul", "write keys"]["found"]
    assert 'key_prefix "..." { policy = "write" }' in checks["consul", "write keys"]["step"]
    assert "ACL" in checks["zookeeper", "create"]["found"]


def test_wrong_credentials_are_reported(locked: Locked) -> None:
    wrong = str(uuid4())
    locked.site.connections["muster_zookeeper"]["password"] = wrong
    locked.site.connections["muster_consul"]["password"] = wrong
    locked.secrets.append(wrong)
    checks = locked.checks()
    assert checks["zookeeper", "reachable"]["outcome"] == "failed"
    assert {("consul", "token"), ("consul", "services"), ("consul", "read keys")} <= outcomes(
        checks, "failed"
    )
    assert "token" in checks["consul", "token"]["step"]
    assert checks["kafka", "topics"]["outcome"] == "ok"
    assert ("consumers", "status pages") in outcomes(checks, "skipped")
