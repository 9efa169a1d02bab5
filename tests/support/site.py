"""A cluster on real servers, with consumers that obey at once, for the command line and the dashboard."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from click.testing import CliRunner
from kazoo.client import KazooClient

from muster.cli.main import main
from muster.core.model import TopicPartition
from muster.core.progress import progress_path
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore, make_client, start_client, stop_client
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.bare_shell import bare_shell
from tests.support.obedient_consumers import coordinator, registered
from tests.support.whole_tree import whole_tree

ROOT = Path(__file__).parents[2]


@contextmanager
def levels_kept() -> Iterator[None]:
    """Put the levels of all loggers back, which the command line sets for its process."""

    def loggers() -> list[logging.Logger]:
        return [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]

    before = {logger: logger.level for logger in loggers()}
    try:
        yield
    finally:
        for logger in loggers():
            logger.setLevel(before.get(logger, logging.NOTSET))


@dataclass
class Site:
    """A cluster with three consumers, and the command line that is pointed at it."""

    name: str
    folder: Path
    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    store: TopicStore
    discovery: ConsulCluster
    raw: KazooClient
    variables: dict[str, str] = field(default_factory=dict)
    failing: dict[TopicPartition, dict[str, Any]] = field(default_factory=dict)
    """The records that their owners fail with."""

    @property
    def clusters(self) -> Path:
        return self.folder / "clusters.yaml"

    def write(self, **settings: Any) -> ClusterSettings:
        entry = {
            "consul_service": self.name,
            "group_id": self.name,
            "topics": ["t", "u"],
            "consumers": {"handler": "not.used"},
        }
        self.clusters.write_text(yaml.safe_dump({"clusters": {self.name: entry | settings}}))
        return load_clusters(self.clusters)[self.name]

    def run(self, *args: str, command: str = "plan") -> subprocess.CompletedProcess[str]:
        """The command as a process of its own, which takes seconds of a processor."""
        # An Airflow that cannot be imported: the variables have to be enough.
        (self.folder / "airflow").mkdir(exist_ok=True)
        (self.folder / "airflow" / "__init__.py").write_text("raise RuntimeError('imported')")
        path = os.pathsep.join(map(str, (self.folder, ROOT / "include", ROOT)))
        env = bare_shell(PYTHONPATH=path, HOME=str(self.folder), **self.environment())
        return subprocess.run(
            [sys.executable, "-m", "muster.cli", *command.split(), "--cluster", self.name, *args],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ask(self, *args: str, command: str = "plan") -> subprocess.CompletedProcess[str]:
        """The same command in this process."""
        unset = {name: None for name in os.environ if name.startswith(("AIRFLOW", "MUSTER"))}
        asked = [*command.split(), "--cluster", self.name, *args]
        with levels_kept():
            done = CliRunner().invoke(
                main, asked, env=unset | {"HOME": str(self.folder)} | self.environment(), prog_name="muster"
            )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(asked, done.exit_code, done.stdout, done.stderr)

    def environment(self) -> dict[str, str]:
        """Where the command finds the cluster and its servers."""
        return {
            "MUSTER_CLUSTERS": str(self.clusters),
            "AIRFLOW_CONN_MUSTER_ZOOKEEPER": json.dumps(
                {"conn_type": "generic", "host": self.zookeeper.hosts, "extra": {"operation_timeout": 5}}
            ),
            "AIRFLOW_CONN_MUSTER_CONSUL": f"http://{self.consul.host}:{self.consul.port}",
            **self.variables,
        }

    def json(self, *args: str) -> dict[str, Any]:
        done = self.ask(*args, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def trace(self) -> tuple[dict[str, Any], Any, Any]:
        """Every node of the whole tree with its data and versions, and the KV and the catalog with their indexes.

        The marks of when partitions moved are left out, and when the time was asked for: each run of a coordinator
        may look at Kafka's offsets.
        """
        nodes: dict[str, Any] = {}
        marks = progress_path(self.name)
        of_cluster = PurePosixPath(marks).parent
        touched = {str(of_cluster), str(of_cluster / "state")}

        for path, (data, stat) in whole_tree(self.raw, {marks}).items():
            versions = (stat.mzxid, stat.pzxid, stat.version, stat.cversion, stat.aversion)
            nodes[path] = (data, *(() if path in touched else versions))
        url = f"http://{self.consul.host}:{self.consul.port}/v1"
        keys = httpx.get(f"{url}/kv/?recurse=1", trust_env=False)
        services = httpx.get(f"{url}/catalog/service/{self.name}", trust_env=False).json()
        return nodes, (keys.text, keys.headers["X-Consul-Index"]), [s["ModifyIndex"] for s in services]


@pytest.fixture
def site(
    tmp_path: Path, zookeeper: ZooKeeperSettings, consul: ConsulSettings, eventually: Eventually
) -> Iterator[Site]:
    name = f"p{uuid4().hex[:10]}"
    discovery = ConsulCluster(consul, name, name)
    raw = make_client(zookeeper)
    start_client(raw, zookeeper)
    meta = {"weight": "1", "zone": "z"}
    failing: dict[TopicPartition, dict[str, Any]] = {}
    with (
        TopicStore(zookeeper, name) as store,
        registered(store, discovery, {"a": meta, "b": meta, "c": meta}, failing),
    ):
        for topic, count in (("t", 7), ("u", 5)):
            store.create_topic(topic, "127.0.0.1:9", name)
            store.set_partitions(topic, frozenset(range(count)))
        there = Site(name, tmp_path, zookeeper, consul, store, discovery, raw, failing=failing)

        def all_live() -> bool:
            membership = discovery.catalog.members().membership
            return membership is not None and len(membership.live) == 3

        eventually(all_live)
        assert coordinator(there.write(), store, discovery).advance(20).stable
        yield there
    stop_client(raw, 5.0)
