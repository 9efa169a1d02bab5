"""A cluster's state as Prometheus metrics. Pure: states go in, metric families come out.

Lag has the names and labels of kafka-lag-exporter (https://github.com/seglo/kafka-lag-exporter). There is one series
a partition, whether or not it is consumed; `consumer_id`, `client_id` and `member_host` are empty where none
does. What could not be read has no series at all, rather than an old value or 0; `muster_place_up` says which place
that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

import muster
from muster.cluster.condition import COUNTED_AS
from muster.cluster.lag import TopicPartition
from muster.cluster.reading import Source
from muster.cluster.state import ClusterState
from muster.core.model import State

_PARTITION = ("cluster_name", "topic", "partition")
_GROUP_PARTITION = (
    "cluster_name",
    "group",
    "topic",
    "partition",
    "member_host",
    "consumer_id",
    "client_id",
)


@dataclass(frozen=True, slots=True)
class Runs:
    """What Airflow knows of the coordinator's DAG.

    `paused` is None if Airflow has not seen the DAG yet. `last_end` is when the last run ended, in seconds since the
    epoch, None if none has; `last_failed` whether it failed.
    """

    paused: bool | None = None
    last_end: float | None = None
    last_failed: bool = False


@dataclass(frozen=True)
class Scraped:
    """What is exposed of one cluster: its state without values of earlier readings, and its coordinator's runs."""

    state: ClusterState
    runs: Source[Runs] = field(default_factory=Source)


@dataclass
class _Families:
    """Metric families in the order in which they are first added to."""

    all: dict[str, GaugeMetricFamily] = field(default_factory=dict)

    def add(
        self, name: str, text: str, labels: Iterable[str], values: Iterable[object], value: float
    ) -> None:
        """Add one series, and its family with it if it is the first."""
        if name not in self.all:
            self.all[name] = GaugeMetricFamily(name, text, labels=tuple(labels))
        self.all[name].add_metric([str(each) for each in values], value)


def exposition(
    scraped: Mapping[str, Scraped], wrong_clusters: int, partitions: bool = True
) -> Iterator[Metric]:
    """The metrics of all clusters.

    `wrong_clusters` is how many entries of `clusters.yaml` cannot be used. Without `partitions` there are no series
    by partition.
    """
    families = _Families()
    families.add("muster_build_info", "Version of Muster", ["version"], [muster.__version__], 1)
    families.add(
        "muster_wrong_clusters", "Entries of clusters.yaml that cannot be used", [], [], wrong_clusters
    )
    for name, each in sorted(scraped.items()):
        state = each.state
        settings = state.settings
        families.add(
            "muster_cluster_info",
            "What the settings say of the cluster",
            ["cluster_name", "group", "assignor", "consul_service"],
            [name, settings.group_id, settings.assignor.name, settings.consul_service],
            1,
        )
        _places(families, name, each)
        _runs(families, name, each.runs.current)
        if state.reading.zookeeper.value is not None:
            _topics(families, name, state)
        if state.consul is not None:
            _consumers(families, name, state)
        if state.reading.kafka.value is not None:
            _offsets(families, name, state, partitions)
    yield from families.all.values()


def _places(families: _Families, cluster: str, scraped: Scraped) -> None:
    reading = scraped.state.reading
    places: dict[str, Source[Any]] = {
        "airflow": scraped.runs,
        "consul": reading.consul,
        "kafka": reading.kafka,
        "zookeeper": reading.zookeeper,
    }
    for place, source in places.items():
        if source.value is None and source.error is None:
            continue  # it was not asked
        labels, values = ["cluster_name", "place"], [cluster, place]
        up = source.error is None and not (source is reading.kafka and scraped.state.offsets.errors)
        families.add("muster_place_up", "Whether the place could be read for this scrape", labels, values, up)
        families.add(
            "muster_place_read_seconds", "Seconds that reading the place took", labels, values, source.seconds
        )


def _runs(families: _Families, cluster: str, runs: Runs | None) -> None:
    if runs is None or runs.paused is None:
        return
    labels, values = ["cluster_name"], [cluster]
    families.add(
        "muster_coordinator_paused", "Whether the coordinator's DAG is paused", labels, values, runs.paused
    )
    if runs.last_end is not None:
        families.add(
            "muster_coordinator_last_run_timestamp_seconds",
            "When the coordinator's last run ended",
            labels,
            values,
            runs.last_end,
        )
        families.add(
            "muster_coordinator_last_run_failed",
            "Whether the coordinator's last run failed",
            labels,
            values,
            runs.last_failed,
        )


def _topics(families: _Families, cluster: str, state: ClusterState) -> None:
    labels = ["cluster_name", "topic"]
    for line in state.topics.values():
        values = [cluster, line.topic]
        for name in State:
            families.add(
                "muster_topic_state",
                "1 for the state that the topic is in, 0 for the others",
                [*labels, "state"],
                [*values, name],
                line.state is name,
            )
        if line.seconds is not None:
            families.add(
                "muster_topic_state_seconds",
                "Seconds for which the topic has been Stable, or not Stable",
                labels,
                values,
                line.seconds,
            )
        for metric, text, value in (
            ("stuck", "Whether the topic is not Stable for longer than stuck_after", line.overdue),
            ("epoch", "Grows by one with each write that changes owners", line.epoch),
            ("partitions", "Partitions that the topic has in ZooKeeper", line.partitions),
            (
                "unconsumed_partitions",
                "Partitions that no live consumer owns",
                _unconsumed(state, line.topic),
            ),
            ("starting_partitions", "Partitions that are not seen running at their owner yet", line.starting),
            ("closing_partitions", "Partitions that their old owner has not let go of yet", line.closing),
        ):
            families.add(f"muster_topic_{metric}", text, labels, values, value)
    for topic in state.unreadable:
        families.add(
            "muster_topic_left_alone",
            "Topics whose nodes cannot be read; the coordinator leaves them as they are",
            labels,
            [cluster, topic],
            1,
        )


