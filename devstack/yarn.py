"""A local YARN of one node, for Spark's cluster mode: a resource manager and a node manager, files on the local disk.

It is for tests; the stack of `make up` has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

import httpx

from devstack.jars import jars, java
from devstack.server import Server

_LOG4J = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""


class _Part(Server):
    """One of the two processes. Its configuration folder is `conf` below its data."""

    main: str

    @property
    def conf(self) -> Path:
        """What `HADOOP_CONF_DIR` is to be."""
        return self.data_dir / "conf"

    def command(self) -> Sequence[str | Path]:
        """Return Java's command line, with a small heap."""
        return [
            java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-cp",
            f"{self.conf}:{jars('yarn')}/*",
            self.main,
        ]

    def _web(self, path: str) -> dict[str, object]:
        try:
            answer = httpx.get(f"http://{self.address}/ws/v1/{path}", timeout=2, trust_env=False)
            found = answer.json()
        except (httpx.HTTPError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, site: Mapping[str, str]) -> None:
        self.conf.mkdir(parents=True, exist_ok=True)
        (self.conf / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.data_dir / "tmp")}
        scheduler = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            # Half of the queue is kept from drivers by default, and this node is small.
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        }
        for name, values in {"core-site": core, "yarn-site": site, "capacity-scheduler": scheduler}.items():
            (self.conf / f"{name}.xml").write_bytes(_configuration(values))


class ResourceManager(_Part):
    """Takes applications. `conf` is what clients need to find it."""

    name = "YARN resource manager"
    roles = ("web", "client", "scheduler", "tracker", "admin")
    main = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"

    @property
    def site(self) -> dict[str, str]:
        """`yarn-site.xml`, as clients and the node manager need it."""
        keys = {
            "web": "webapp.address",
            "client": "address",
            "scheduler": "scheduler.address",
            "tracker": "resource-tracker.address",
            "admin": "admin.address",
        }
        return {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            **{f"yarn.resourcemanager.{key}": f"127.0.0.1:{self.ports[role]}" for role, key in keys.items()},
            "yarn.scheduler.minimum-allocation-mb": "128",
        }

    def prepare(self) -> None:
        """Write the configuration."""
        self._write(self.site)

    def healthy(self) -> bool:
        """Tell whether it takes applications."""
        found = self._web("cluster/info").get("clusterInfo")
        return isinstance(found, dict) and found.get("state") == "STARTED"

    def nodes(self) -> int:
        """Count the node managers that it may give work to."""
        found = self._web("cluster/metrics").get("clusterMetrics")
        return int(found["activeNodes"]) if isinstance(found, dict) else 0

    def applications(self) -> dict[str, str]:
        """Return the state of each application by its name, `RUNNING` or `FINISHED/SUCCEEDED` say."""
        found = self._web("cluster/apps").get("apps")
        listed = found.get("app", []) if isinstance(found, dict) else []
        return {
            app["name"]: app["state"] + (f"/{app['finalStatus']}" if app["state"] == "FINISHED" else "")
            for app in listed
        }


class NodeManager(_Part):
    """Runs containers for `manager`, which must have been started."""

    name = "YARN node manager"
    roles = ("web", "containers", "localizer")
    main = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"

    def __init__(self, data_dir: Path, manager: ResourceManager, guarded: bool = False) -> None:
        super().__init__(data_dir, guarded=guarded)
        self._manager = manager

    def prepare(self) -> None:
        """Write the configuration."""
        own = {
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.webapp.address": self.address,
            "yarn.nodemanager.address": f"127.0.0.1:{self.ports['containers']}",
            "yarn.nodemanager.localizer.address": f"127.0.0.1:{self.ports['localizer']}",
            "yarn.nodemanager.local-dirs": str(self.data_dir / "local"),
            "yarn.nodemanager.log-dirs": str(self.data_dir / "containers"),
            "yarn.nodemanager.resource.memory-mb": "8192",
            "yarn.nodemanager.resource.cpu-vcores": "8",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            # It takes a disk that is nine tenths full for a broken one.
            "yarn.nodemanager.disk-health-checker.enable": "false",
        }
        self._write(self._manager.site | own)

    def healthy(self) -> bool:
        """Tell whether the resource manager gives it work."""
        return self._manager.nodes() == 1


def _configuration(values: Mapping[str, str]) -> bytes:
    root = Element("configuration")
    for name, value in values.items():
        entry = SubElement(root, "property")
        SubElement(entry, "name").text = name
        SubElement(entry, "value").text = value
    return tostring(root)
