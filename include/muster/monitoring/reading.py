"""What the metrics of a cluster are made from: what each of four places said, or that it could not be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from muster.core.decisions import Decisions
from muster.core.model import Membership, TopicSnapshot

T = TypeVar("T")

TopicPartition = tuple[str, int]
"""A topic's name and a partition of it."""


class Place(StrEnum):
    """Where a cluster's metrics are read."""

    ZOOKEEPER = "zookeeper"
    CONSUL = "consul"
    KAFKA = "kafka"
    AIRFLOW = "airflow"


@dataclass(frozen=True)
class Topics:
    """What ZooKeeper holds. `left_alone` maps topics that cannot be read to the reason."""

    snapshots: Mapping[str, TopicSnapshot] = field(default_factory=dict)
    left_alone: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """Where a registered consumer's status page is, and on which host the consumer says it runs."""

    address: str
    port: int
    host: str


@dataclass(frozen=True)
class Consumers:
    """What Consul says. Without `membership` its answer cannot be trusted, and `doubt` says why.

    `registered` are all consumers of the service, live or not; `isolated` those that a person took out. `decisions`
    is what else persons decided.
    """

    membership: Membership | None
    doubt: str = ""
    registered: Mapping[str, Page] = field(default_factory=dict)
    isolated: frozenset[str] = frozenset()
    decisions: Decisions = field(default_factory=Decisions)


@dataclass(frozen=True)
class Offsets:
    """What Kafka says of every partition of the cluster's topics; what it could not say is absent.

    `committed` is None where the group has committed nothing. `groups` are the groups of topics whose assignment
    names another one than the settings. `error` says why something is absent, '' otherwise.
    """

    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    beginnings: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    error: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)

    def lag(self, key: TopicPartition) -> int | None:
        """Records that the group has not committed; None if that is not known.

        What it has never committed, or what Kafka has deleted since, it reads from the partition's beginning.
        """
        if key not in self.ends or key not in self.committed:
            return None
        committed = self.committed[key]
        if committed is None and key not in self.beginnings:
            return None
        read_from = max(committed or 0, self.beginnings.get(key, 0))
        return max(0, self.ends[key] - read_from)


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
class Read:
    """What came of asking one place: `value`, or None and why. `seconds` is how long it took, or has taken so far."""

    value: Any
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class ClusterReading:
    """A cluster at one moment, as far as it could be read."""

    places: Mapping[Place, Read]

    @property
    def topics(self) -> Topics | None:
        """What ZooKeeper said, None if it was not to be had."""
        return self._of(Place.ZOOKEEPER, Topics)

    @property
    def consumers(self) -> Consumers | None:
        """What Consul said."""
        return self._of(Place.CONSUL, Consumers)

    @property
    def offsets(self) -> Offsets | None:
        """What Kafka said."""
        return self._of(Place.KAFKA, Offsets)

    @property
    def runs(self) -> Runs | None:
        """What Airflow said."""
        return self._of(Place.AIRFLOW, Runs)

    def _of(self, place: Place, kind: type[T]) -> T | None:
        read = self.places.get(place)
        return read.value if read is not None and isinstance(read.value, kind) else None
