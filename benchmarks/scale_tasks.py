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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Ping

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.opening import open_coordinator
from muster.coordinator.reports import AdvanceReport, ConsumersReport, PartitionsReport, PlanReport
from muster.settings.cluster_settings import ClusterSettings, ConsumersSettings, TopicsSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

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

    def settings(self) -> ClusterSettings:
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


def perform(task: str, place: Place) -> Spent:
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
        report = _WORK[task](coordinator)
    wall, cpu = time.perf_counter() - began - waited, time.process_time() - worked
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    xcom = len(json.dumps(_xcom(report)))
    says = _says(report.as_dict())
    return Spent(wall, cpu, counted.requests, counted.operations, counted.bytes, xcom, memory, says)


Report = PartitionsReport | ConsumersReport | PlanReport | AdvanceReport
_WORK: Mapping[str, Callable[[Coordinator], Report]] = {
    "fetch_partitions": Coordinator.fetch_partitions,
    "fetch_consumers": lambda coordinator: ConsumersReport.of(coordinator.catalog.members()),
    "compute_assignment": lambda coordinator: coordinator.compute_assignment(LONG_POLL),
    "advance_state": lambda coordinator: coordinator.advance(BUDGET),
}
TASKS = tuple(_WORK)


def _xcom(report: Report) -> dict[str, Any]:
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
    """Have `task` done in a process of its own. Raises RuntimeError if it finds something wrong, or its own error."""
    with ProcessPoolExecutor(1, _forked) as pool:
        found = pool.submit(perform, task, place).result()
    if found.says.startswith("trouble"):
        raise RuntimeError(f"{task}: {found.says}")
    return found


def run(place: Place) -> dict[str, Spent]:
    *first, last = TASKS
    done = {task: spent(task, place) for task in first}
    if done["compute_assignment"].says == "needed":
        done[last] = spent(last, place)
    return done
