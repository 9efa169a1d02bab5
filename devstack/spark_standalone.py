"""A local Spark standalone cluster: a master, and workers that start executors; classes of PySpark's own jars.

It is for tests; the stack of `make up` has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from devstack.errors import DevstackError
from devstack.jars import java
from devstack.server import Server


def spark_home() -> Path:
    """Find where PySpark has its jars and programs. Raises `DevstackError` if it is not installed."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise DevstackError("pyspark is not installed; 'make env' installs it")
    return Path(package.origin).parent


class _Part(Server):
    """A master or a worker. It listens on `host` only, for its work as for its pages."""

    main: str
    host: str = "127.0.0.1"

    def prepare(self) -> None:
        """Do nothing: the command line says it all."""

    def command(self) -> Sequence[str | Path]:
        """Return Spark's own launcher, which ends in the JVM."""
        addresses = ["--host", self.host, "--port", str(self.port), "--webui-port", str(self.ports["web"])]
        return [spark_home() / "bin" / "spark-class", self.main, *addresses, *self.arguments()]

    def arguments(self) -> Sequence[str]:
        """Return what follows the addresses."""
        return []

    def environment(self) -> dict[str, str]:
        """Leave out PYTHONPATH, which a worker's executors would inherit: what they import has to be sent to them."""
        inherited = {key: value for key, value in super().environment().items() if key != "PYTHONPATH"}
        return inherited | {
            "JAVA_HOME": str(Path(java()).resolve().parents[1]),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": self.host,
            "SPARK_DAEMON_MEMORY": "256m",
            # The second door for submissions is on a port of its own, which is not chosen here.
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
        }

    def _page(self) -> dict[str, Any]:
        try:
            answer = httpx.get(f"http://{self.host}:{self.ports['web']}/json/", timeout=2, trust_env=False)
            found = answer.json()
        except (httpx.HTTPError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


class SparkMaster(_Part):
    """Takes applications and gives them executors on the workers."""

    name = "Spark master"
    roles = ("rpc", "web")
    main = "org.apache.spark.deploy.master.Master"

    @property
    def url(self) -> str:
        """What a Spark connection needs: `spark://127.0.0.1:port`."""
        return f"spark://{self.address}"

    def healthy(self) -> bool:
        """Tell whether it takes applications."""
        return self._page().get("status") == "ALIVE"

    def workers(self) -> int:
        """Count the workers that it may give work to."""
        return sum(worker["state"] == "ALIVE" for worker in self._page().get("workers", ()))

    def applications(self) -> dict[str, str]:
        """Return the state of each application by its name: `RUNNING` or `FINISHED`, say."""
        page = self._page()
        return {
            app["name"]: app["state"]
            for kind in ("completedapps", "activeapps")
            for app in page.get(kind, ())
        }


class SparkWorker(_Part):
    """Runs executors for `master`, which must have been started; `cores` (tasks at a time) and `memory` in all.

    `host` is an address of this machine. Two workers at 127.0.0.1 and 127.0.0.2 are on two hosts for Spark.
    """

    name = "Spark worker"
    roles = ("rpc", "web")
    main = "org.apache.spark.deploy.worker.Worker"

    def __init__(
        self,
        data_dir: Path,
        master: SparkMaster,
        guarded: bool = False,
        extra_environment: Mapping[str, str] | None = None,
        cores: int = 1,
        memory: str = "1g",
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__(data_dir, guarded=guarded, extra_environment=extra_environment)
        self.host = host
        self._master = master
        self._resources = ["--cores", str(cores), "--memory", memory]

    def arguments(self) -> Sequence[str]:
        """Return resources, the folder of the executors' logs, and the master."""
        return [*self._resources, "--work-dir", str(self.data_dir / "work"), self._master.url]

    def healthy(self) -> bool:
        """Tell whether its master gives it work."""
        page = self._page()
        return bool(page) and page.get("masterurl") == self._master.url

    def executors(self) -> list[str]:
        """Return the ids of the executors that run on it now."""
        return [str(executor["id"]) for executor in self._page().get("executors", ())]
