"""What the coordinator's tasks send along Airflow's own metrics path: StatsD, DogStatsD or OpenTelemetry, whichever
is switched on in `[metrics]` of Airflow's configuration; nothing at all if none is.

As Airflow does with its own, each metric is sent with tags (`muster.moves`, `cluster=flights`), and, while
`[metrics] legacy_names_on` is true, also under a name that holds the cluster (`muster.flights.moves`), for StatsD
servers that know no tags. A dot in a cluster's name becomes `__` there. All names are in `docs/metrics.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from airflow.sdk.configuration import conf

from muster.airflow.older import STATS
from muster.coordinator.reports import AdvanceReport, Change, ConsumersReport, PartitionsReport, PlanReport
from muster.core.model import State
from muster.edges.consul import ConsulError
from muster.edges.zookeeper import ZooKeeperError

PREFIX = "muster"


class CoordinatorStats:
    """Sends the metrics of one cluster. Never raises: a metric that cannot be sent is no reason to fail a task."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._by_name = conf.getboolean("metrics", "legacy_names_on", fallback=True)

    def partitions(self, report: PartitionsReport) -> None:
        """Send what `fetch_partitions` found."""
        if report.kafka_error:
            self.failed_read("kafka")
        self._gauge("topics_wrong", len(report.errors))

    def consumers(self, report: ConsumersReport) -> None:
        """Send what `fetch_consumers` found."""
        if not report.trusted:
            self.failed_read("consul")
            return
        self._gauge("consumers", report.live, state="live")
        self._gauge("consumers", len(report.isolated), state="isolated")

    def plan(self, report: PlanReport, seconds: float) -> None:
        """Send what `compute_assignment` planned, and how long reading and planning took."""
        self._timing("plan_time", seconds)
        self._gauge("planned_moves", report.moves)
        self._gauge("topics_left_alone", len(report.errors))
        for name, value in report.behind.items():
            self._gauge(name, value)
        for state in State:
            self._gauge("topics", report.states.get(state.value, 0), state=state.value)

    def advanced(self, changes: Iterable[Change], report: AdvanceReport | None) -> None:
        """Send what `advance_state` wrote; `report` is None if it was cut off."""
        written = list(changes)
        for change in written:
            if change.before in {State.STABLE, State.INITIAL} and change.moves:
                self._incr("rebalances", 1)
            if change.before in {State.CLOSING, State.STARTING} and change.after is State.STABLE:
                self._timing("rebalance_time", change.lasted)
        self._incr("moves", sum(len(change.moves) for change in written))
        if report is not None:
            self._gauge("stuck_topics", len(report.stuck))

    def failed_read(self, place: str) -> None:
        """Count a server that could not be read, or whose answer could not be trusted."""
        self._incr("failed_reads", 1, place=place)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count what is out of reach in here, and let the error pass."""
        try:
            yield
        except ZooKeeperError:
            self.failed_read("zookeeper")
            raise
        except ConsulError:
            self.failed_read("consul")
            raise

    def _incr(self, name: str, count: int, **tags: str) -> None:
        if count:
            for stat, tagged in self._names(name, tags):
                STATS.incr(stat, count, tags=tagged)

    def _gauge(self, name: str, value: float, **tags: str) -> None:
        for stat, tagged in self._names(name, tags):
            STATS.gauge(stat, value, tags=tagged)

    def _timing(self, name: str, seconds: float, **tags: str) -> None:
        for stat, tagged in self._names(name, tags):
            STATS.timing(stat, timedelta(seconds=seconds), tags=tagged)

    def _names(self, name: str, tags: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
        yield f"{PREFIX}.{name}", {"cluster": self._cluster, **tags}
        if self._by_name:
            parts = [self._cluster.replace(".", "__"), name, *tags.values()]
            yield ".".join([PREFIX, *parts]), {}
