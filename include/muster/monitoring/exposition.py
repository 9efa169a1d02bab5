"""A cluster's state as Prometheus wants it: metrics and targets. Pure: states go in, families and groups come out.

Lag has the names and labels of kafka-lag-exporter (https://github.com/seglo/kafka-lag-exporter). There is one series
a partition, whether or not it is consumed; `consumer_id`, `client_id` and `member_host` are empty where none
does. What could not be read has no series at all, rather than an old value or 0; `muster_place_up` says which place
that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

import muster
from muster.cluster.condition import COUNTED_AS
from muster.cluster.reading import SourceReading
from muster.cluster.state import ClusterState
from muster.core.model import State, TopicPartition
from muster.core.progress import Look
from muster.core.time_lag import time_lag


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
    runs: SourceReading[Runs] = field(default_factory=SourceReading)


@dataclass
class _Families:
    """Metric families in the order in which they are first added to."""

    all: dict[str, GaugeMetricFamily] = field(default_factory=dict)

    def add(self, name: str, text: str, value: float, /, **labels: object) -> None:
        """Add one series, and its family with it if it is the first."""
        if name not in self.all:
            self.all[name] = GaugeMetricFamily(name, text, labels=tuple(labels))
        self.all[name].add_metric([str(each) for each in labels.values()], value)


Add = Callable[..., None]
"""`_Families.add` with the label `cluster_name`."""


def exposition(
    scraped: Mapping[str, Scraped], wrong_clusters: int, partitions: bool = True
) -> Iterator[Metric]:
    """Yield the metrics of all clusters.

    `wrong_clusters` is how many clusters and files of the settings have a mistake. Without `partitions` there are no
    series by partition.
    """
    families = _Families()
    families.add("muster_build_info", "Version of Muster", 1, version=muster.__version__)
    families.add("muster_wrong_clusters", "Clusters and files of the settings with a mistake", wrong_clusters)
    for name, each in sorted(scraped.items()):
        add, state = partial(families.add, cluster_name=name), each.state
        add(
            "muster_cluster_info",
            "What the settings say of the cluster",
            1,
            group=state.settings.group_id,
            assignor=state.settings.assignor.name,
            consul_service=state.settings.consul_service,
        )
        _places(add, each)
        _runs(add, each.runs.current)
        if state.reading.zookeeper.value is not None:
            _topics(add, state)
        if state.consul is not None:
            _consumers(add, state)
        if state.reading.kafka.value is not None:
            _offsets(add, state, partitions)
            _time(add, state)
    yield from families.all.values()


def _places(add: Add, scraped: Scraped) -> None:
    reading = scraped.state.reading
    places: dict[str, SourceReading[Any]] = {
        "airflow": scraped.runs,
        "consul": reading.consul,
        "kafka": reading.kafka,
        "zookeeper": reading.zookeeper,
    }
    for place, source in places.items():
        if source.value is None and source.error is None:
            continue  # it was not asked
        up = source.error is None and not (source is reading.kafka and scraped.state.offsets.errors)
        add("muster_place_up", "Whether the place could be read for this scrape", up, place=place)
        text = "Seconds that reading the place took"
        add("muster_place_read_seconds", text, source.seconds, place=place)


def _runs(add: Add, runs: Runs | None) -> None:
    if runs is None or runs.paused is None:
        return
    add("muster_coordinator_paused", "Whether the coordinator's DAG is paused", runs.paused)
    if runs.last_end is not None:
        text = "When the coordinator's last run ended"
        add("muster_coordinator_last_run_timestamp_seconds", text, runs.last_end)
        text = "Whether the coordinator's last run failed"
        add("muster_coordinator_last_run_failed", text, runs.last_failed)


def _topics(add: Add, state: ClusterState) -> None:
    for topic, line in state.topics.items():
        text = "1 for the state that the topic is in, 0 for the others"
        for name in State:
            add("muster_topic_state", text, line.state is name, topic=topic, state=name)
        if line.seconds is not None:
            text = "Seconds for which the topic has been Stable, or not Stable"
            add("muster_topic_state_seconds", text, line.seconds, topic=topic)
        waiting = state.waiting.get(topic, ())
        standing = [each for each in waiting if each.since is not None]
        decided = bool(waiting) and not any(each.asked for each in waiting)
        stuck = not decided and (line.overdue or any(each.asked for each in standing))
        text = "Partitions with unread records that have not moved for longer than stuck_after"
        counts: Counter[tuple[str, str]] = Counter()
        for each in standing:
            counts[each.consumer, each.kind] += len(each.partitions)
        for (consumer, cause), count in counts.items():
            labels = {"topic": topic, "consumer_id": consumer, "cause": cause}
            add("muster_topic_standing_partitions", text, count, **labels)
        for metric, text, value in (
            ("stuck", "Whether the topic is not Stable, or stands still, for longer than stuck_after", stuck),
            ("epoch", "Grows by one with each write that changes owners", line.epoch),
            ("partitions", "Partitions that the topic has in ZooKeeper", line.partitions),
            ("unconsumed_partitions", "Partitions that no live consumer owns", _unconsumed(state, topic)),
            ("starting_partitions", "Partitions that are not seen running at their owner yet", line.starting),
            ("closing_partitions", "Partitions that their old owner has not let go of yet", line.closing),
            ("paused_partitions", "Partitions whose consumption a person paused", line.paused),
        ):
            add(f"muster_topic_{metric}", text, value, topic=topic)
    text = "Topics whose nodes cannot be read; the coordinator leaves them as they are"
    for topic in state.unreadable_topics:
        add("muster_topic_left_alone", text, 1, topic=topic)


def _unconsumed(state: ClusterState, topic: str) -> int:
    snapshot = state.snapshots[topic]
    owners = snapshot.assignment.owners if snapshot.assignment is not None else {}
    return sum(
        partition not in owners or (state.membership is not None and owners[partition] not in state.live)
        for partition in snapshot.partitions
    )


def _consumers(add: Add, state: ClusterState) -> None:
    for counted_as in COUNTED_AS:
        add("muster_consumers", "Consumers by state", state.counts[counted_as], state=counted_as)
    text = "Consumers that the settings want Airflow to run"
    add("muster_consumers_wanted", text, len(state.settings.consumer_ids()))
    text = "Whether Consul answers, but its answer cannot be trusted, so that everything stays as it is"
    add("muster_consul_doubt", text, state.membership is None)
    decided = state.overrides
    add("muster_cluster_paused", "Whether a person paused the coordination", decided.paused is not None)
    add("muster_pins", "Partitions that a person fixed to a consumer", len(decided.pins))
    add("muster_seeks", "Partitions whose seek is not carried out yet", len(decided.seeks))
    text = "Topics that a person keeps a consumer from, counted for each consumer"
    add("muster_exclusions", text, len(decided.exclusions))
    for consumer, each in state.consumers.items():
        text = "1 for the state that the consumer is in, 0 for the others"
        for counted_as in COUNTED_AS:
            present = counted_as == each.counted_as
            add("muster_consumer_state", text, present, consumer_id=consumer, state=counted_as)
        text = "Partitions that ZooKeeper assigns to the consumer"
        add("muster_consumer_assigned_partitions", text, each.partitions, consumer_id=consumer)


def _offsets(add: Add, state: ClusterState, partitions: bool) -> None:
    offsets = state.offsets
    lags: dict[tuple[str, str], list[int]] = {}
    for topic in sorted(offsets.partitions):
        group = offsets.groups.get(topic, state.settings.group_id)
        for partition in sorted(offsets.partitions[topic]):
            lag = offsets.lag((topic, partition))
            if lag is not None:
                lags.setdefault((group, topic), []).append(lag)
            if partitions:
                _partition(add, group, state, (topic, partition))
    by_group: dict[str, list[int]] = {}
    for (group, topic), of_topic in lags.items():
        by_group.setdefault(group, []).extend(of_topic)
        text = "Records of the topic that the group has not committed"
        add("kafka_consumergroup_group_topic_sum_lag", text, sum(of_topic), group=group, topic=topic)
    for group, everything in by_group.items():
        text = "The largest lag of a partition, in records"
        add("kafka_consumergroup_group_max_lag", text, max(everything), group=group)
        text = "Records that the group has not committed"
        add("kafka_consumergroup_group_sum_lag", text, sum(everything), group=group)


def _time(add: Add, state: ClusterState) -> None:
    """Add how far behind in time each topic is."""
    for topic, found in state.behind.items():
        for name, text, value in (
            ("lag", "Age of the oldest record of the topic that the group has not committed", found.age),
            ("catch_up", "Time to catch up at the present rates, +Inf for never", found.catch_up),
            (
                "kept",
                "Time until retention deletes a record that is not committed, a lower bound",
                found.kept,
            ),
            ("max_lag", "How old that record may be by the settings", state.settings.max_lag_of(topic)),
        ):
            if value is not None:
                add(f"muster_topic_{name}_seconds", text, value, topic=topic)
        text = "Whether most of the time is over for which retention keeps such a record"
        add("muster_topic_near_deletion", text, found.near_deletion, topic=topic)


def _partition(add: Add, group: str, state: ClusterState, tp: TopicPartition) -> None:
    offsets, (topic, partition) = state.offsets, tp
    for name, text, known in (
        ("latest", "Offset after the last record of the partition", offsets.ends),
        ("earliest", "First offset that the partition still holds", offsets.beginnings),
    ):
        if tp in known:
            add(f"kafka_partition_{name}_offset", text, known[tp], topic=topic, partition=partition)
    owner, host = _owner(state, tp)
    for name, text, value in (
        ("offset", "Committed offset of the group", offsets.committed.get(tp)),
        ("lag", "Records of the partition that the group has not committed", offsets.lag(tp)),
        ("lag_seconds", "Age of the oldest of these records", _age(state, tp)),
    ):
        if value is not None:
            add(
                f"kafka_consumergroup_group_{name}",
                text,
                value,
                group=group,
                topic=topic,
                partition=partition,
                member_host=host,
                consumer_id=owner,
                client_id=owner,
            )


def _age(state: ClusterState, tp: TopicPartition) -> float | None:
    """Return how far behind in time a partition is, None if that is not known."""
    topic, partition = tp
    known = state.time_lags.get(topic, {}).get(partition)
    return known.age if known is not None else time_lag(Look(), state.offsets, tp).age


def _owner(state: ClusterState, tp: TopicPartition) -> tuple[str, str]:
    """Return id and host of the consumer that a partition is assigned to, '' each if there is none."""
    topic, partition = tp
    snapshot = state.snapshots.get(topic)
    if snapshot is None or snapshot.assignment is None:
        return "", ""
    owner = snapshot.assignment.owners.get(partition, "")
    registration = state.registered.get(owner)
    return owner, registration.meta.get("host", registration.address) if registration is not None else ""


class TargetsUnknownError(RuntimeError):
    """Consul could not be asked for all clusters, so Prometheus is to go on with the targets that it has."""


def targets(states: Mapping[str, ClusterState], https: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the consumers' status pages for HTTP service discovery (`http_sd_configs`): one group a consumer that is
    registered, live or not, with the labels `cluster_name` and `consumer_id`. Those of the clusters in `https` are
    scraped over TLS.

    Debian's Prometheus, for one, is built without the discovery of Consul, which would not give `cluster_name`.
    Raises `TargetsUnknownError` if Consul could not be read for a cluster, or its answer is not to be trusted.
    """
    groups = []
    for name, state in sorted(states.items()):
        if state.membership is None:
            why = state.reading.consul.why or state.doubt
            raise TargetsUnknownError(
                f"cluster {name}, Consul service {state.settings.consul_service}: {why}"
            )
        for consumer, page in sorted(state.registered.items()):
            if page.address and page.port:
                host = f"[{page.address}]" if ":" in page.address else page.address
                labels = {"cluster_name": name, "consumer_id": consumer}
                if name in https:
                    labels["__scheme__"] = "https"
                groups.append({"targets": [f"{host}:{page.port}"], "labels": labels})
    return groups
