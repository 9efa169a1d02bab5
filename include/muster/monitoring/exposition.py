"""A cluster's reading as Prometheus metrics. Pure: what was read goes in, metric families come out.

Lag has the names and labels of kafka-lag-exporter (https://github.com/seglo/kafka-lag-exporter). There is one series
a partition, whether or not it is consumed; `consumer_id`, `client_id` and `member_host` are empty where none
does. What could not be read has no series at all, rather than an old value or 0; `muster_place_up` says which place
that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric

import muster
from muster.core.model import Membership, State
from muster.core.overview import Overview, Reading, TopicLine, overview
from muster.monitoring.reading import ClusterReading, Consumers, Offsets, Topics
from muster.settings.clusters import ClusterSettings

CONSUMER_STATES = ("live", "isolated", "missing", "not_passing", "unknown")
"""How a consumer can stand, each in exactly one. `missing` is gone or not passing although it owns partitions or the
settings want it, `not_passing` the same of one that is not wanted."""

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
    readings: Mapping[str, tuple[ClusterSettings, ClusterReading]],
    wrong_clusters: int,
    now: float,
    partitions: bool = True,
) -> Iterator[Metric]:
    """The metrics of all clusters at `now` (seconds since the epoch).

    `wrong_clusters` is how many entries of `clusters.yaml` cannot be used. Without `partitions` there are no series
    by partition.
    """
    families = _Families()
    families.add("muster_build_info", "Version of Muster", ["version"], [muster.__version__], 1)
    families.add(
        "muster_wrong_clusters", "Entries of clusters.yaml that cannot be used", [], [], wrong_clusters
    )
    for name, (settings, reading) in sorted(readings.items()):
        families.add(
            "muster_cluster_info",
            "What the settings say of the cluster",
            ["cluster_name", "group", "assignor", "consul_service"],
            [name, settings.group_id, settings.assignor.name, settings.consul_service],
            1,
        )
        _places(families, name, reading)
        _runs(families, name, reading)
        glance = _glance(settings, reading, now)
        if reading.topics is not None:
            _topics(families, name, settings, glance, reading.topics, reading.consumers)
        if reading.consumers is not None:
            _consumers(families, name, settings, glance, reading.consumers)
        if reading.offsets is not None:
            _offsets(families, name, settings, reading.offsets, reading, partitions)
    yield from families.all.values()


def _places(families: _Families, cluster: str, reading: ClusterReading) -> None:
    for place, read in sorted(reading.places.items()):
        labels, values = ["cluster_name", "place"], [cluster, place]
        up = read.value is not None and not (isinstance(read.value, Offsets) and read.value.error)
        families.add("muster_place_up", "Whether the place could be read for this scrape", labels, values, up)
        families.add(
            "muster_place_read_seconds", "Seconds that reading the place took", labels, values, read.seconds
        )


def _runs(families: _Families, cluster: str, reading: ClusterReading) -> None:
    runs = reading.runs
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


def _glance(settings: ClusterSettings, reading: ClusterReading, now: float) -> Overview:
    """The cluster as `muster status` sees it, without the consumers' own words."""
    topics = reading.topics or Topics()
    consumers = reading.consumers or Consumers(None)
    return overview(
        Reading(
            snapshots=topics.snapshots,
            left_alone=topics.left_alone,
            membership=consumers.membership,
            doubt=consumers.doubt,
            registered={name: f"{page.address}:{page.port}" for name, page in consumers.registered.items()},
            isolated=dict.fromkeys(consumers.isolated, ""),
            statuses={},
            failures={},
        ),
        now,
        settings.stuck_after,
    )


def _topics(
    families: _Families,
    cluster: str,
    settings: ClusterSettings,
    glance: Overview,
    topics: Topics,
    consumers: Consumers | None,
) -> None:
    membership = consumers.membership if consumers is not None else None
    labels = ["cluster_name", "topic"]
    for line in glance.topics:
        values = [cluster, line.topic]
        for state in State:
            families.add(
                "muster_topic_state",
                "1 for the state that the topic is in, 0 for the others",
                [*labels, "state"],
                [*values, state],
                line.state is state,
            )
        if line.seconds is not None:
            families.add(
                "muster_topic_state_seconds",
                "Seconds for which the topic has been Stable, or not Stable",
                labels,
                values,
                line.seconds,
            )
        for name, text, value in (
            ("stuck", "Whether the topic is not Stable for longer than stuck_after", _stuck(line, settings)),
            ("epoch", "Grows by one with each write that changes owners", line.epoch),
            ("partitions", "Partitions that the topic has in ZooKeeper", line.partitions),
            (
                "unconsumed_partitions",
                "Partitions that no live consumer owns",
                _unconsumed(topics, line.topic, membership),
            ),
            ("starting_partitions", "Partitions that are not seen running at their owner yet", line.starting),
            ("closing_partitions", "Partitions that their old owner has not let go of yet", line.closing),
        ):
            families.add(f"muster_topic_{name}", text, labels, values, value)
    for topic in topics.left_alone:
        families.add(
            "muster_topic_left_alone",
            "Topics whose nodes cannot be read; the coordinator leaves them as they are",
            labels,
            [cluster, topic],
            1,
        )


