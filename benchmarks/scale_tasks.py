"""One task of a coordinator run, in a process of its own, measured.

What Airflow adds (starting the process, imports, its API) is not in it: the processes are forked from one that has
imported everything, and the functions are those that the tasks of the DAG call, on edges that they open and close.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Ping

from muster.coordinator.coordinator import Coordinator, open_coordinator
from muster.coordinator.reports import AdvanceReport, ConsumersReport, PartitionsReport, PlanReport
from muster.settings.cluster_settings import ClusterSettings, ConsumersSettings, TopicsSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

TASKS = ("fetch_partitions", "fetch_consumers", "compute_assignment", "advance_state")
LONG_POLL = 1.0
"""Seconds that a run with nothing to do waits here, instead of twenty; they are not counted."""
BUDGET = 120.0


@dataclass(frozen=True)
class Place:
    """Where the servers are, and the names of what is coordinated."""

    zookeeper: str
    consul: int
    kafka: str
    cluster: str = "scale"
    service: str = "muster-scale"
    check_interval: float = 10.0
    """Seconds between Consul's checks of a consumer: a thousand a second would be measured with what is measured."""

    def told(self) -> str:
        """Write it as `benchmarks.scale_consumers` reads it."""
        consul = {"host": "127.0.0.1", "port": self.consul}
        return json.dumps(
            {
                "zookeeper": self.zookeeper,
                "consul": consul,
                "cluster": self.cluster,
                "service": self.service,
                "check_interval": self.check_interval,
            }
        )

    def settings(self) -> ClusterSettings:
        """Return the cluster's, with what is in `clusters.yaml` by default."""
        return ClusterSettings(
            name=self.cluster,
            consul_service=self.service,
            group_id="scale",
            topics=TopicsSettings(patterns=("t-[0-9]+",)),
            consumers=ConsumersSettings(handler="muster.handlers.parquet.ParquetHandler"),
        )


@dataclass(frozen=True)
class Spent:
    """What one task took: seconds by the clock without its waiting, seconds of CPU, requests to ZooKeeper and the
    operations in them, bytes from and to it, bytes of its XCom, MB of memory at most. `says` is from its report."""

    wall: float
    cpu: float
    requests: int
    operations: int
    bytes: int
    xcom: int
    memory: float
    says: str

    @property
    def plain(self) -> tuple[float, ...]:
        """The figures, in order."""
        return (self.wall, self.cpu, self.requests, self.operations, self.bytes, self.xcom, self.memory)


class _Counted:
    """Counts what kazoo sends and receives in this process."""

    def __init__(self) -> None:
        self.requests = self.operations = self.bytes = 0
        submit, read = ConnectionHandler._submit, ConnectionHandler._read

        def counted_submit(handler: Any, request: Any, timeout: float, xid: int | None = None) -> None:
            if xid and not isinstance(request, Ping):
                self.requests += 1
                parts = getattr(request, "operations", None)
                self.operations += len(parts) if parts is not None else 1
                self.bytes += len(request.serialize())
            submit(handler, request, timeout, xid)

        def counted_read(handler: Any, length: int, timeout: float) -> Any:
            self.bytes += length
            return read(handler, length, timeout)

        ConnectionHandler._submit, ConnectionHandler._read = counted_submit, counted_read


def perform(task: str, place: Place, sender: Connection) -> None:
    """Do the task and send what it took."""
    counted = _Counted()
    waited = 0.0
    began, worked = time.perf_counter(), time.process_time()
    with open_coordinator(
        place.settings(),
        ZooKeeperSettings(hosts=place.zookeeper, operation_timeout=60.0),
        ConsulSettings(port=place.consul, timeout=30.0),
        KafkaSettings(config={"bootstrap.servers": place.kafka}, operation_timeout=60.0),
        by="bench-scale",
    ) as coordinator:
        wait, pause = coordinator.catalog.wait, coordinator.pause

        def waiting(function: Callable[..., Any]) -> Callable[..., Any]:
            def timed(*arguments: Any) -> Any:
                nonlocal waited
                start, busy = time.perf_counter(), time.process_time()
                try:
                    return function(*arguments)
                finally:
                    # What it does meanwhile (reading an answer) counts.
                    waited += max(0.0, time.perf_counter() - start - (time.process_time() - busy))

            return timed

        def long_wait(index: Any, timeout: float) -> Any:
            return (waiting(wait) if timeout > 0 else wait)(index, timeout)

        coordinator.catalog.wait = long_wait  # type: ignore[method-assign]
        coordinator.pause = waiting(pause)
        report = _work(task, coordinator)
    wall, cpu = time.perf_counter() - began - waited, time.process_time() - worked
    shown = report.as_dict()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    xcom = json.dumps(_xcom(report))
    sender.send(
        Spent(wall, cpu, counted.requests, counted.operations, counted.bytes, len(xcom), memory, _says(shown))
    )


Report = PartitionsReport | ConsumersReport | PlanReport | AdvanceReport


def _work(task: str, coordinator: Coordinator) -> Report:
    if task == "fetch_partitions":
        return coordinator.fetch_partitions()
    if task == "fetch_consumers":
        return ConsumersReport.of(coordinator.catalog.members())
    if task == "compute_assignment":
        return coordinator.compute_assignment(LONG_POLL)
    return coordinator.advance(BUDGET)


def _xcom(report: Report) -> dict[str, Any]:
    """Return what Airflow is given to keep."""
    if isinstance(report, AdvanceReport):
        # Airflow is not imported before anything was measured.
        from muster.airflow.coordination import rebalance_event  # noqa: PLC0415

        return rebalance_event("scale", report.changes, [], "muster_coordinator__scale bench")
    return report.as_dict()


def _says(report: Mapping[str, Any]) -> str:
    if trouble := [report[key] for key in ("errors", "kafka_error", "held", "stuck") if report.get(key)]:
        return f"trouble: {str(trouble)[:500]}"
    if "needed" in report:
        return "needed" if report["needed"] else "nothing to do"
    return str(report.get("woke", ""))


_forked = multiprocessing.get_context("forkserver")
# Loaded in Airflow as well before a task is forked (muster.airflow.preload).
_forked.set_forkserver_preload(["benchmarks.scale_tasks", "httpcore", "anyio._backends._asyncio"])


def spent(task: str, place: Place) -> Spent:
    """Have `task` done in a process of its own. Raises RuntimeError if it fails or finds something wrong."""
    receiver, sender = _forked.Pipe(duplex=False)
    process = _forked.Process(target=perform, args=(task, place, sender))
    process.start()
    sender.close()
    try:
        found: Spent = receiver.recv()
    except EOFError as error:
        raise RuntimeError(f"{task} failed; its own words are above") from error
    finally:
        process.join()
    if found.says.startswith("trouble"):
        raise RuntimeError(f"{task}: {found.says}")
    return found


def run(place: Place) -> dict[str, Spent]:
    """Make one run of the DAG: the tasks that it would have, the last one only if there is something to do."""
    done = {task: spent(task, place) for task in TASKS[:3]}
    if done["compute_assignment"].says == "needed":
        done["advance_state"] = spent("advance_state", place)
    return done
