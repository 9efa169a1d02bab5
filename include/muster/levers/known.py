"""Whether a name that a person gave means something, and what there is if it does not."""

from __future__ import annotations

from muster.core.partition_list import format_partitions
from muster.core.wire import WireError
from muster.edges.consul import Discovery
from muster.edges.zookeeper import TopicStore
from muster.levers.outcome import LeverError, listed
from muster.settings.clusters import ClusterSettings


def check_consumer(discovery: Discovery, cluster: ClusterSettings, consumer: str) -> None:
    """Raise `LeverError` unless `consumer` is registered, configured or isolated already."""
    registered = set(discovery.members().registered)
    known = registered | set(cluster.consumer_ids()) | set(discovery.isolated())
    if consumer not in known:
        raise LeverError(
            f"cluster {cluster.name!r} has no consumer {consumer!r}; registered in Consul are: "
            f"{listed(registered)}; configured are: {', '.join(cluster.consumer_ids()) or 'none'}"
        )


def check_topic(store: TopicStore, cluster: ClusterSettings, topic: str) -> None:
    """Raise `LeverError` unless `topic` is coordinated in this cluster, or configured by its name."""
    known = {*store.topics(), *cluster.topics.names}
    if topic not in known:
        raise LeverError(f"cluster {cluster.name!r} has no topic {topic!r}; its topics are: {listed(known)}")


def check_partitions(
    store: TopicStore, cluster: ClusterSettings, topic: str, partitions: frozenset[int]
) -> None:
    """Raise `LeverError` unless `topic` is coordinated in this cluster and has all of `partitions`."""
    found = store.snapshots()
    if topic not in found:
        raise LeverError(
            f"cluster {cluster.name!r} has no topic {topic!r} yet; its topics are: {listed(set(found))}. A topic is "
            "known once it stands in clusters.yaml and the coordinator's fetch_partitions has run"
        )
    snapshot = found[topic]
    if isinstance(snapshot, WireError):
        raise LeverError(f"the partitions of topic {topic!r} cannot be told: {snapshot}")
    if missing := partitions - snapshot.partitions:
        raise LeverError(
            f"topic {topic!r} has no partition(s) {format_partitions(missing)}; it has "
            f"{format_partitions(snapshot.partitions)}"
        )