def _stuck(line: TopicLine, settings: ClusterSettings) -> bool:
    return line.state is not State.STABLE and (line.seconds or 0.0) > settings.stuck_after


def _unconsumed(topics: Topics, topic: str, membership: Membership | None) -> int:
    snapshot = topics.snapshots[topic]
    owners = snapshot.assignment.owners if snapshot.assignment is not None else {}
    return sum(
        partition not in owners or (membership is not None and owners[partition] not in membership.live)
        for partition in snapshot.partitions
    )


def _consumers(
    families: _Families, cluster: str, settings: ClusterSettings, glance: Overview, consumers: Consumers
) -> None:
    wanted = settings.consumer_ids()
    owned = {line.consumer: line.partitions for line in glance.consumers}
    seen = {line.consumer: line.state for line in glance.consumers}
    states: dict[str, str] = {}
    for consumer in sorted(seen.keys() | set(wanted)):
        state = seen.get(consumer, "gone" if consumers.membership is not None else "unknown")
        if state in {"gone", "not passing"}:
            state = "missing" if consumer in wanted or owned.get(consumer) else "not_passing"
        states[consumer] = state
    counts = Counter(states.values())
    for state in CONSUMER_STATES:
        families.add(
            "muster_consumers",
            "Consumers by state",
            ["cluster_name", "state"],
            [cluster, state],
            counts[state],
        )
    families.add(
        "muster_consumers_wanted",
        "Consumers that the settings want Airflow to run",
        ["cluster_name"],
        [cluster],
        len(wanted),
    )
    families.add(
        "muster_consul_doubt",
        "Whether Consul answers, but its answer cannot be trusted, so that everything stays as it is",
        ["cluster_name"],
        [cluster],
        consumers.membership is None,
    )
    _decisions(families, cluster, consumers)
    for consumer, present in states.items():
        for state in CONSUMER_STATES:
            families.add(
                "muster_consumer_state",
                "1 for the state that the consumer is in, 0 for the others",
                ["cluster_name", "consumer_id", "state"],
                [cluster, consumer, state],
                state == present,
            )
        families.add(
            "muster_consumer_assigned_partitions",
            "Partitions that ZooKeeper assigns to the consumer",
            ["cluster_name", "consumer_id"],
            [cluster, consumer],
            owned.get(consumer, 0),
        )


def _decisions(families: _Families, cluster: str, consumers: Consumers) -> None:
    decided = consumers.decisions
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


def _offsets(
    families: _Families,
    cluster: str,
    settings: ClusterSettings,
    offsets: Offsets,
    reading: ClusterReading,
    partitions: bool,
) -> None:
    lags: dict[tuple[str, str], list[int]] = {}
    for topic in sorted(offsets.partitions):
        group = offsets.groups.get(topic, settings.group_id)
        for partition in sorted(offsets.partitions[topic]):
            lag = offsets.lag((topic, partition))
            if lag is not None:
                lags.setdefault((group, topic), []).append(lag)
            if partitions:
                _partition(families, cluster, group, offsets, reading, (topic, partition))
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
    families: _Families,
    cluster: str,
    group: str,
    offsets: Offsets,
    reading: ClusterReading,
    key: tuple[str, int],
) -> None:
    place = [cluster, *key]
    for name, text, known in (
        ("latest", "Offset after the last record of the partition", offsets.ends),
        ("earliest", "First offset that the partition still holds", offsets.beginnings),
    ):
        if key in known:
            families.add(f"kafka_partition_{name}_offset", text, _PARTITION, place, known[key])
    owner, host = _owner(reading, key)
    values = [cluster, group, *key, host, owner, owner]
    committed = offsets.committed.get(key)
    if committed is not None:
        families.add(
            "kafka_consumergroup_group_offset",
            "Committed offset of the group",
            _GROUP_PARTITION,
            values,
            committed,
        )
    if (lag := offsets.lag(key)) is not None:
        families.add(
            "kafka_consumergroup_group_lag",
            "Records of the partition that the group has not processed",
            _GROUP_PARTITION,
            values,
            lag,
        )


def _owner(reading: ClusterReading, key: tuple[str, int]) -> tuple[str, str]:
    """Id and host of the consumer that a partition is assigned to, '' each if there is none."""
    topic, partition = key
    snapshot = reading.topics.snapshots.get(topic) if reading.topics is not None else None
    if snapshot is None or snapshot.assignment is None:
        return "", ""
    owner = snapshot.assignment.owners.get(partition, "")
    page = reading.consumers.registered.get(owner) if reading.consumers is not None else None
    return owner, page.host if page is not None else ""
