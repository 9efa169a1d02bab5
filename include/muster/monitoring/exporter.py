"""Reads all clusters when it is scraped: every place of every cluster at the same time, within one deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from muster.core.subscription import TopicDecision
from muster.monitoring.exposition import exposition
from muster.monitoring.latest import Latest
from muster.monitoring.places import KafkaReader, read_consumers, read_topics
from muster.monitoring.reading import ClusterReading, Consumers, Place, Runs, Topics
from muster.settings.clusters import Clusters, ClusterSettings, load_clusters

AT_ONCE = 16
"""So many places are read at the same time."""

RunsReader = Callable[[str], Runs]
"""What Airflow knows of a cluster's coordinator; `muster.airflow.coordinator_runs.read_runs`."""


@dataclass
class _Cluster:
    """One cluster's places. Made again when its settings change."""

    settings: ClusterSettings
    read_runs: RunsReader | None
    pool: Executor
    places: dict[Place, Latest] = field(init=False)

    def __post_init__(self) -> None:
        kafka = KafkaReader(self.settings, self._decided, self._groups)
        reads: dict[Place, Callable[[], object]] = {
            Place.ZOOKEEPER: partial(read_topics, self.settings),
            Place.CONSUL: partial(read_consumers, self.settings),
            Place.KAFKA: kafka.read,
        }
        if self.read_runs is not None:
            reads[Place.AIRFLOW] = partial(self.read_runs, self.settings.name)
        self.places = {place: Latest(read, self.pool) for place, read in reads.items()}

    def _decided(self) -> tuple[TopicDecision, ...]:
        known = self.places[Place.CONSUL].good
        return known.decisions.subscriptions if isinstance(known, Consumers) else ()

    def _groups(self) -> dict[str, str]:
        known = self.places[Place.ZOOKEEPER].good
        snapshots = known.snapshots if isinstance(known, Topics) else {}
        return {t: s.assignment.group_id for t, s in snapshots.items() if s.assignment is not None}


class Exporter:
    """What `/muster/metrics` and `/muster/targets` show. Thread-safe; connects when it is first asked.

    Without `read_runs` there are no metrics of the coordinator's runs.
    """

    def __init__(
        self,
        read_runs: RunsReader | None = None,
        settings: Callable[[], Clusters] = load_clusters,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read_runs = read_runs
        self._settings = settings
        self._clock = clock
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-metrics")
        self._clusters: dict[str, _Cluster] = {}

    def text(self, clusters: Collection[str], partitions: bool, within: float) -> bytes:
        """All metrics in Prometheus's text format, ready within `within` seconds, whatever the servers do.

        Only of `clusters`, or of all if that is empty. Without `partitions` there are no series by partition. Raises
        `SettingsError` if `clusters.yaml` cannot be read.
        """
        registry = CollectorRegistry()
        registry.register(_Reading(list(self._collect(clusters, partitions, within))))
        return generate_latest(registry)

    def readings(
        self, clusters: Collection[str], places: Collection[Place], within: float
    ) -> dict[str, tuple[ClusterSettings, ClusterReading]]:
        """What `places` of `clusters` (all if empty) say within `within` seconds. Raises `SettingsError`."""
        chosen = {
            name: self._cluster(settings)
            for name, settings in self._settings().clusters.items()
            if not clusters or name in clusters
        }
        under_way = [
            latest.begin()
            for cluster in chosen.values()
            for place, latest in cluster.places.items()
            if place in places
        ]
        wait(under_way, timeout=within)
        return {
            name: (
                cluster.settings,
                ClusterReading(
                    {place: latest.result() for place, latest in cluster.places.items() if place in places}
                ),
            )
            for name, cluster in chosen.items()
        }

    def _collect(self, clusters: Collection[str], partitions: bool, within: float) -> Iterator[Metric]:
        wrong = len(self._settings().errors)
        readings = self.readings(clusters, list(Place), within)
        yield from exposition(readings, wrong, self._clock(), partitions)

    def _cluster(self, settings: ClusterSettings) -> _Cluster:
        known = self._clusters.get(settings.name)
        if known is None or known.settings != settings:
            known = self._clusters[settings.name] = _Cluster(settings, self._read_runs, self._pool)
        return known


@dataclass(frozen=True, eq=False)
class _Reading(Collector):
    """Families that were made already, for the library to write down."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families
