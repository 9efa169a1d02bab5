"""A consumer job as the tests see it: a `spark-submit` process, its status page, its files, and its assignment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pyarrow.dataset
import pyspark

from devstack.connector import connector_jar
from devstack.guard import guard
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings, TopicHandler

ROOT = Path(__file__).resolve().parents[2]
SPARK = Path(pyspark.__file__).parent
"""That of this process, which `test_versions.py` chooses."""
SERVICE = "job-test"


@dataclass
class Servers:
    """Where the real servers are."""

    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    kafka: KafkaSettings


@dataclass
class ConsumerJob:
    """One consumer process. `number` tells those of one id apart."""

    servers: Servers
    cluster: str
    consumer: str
    folder: Path
    handler: str = "muster.handlers.parquet.ParquetHandler"
    options: dict[str, Any] = field(default_factory=dict)
    handlers: dict[str, TopicHandler] = field(default_factory=dict)
    service: str = SERVICE
    graceful_timeout: float = 30
    master: str = "local[1]"
    conf: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of the consumer."""
    paths: tuple[Path, ...] = ()
    """Folders with Python modules, for the PYTHONPATH."""
    incarnation: str = field(default_factory=lambda: str(uuid.uuid4()))
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.incarnation}.log"

    @property
    def discovery(self) -> ConsulCluster:
        return ConsulCluster(self.servers.consul, self.cluster, self.service)

    def start(self) -> None:
        settings = ConsumerSettings(
            cluster=self.cluster,
            consumer=self.consumer,
            incarnation=self.incarnation,
            consul_service=self.service,
            zookeeper=self.servers.zookeeper,
            consul=self.servers.consul,
            kafka=self.servers.kafka,
            handler=self.handler,
            handler_options={"path": "${JOB_DATA}", **self.options},
            handlers=self.handlers,
            metadata={"zone": "here"},
            graceful_timeout=self.graceful_timeout,
            log_file=str(self.log),
            **self.more,
        )
        environment = {
            **os.environ,
            **settings.to_environment(),
            "JOB_DATA": str(self.data),
            "TMPDIR": str(self.folder),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(
                map(str, [*self.paths, ROOT / "include", Path(__file__).parent, SPARK.parent])
            ),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    SPARK / "bin" / "spark-submit",
                    *("--master", self.master, "--driver-memory", "512m"),
                    *("--jars", str(connector_jar())),
                    *("--conf", "spark.ui.enabled=false"),
                    *("--conf", f"spark.local.dir={self.folder / 'spark'}"),
                    *("--conf", f"spark.sql.warehouse.dir={self.folder / 'warehouse'}"),
                    *(part for key, value in self.conf.items() for part in ("--conf", f"{key}={value}")),
                    ROOT / "sparkjobs" / "consume.py",
                ],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        guard.watch(self.process.pid, psutil.Process(self.process.pid).create_time())

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        self.end()

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
            guard.forget(self.process.pid)
            self.discovery.catalog.deregister(
                self.consumer
            )  # else Consul goes on to check a port that others may get

    def tree(self) -> list[psutil.Process]:
        """All its processes, the JVM first; Spark's Python daemons have process groups of their own."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def exit_code(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def registered(self) -> bool:
        """Whether this very process is registered and passes its check."""
        found = self.discovery.catalog.own_registration(self.consumer)
        return found is not None and found.incarnation == self.incarnation and found.passing

    def driver(self) -> psutil.Process:
        """The Python process that runs `consume.py`."""
        return psutil.Process(self.status()["pid"])

    def status(self) -> dict[str, Any]:
        return dict(self._get("status").json())

    def metric(self, name: str) -> float:
        """The sum of a metric's samples on `/metrics`."""
        samples = [
            line
            for line in self._get("metrics").text.splitlines()
            if line.startswith((f"{name}{{", f"{name} "))
        ]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def _get(self, page: str) -> httpx.Response:
        found = self.discovery.catalog.own_registration(self.consumer)
        assert found is not None, f"not registered; its log:\n{self.log_tail()}"
        return httpx.get(f"http://{found.address}:{found.port}/{page}", timeout=2, trust_env=False)

    def topic(self, topic: str) -> dict[str, Any]:
        return dict(self.status()["topics"].get(topic, {}))

    def lists(self, topic: str) -> tuple[list[int], list[int], list[int]]:
        found = self.topic(topic)
        return found.get("running", []), found.get("starting", []), found.get("closing", [])

    def offsets_read(self) -> Counter[tuple[str, int, int]]:
        """How often each record stands in the Parquet files."""
        # os.walk goes on where Spark has just deleted a folder of a batch under way; Path.rglob does not.
        files = [
            f"{folder}/{name}"
            for folder, _, names in os.walk(self.data)
            for name in names
            if name.endswith(".parquet") and "_temporary" not in folder
        ]
        if not files:
            return Counter()
        table = pyarrow.dataset.dataset(files, format="parquet").to_table(["topic", "partition", "offset"])
        columns = (table.column(name).to_pylist() for name in ("topic", "partition", "offset"))
        return Counter(zip(*columns, strict=True))

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
