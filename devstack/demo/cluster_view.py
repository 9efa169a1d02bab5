"""What the demo and the end-to-end tests look at: the assignment in ZooKeeper, how far the group has come, and the
consumers' own status pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from muster.core.model import State, TopicPartition, TopicSnapshot
from muster.core.starting import MOST_DOUBLINGS, Starting
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings


class ClusterView:
    """Reads one cluster; changes nothing. A context manager."""

    def __init__(
        self,
        cluster: ClusterSettings,
        zookeeper: ZooKeeperSettings,
        consul: ConsulSettings,
        kafka: KafkaSettings,
    ) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self._store = TopicStore(zookeeper, cluster.name)
        self._discovery = ConsulCluster.of(consul, cluster)
        self._offsets = GroupOffsets(kafka, cluster.group_id)

    def __enter__(self) -> Self:
        """Connect."""
        self._store.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        self._offsets.close()
        self._store.__exit__(kind, error, trace)

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return what ZooKeeper holds on a topic, None if it is not known (or unreadable)."""
        found = self._store.snapshots().get(name)
        return found if isinstance(found, TopicSnapshot) else None

    def owners(self, topic: str) -> dict[int, str]:
        """Map partition to consumer, as assigned now."""
        snapshot = self.topic(topic)
        return {} if snapshot is None or snapshot.assignment is None else dict(snapshot.assignment.owners)

    def shares(self, topic: str) -> dict[str, int]:
        """Count the partitions that each consumer has."""
        return dict(sorted(Counter(self.owners(topic).values()).items()))

    def stable(self, topic: str) -> bool:
        """Tell whether every partition runs where it should."""
        snapshot = self.topic(topic)
        return snapshot is not None and snapshot.name is State.STABLE

    def live(self) -> set[str]:
        """Return the consumers that are live and not isolated."""
        membership = self._discovery.catalog.members().membership
        return set(membership.live) if membership is not None else set()

    def pages(self) -> dict[str, str]:
        """Return where the status page of each consumer is that is registered, live or not."""
        found = self._discovery.catalog.members().registered.values()
        return {each.id: f"http://{each.address}:{each.port}/status" for each in found}

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the status of each consumer that answers within 5 s."""
        found = {}
        for consumer, page in self.pages().items():
            try:
                found[consumer] = dict(httpx.get(page, timeout=5, trust_env=False).json())
            except (httpx.HTTPError, ValueError):
                continue  # it just ends, or has ended
        return found

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset after the last record of each partition; empty if the topic is not known."""
        return {p: end for (_, p), end in self._offsets.end_offsets(self._partitions(topic)).items()}

    def committed(self, topic: str) -> dict[int, int]:
        """Return what the group has committed of each partition, 0 where that is nothing."""
        found = self._offsets.committed(self._partitions(topic))
        return {p: offset or 0 for (_, p), offset in found.items()}

    def lag(self, topic: str) -> int:
        """Count the records of a topic that the group has not committed yet."""
        ends, committed = self.ends(topic), self.committed(topic)
        return sum(end - committed.get(partition, 0) for partition, end in ends.items())

    def _partitions(self, topic: str) -> list[TopicPartition]:
        snapshot = self.topic(topic)
        return [] if snapshot is None else [(topic, partition) for partition in sorted(snapshot.partitions)]

    def starting(self) -> dict[str, Starting]:
        """Return how far each job has come that was submitted and has not been live since."""
        return self._discovery.jobs.all_starting()

    def doing(self, topic: str) -> dict[str, str]:
        """Say how the topic stands and how far each driver has come, in words without seconds, by name."""
        ids, starting = self.cluster.consumer_ids(), self.starting()
        return {topic: standing(self.topic(topic))} | drivers(ids, self.live(), starting)

    def describe(self, topic: str) -> str:
        """Say in a line how things stand, for progress and for messages when something does not come."""
        return "; ".join(f"{name} {words}" for name, words in self.doing(topic).items())


def standing(snapshot: TopicSnapshot | None) -> str:
    """Say how far a topic is, and how many partitions each of its consumers has."""
    if snapshot is None:
        return "is unknown"
    assignment, state = snapshot.assignment, snapshot.state
    shares = Counter(assignment.owners.values()) if assignment is not None else Counter[str]()
    counts = "/".join(str(count) for _, count in sorted(shares.items())) or "none"
    words = [f"is {snapshot.name}, assigned {counts}"]
    if state is not None and state.to_close:
        words.append(f"{sum(map(len, state.to_close.values()))} to close")
    if state is not None and state.to_start:
        words.append(f"{sum(map(len, state.to_start.values()))} to start")
    return ", ".join(words)


def drivers(ids: Iterable[str], live: Collection[str], starting: Mapping[str, Starting]) -> dict[str, str]:
    """Say how far the driver of each consumer has come, those that are live and not among `ids` too."""
    return {consumer: _driver(consumer in live, starting.get(consumer)) for consumer in sorted({*ids, *live})}


def _driver(live: bool, starting: Starting | None) -> str:
    if live:
        return "live"
    if starting is None:
        return "not running"
    longest = MOST_DOUBLINGS + 1
    tries = {1: "", longest: f", try {longest} or later"}.get(
        min(starting.tries, longest), f", try {starting.tries}"
    )
    return f"{starting.stage}{tries}{', given up' if starting.failed else ''}"
