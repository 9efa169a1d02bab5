"""Whether a name that a person gave means something, and what there is if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.refusal import CommandError, listed
from muster.core.partition_list import format_partitions
from muster.core.wire import WireError

if TYPE_CHECKING:
    from muster.commands.target import Target


def check_consumer(target: Target, consumer: str) -> None:
    """Raise `CommandError` unless `consumer` is registered, configured or isolated already."""
    cluster = target.cluster
    registered = set(target.consul.catalog.members().registered)
    known = registered | set(cluster.consumer_ids()) | set(target.consul.overrides.isolated())
    if consumer not in known:
        raise CommandError(
            f"cluster {cluster.name!r} has no consumer {consumer!r}; registered in Consul are: "
            f"{listed(registered)}; configured are: {', '.join(cluster.consumer_ids()) or 'none'}"
        )


def check_topic(target: Target, topic: str) -> None:
    """Raise `CommandError` unless `topic` is coordinated in this cluster, or configured by its name."""
    cluster = target.cluster
    with target.store() as store:
        known = {*store.topics(), *cluster.topics.names}
    if topic not in known:
        raise CommandError(
            f"cluster {cluster.name!r} has no topic {topic!r}; its topics are: {listed(known)}"
        )


def check_partitions(target: Target, topic: str, partitions: frozenset[int]) -> None:
    """Raise `CommandError` unless `topic` is coordinated in this cluster and has all of `partitions`."""
    with target.store() as store:
        found = store.snapshots()
    if topic not in found:
        raise CommandError(
            f"cluster {target.cluster.name!r} has no topic {topic!r} yet; its topics are: {listed(found)}. "
            "A topic is known once it stands in clusters.yaml and the coordinator's fetch_partitions has run"
        )
    snapshot = found[topic]
    if isinstance(snapshot, WireError):
        raise CommandError(f"the partitions of topic {topic!r} are unknown: {snapshot}")
    if missing := partitions - snapshot.partitions:
        raise CommandError(
            f"topic {topic!r} has no partition(s) {format_partitions(missing)}; it has "
            f"{format_partitions(snapshot.partitions)}"
        )