def _unconsumed(state: ClusterState, topic: str) -> int:
    snapshot = state.snapshots[topic]
    owners = snapshot.assignment.owners if snapshot.assignment is not None else {}
    return sum(
        partition not in owners or (state.membership is not None and owners[partition] not in state.live)
        for partition in snapshot.partitions
    )


def _consumers(families: _Families, cluster: str, state: ClusterState) -> None:
    for counted_as in COUNTED_AS:
        families.add(
            "muster_consumers",
            "Consumers by state",
            ["cluster_name", "state"],
            [cluster, counted_as],
            state.counts[counted_as],
        )
    families.add(
        "muster_consumers_wanted",
        "Consumers that the settings want Airflow to run",
        ["cluster_name"],
        [cluster],
        len(state.settings.consumer_ids()),
    )
    families.add(
        "muster_consul_doubt",
        "Whether Consul answers, but its answer cannot be trusted, so that everything stays as it is",
        ["cluster_name"],
        [cluster],
        state.membership is None,
    )
    _decisions(families, cluster, state)
    for consumer, each in state.consumers.items():
        for counted_as in COUNTED_AS:
            families.add(
                "muster_consumer_state",
                "1 for the state that the consumer is in, 0 for the others",
                ["cluster_name", "consumer_id", "state"],
                [cluster, consumer, counted_as],
                counted_as == each.counted_as,
            )
        families.add(
            "muster_consumer_assigned_partitions",
            "Partitions that ZooKeeper assigns to the consumer",
            ["cluster_name", "consumer_id"],
            [cluster, consumer],
            each.partitions,
        )


def _decisions(families: _Families, cluster: str, state: ClusterState) -> None:
    decided = state.decisions
    for name, text, value in (
        ("muster_cluster_paused", "Whether a person paused the coordination", decided.paused is not None),
        ("muster_pins", "Partitions that a person fixed to a consumer", len(decided.pins)),
        (
            "muster_exclusions",
            "Topics that a person keeps a consumer from, counted for each consumer",
            len(decided.exclusions),
        ),
    ):
        families.add(name, text, ["cluster_name"], [cluster], value)


def _offsets(families: _Families, cluster: str, state: ClusterState, partitions: bool) -> None:
    offsets = state.offsets
    lags: dict[tuple[str, str], list[int]] = {}
    for topic in sorted(offsets.partitions):
        group = offsets.groups.get(topic, state.settings.group_id)
        for partition in sorted(offsets.partitions[topic]):
            lag = offsets.lag((topic, partition))
            if lag is not None:
                lags.setdefault((group, topic), []).append(lag)
            if partitions:
                _partition(families, cluster, group, state, (topic, partition))
    labels = ["cluster_name", "group"]
    by_group: dict[str, list[int]] = {}
    for (group, topic), of_topic in lags.items():
        by_group.setdefault(group, []).extend(of_topic)
        families.add(
            "kafka_consumergroup_group_topic_sum_lag",
            "Records of the topic that the group has not committed",
            [*labels, "topic"],
            [cluster, group, topic],
            sum(of_topic),
        )
    for group, everything in by_group.items():
        families.add(
            "kafka_consumergroup_group_max_lag",
            "The largest lag of a partition, in records",
            labels,
            [cluster, group],
            max(everything),
        )
        families.add(
            "kafka_consumergroup_group_sum_lag",
            "Records that the group has not committed",
            labels,
            [cluster, group],
            sum(everything),
        )


def _partition(
    families: _Families, cluster: str, group: str, state: ClusterState, tp: TopicPartition
) -> None:
    offsets, place = state.offsets, [cluster, *tp]
    for name, text, known in (
        ("latest", "Offset after the last record of the partition", offsets.ends),
        ("earliest", "First offset that the partition still holds", offsets.beginnings),
    ):
        if tp in known:
            families.add(f"kafka_partition_{name}_offset", text, _PARTITION, place, known[tp])
    owner, host = _owner(state, tp)
    values = [cluster, group, *tp, host, owner, owner]
    committed = offsets.committed.get(tp)
    if committed is not None:
        families.add(
            "kafka_consumergroup_group_offset",
            "Committed offset of the group",
            _GROUP_PARTITION,
            values,
            committed,
        )
    if (lag := offsets.lag(tp)) is not None:
        families.add(
            "kafka_consumergroup_group_lag",
            "Records of the partition that the group has not processed",
            _GROUP_PARTITION,
            values,
            lag,
        )


def _owner(state: ClusterState, tp: TopicPartition) -> tuple[str, str]:
    """Id and host of the consumer that a partition is assigned to, '' each if there is none."""
    topic, partition = tp
    snapshot = state.snapshots.get(topic)
    if snapshot is None or snapshot.assignment is None:
        return "", ""
    owner = snapshot.assignment.owners.get(partition, "")
    registration = state.registered.get(owner)
    return owner, registration.meta.get("host", registration.address) if registration is not None else ""
