"""What the coordinator needs of its edges, so that tests can put simulated ones in their place."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from muster.core.model import Consumer, TopicSnapshot, Transition
from muster.core.overrides import Overrides, RebalanceRequest
from muster.core.wire import Racks, WireError
from muster.edges.consul import Members, WaitIndex
from muster.edges.status import StatusResult


class Store(Protocol):
    """`muster.edges.zookeeper.TopicStore`. Every operation raises `ZooKeeperError` within its deadline."""

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        """Read every topic of the cluster."""

    def create_topic(
        self, topic: str, bootstrap_servers: str, group_id: str, epoch: int = 0, topic_id: str = ""
    ) -> bool:
        """Make a topic known from `epoch` on, without owners; False if it already is."""

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None = None
    ) -> None:
        """Create the partition children that are missing, and delete those of `known` that are not in `partitions`
        (None: of all there are). So one that another writer has created since `known` was read stays."""

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        """The racks of the partitions' leaders, of those topics where they are known."""

    def set_racks(self, topic: str, racks: Racks) -> None:
        """Note the racks of a topic's leaders; without any, forget them."""

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        """Write transitions in as few multis as they fit in; False for those where another writer was first."""

    def remove_topic(self, topic: str, snapshot: TopicSnapshot, reason: str = "") -> bool:
        """Delete all that stands on a topic; False if another writer wrote to it since `snapshot` was read."""

    def touch(self) -> None:
        """Wake all that wait for a change of partitions."""

    def now(self) -> float:
        """ZooKeeper's clock, in seconds since the epoch: the same for all that coordinate."""

    def watch_changes(self, event: threading.Event) -> None:
        """Set `event` at the next `touch`."""


class Discovery(Protocol):
    """`muster.edges.consul.Discovery`. Every operation raises `ConsulError` within its deadline."""

    def members(self) -> Members:
        """Return the consumers that are registered, live and isolated."""

    def decisions(self) -> Overrides:
        """All that persons decided about the cluster."""

    def end_rebalance(self, request: RebalanceRequest) -> bool:
        """A request for a rebalance was carried out; False if another one has taken its place, which stands."""

    def note_epochs(self, epochs: Mapping[str, int]) -> None:
        """Note that these epochs are about to be written, by topic; what is noted never falls."""

    def wait(self, index: WaitIndex, timeout: float) -> WaitIndex:
        """Return at the next change of membership or of the cluster's keys, or after `timeout` seconds."""


class Lister(Protocol):
    """`muster.edges.kafka.TopicLister`. Raises `KafkaError` within its deadline."""

    def list_partitions(self) -> Mapping[str, frozenset[int]]:
        """All topics with their partitions."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The ids of those of `topics` that Kafka has and tells of; some 20 us of CPU a partition."""

    def leader_racks(self) -> Mapping[str, Racks]:
        """The racks of the partitions' leaders, where Kafka has racks."""


class StatusPoller(Protocol):
    """`muster.edges.status.poll_statuses`."""

    def __call__(
        self,
        consumers: Iterable[Consumer],
        timeout: float,
        *,
        topics: Mapping[str, Collection[str]] | None = None,
    ) -> Mapping[str, StatusResult]:
        """Ask all consumers at once; each about its `topics` only, if given. Answers may hold others, too."""
