"""Exposes all clusters when it is scraped: all their places are read at the same time, within one deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from muster.cluster.cache import StateCache
from muster.cluster.latest import Latest
from muster.cluster.reading import SourceName, SourceReading
from muster.cluster.state import ClusterState
from muster.monitoring.exposition import Runs, Scraped, exposition
from muster.settings.clusters import Clusters, load_clusters

SCRAPED = (SourceName.ZOOKEEPER, SourceName.CONSUL, SourceName.KAFKA, SourceName.PROGRESS)
"""What metrics are made of; the consumers are scraped themselves, and asked where something stands still."""
AT_ONCE = 8
"""Clusters whose runs are looked up in Airflow's database at the same time."""

RunsReader = Callable[[str], Runs]
"""What Airflow knows of a cluster's coordinator; `muster.airflow.dashboard.read_runs`."""


class Exporter:
    """What `/muster/metrics` and `/muster/targets` show. Thread-safe; connects when it is first asked.

    Without `read_runs` there are no metrics of the coordinator's runs.
    """

    def __init__(
        self,
        cache: StateCache,
        read_runs: RunsReader | None = None,
        settings: Callable[[], Clusters] = load_clusters,
    ) -> None:
        self._cache = cache
        self._read_runs = read_runs
        self._settings = settings
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-metrics")
        self._runs: dict[str, Latest[Runs]] = {}

    def text(self, clusters: Collection[str], partitions: bool, within: float) -> bytes:
        """Write all metrics in Prometheus's text format, ready within `within` seconds, whatever the servers do.

        Only of `clusters`, or of all if that is empty. Without `partitions` there are no series by partition. Raises
        `SettingsError` if the settings cannot be read.
        """
        return generate_latest(_Exposed(list(self._collect(clusters, partitions, within))))

    def states(
        self,
        clusters: Collection[str],
        places: Collection[SourceName],
        within: float,
        beside: Collection[Future[Any]] = (),
    ) -> dict[str, ClusterState]:
        """Return what `places` of `clusters` (all if empty) say within `within` seconds, and nothing that is older.

        Waits for the futures `beside` them, too. Raises `SettingsError`.
        """
        watched = {
            name: self._cache.watched(settings)
            for name, settings in self._settings().clusters.items()
            if not clusters or name in clusters
        }
        begun = {name: each.reader.begin(places) for name, each in watched.items()}
        wait([*beside, *(future for of in begun.values() for future in of.values())], timeout=within)
        now = time.time()
        return {
            name: ClusterState(each.settings, each.reader.result(begun[name]).current(), now)
            for name, each in watched.items()
        }

    def _collect(self, clusters: Collection[str], partitions: bool, within: float) -> Iterator[Metric]:
        found = self._settings()
        runs = self._runs_of(name for name in found.clusters if not clusters or name in clusters)
        begun = {name: latest.begin() for name, latest in runs.items()}
        until = time.monotonic() + within
        states = self.states(clusters, SCRAPED, within, begun.values())
        if standing := [
            name
            for name, state in states.items()
            if state.standing or any(line.overdue for line in state.topics.values())
        ]:
            # Only they can say why.
            left = max(0.0, until - time.monotonic())
            states |= self.states(standing, (*SCRAPED, SourceName.CONSUMERS), left)
        scraped = {
            name: Scraped(state, runs[name].result(begun[name]) if name in runs else SourceReading())
            for name, state in states.items()
        }
        yield from exposition(scraped, len(found.mistakes), partitions)

    def _runs_of(self, clusters: Iterable[str]) -> Mapping[str, Latest[Runs]]:
        if self._read_runs is None:
            return {}
        found = {}
        for name in clusters:
            if name not in self._runs:
                read = partial(self._read_runs, name)
                self._runs[name] = Latest(f"cluster {name}: airflow", read, self._pool)
            found[name] = self._runs[name]
        return found


@dataclass(frozen=True, eq=False)
class _Exposed(Collector):
    """Families that were made already, for the library to write down."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families
