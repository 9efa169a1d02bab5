"""What each source of a cluster's state said: its value, or the last one with the error, since when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from muster.core.history import Record
from muster.core.model import ConsumerStatus, TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.core.overrides import NO_OVERRIDES, Overrides
from muster.core.progress import Look
from muster.core.starting import Starting
from muster.core.wire import WireError
from muster.edges.consul import ConsulError, Members
from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.connection_parsing import ConnectionSettingsError

T = TypeVar("T")


class PartialError(RuntimeError):
    """A reading failed as a whole; `instead` takes the place of the last value."""

    def __init__(self, message: str, instead: Any) -> None:
        super().__init__(message)
        self.instead = instead


class LateError(RuntimeError):
    """The reading under way has not ended in time."""


EXPECTED = (ZooKeeperError, ConsulError, KafkaError, ConnectionSettingsError, PartialError, LateError)
"""Errors whose messages are for people. Others are faults, and their messages may hold what is secret."""


@dataclass(frozen=True)
class SourceReading(Generic[T]):
    """What one server said last, and how it is doing.

    `value` is from the last reading that succeeded, at `at` (seconds since the epoch); both are None before it. With
    an `error` the newest reading failed, as all have `since` that moment. `seconds` is how long the newest reading
    took. `address` is where the server is, as the connection says it, '' if unknown.
    """

    value: T | None = None
    at: float | None = None
    error: Exception | None = None
    since: float | None = None
    seconds: float = 0.0
    address: str = ""

    @property
    def current(self) -> T | None:
        """The value, unless the newest reading failed."""
        return self.value if self.error is None else None

    @property
    def why(self) -> str:
        """The error in words, '' if there is none."""
        if self.error is None or isinstance(self.error, EXPECTED):
            return str(self.error or "")
        return f"reading failed ({type(self.error).__name__}); the log of this process has the details"

    def succeed(self, value: T, at: float, seconds: float) -> SourceReading[T]:
        """Return the same source after a reading that succeeded."""
        return SourceReading(value, at, seconds=seconds)

    def fail(self, error: Exception, at: float, seconds: float) -> SourceReading[T]:
        """Return the same source after a reading that failed."""
        value = error.instead if isinstance(error, PartialError) else self.value
        since = at if self.since is None else self.since
        return replace(self, value=value, error=error, since=since, seconds=seconds)


Topics = Mapping[str, TopicSnapshot | WireError]
"""Every topic in ZooKeeper, or why it cannot be read."""


class SourceName(StrEnum):
    """A source of a cluster's state. Progress and history are in ZooKeeper as well, for those that ask for them."""

    ZOOKEEPER = "zookeeper"
    CONSUL = "consul"
    CONSUMERS = "consumers"
    KAFKA = "kafka"
    PROGRESS = "progress"
    HISTORY = "history"


@dataclass(frozen=True)
class InConsul:
    """What Consul holds on a cluster."""

    members: Members
    overrides: Overrides = NO_OVERRIDES
    starting: Mapping[str, Starting] = field(default_factory=dict)
    """How far the jobs of consumers that are not registered have come."""


@dataclass(frozen=True)
class Statuses:
    """What the consumers say; `failures` says why a consumer's status is unavailable."""

    statuses: Mapping[str, ConsumerStatus] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What each source said."""

    zookeeper: SourceReading[Topics] = field(default_factory=SourceReading)
    consul: SourceReading[InConsul] = field(default_factory=SourceReading)
    consumers: SourceReading[Statuses] = field(default_factory=SourceReading)
    kafka: SourceReading[TopicOffsets] = field(default_factory=SourceReading)
    progress: SourceReading[Look] = field(default_factory=SourceReading)
    history: SourceReading[tuple[Record, ...]] = field(default_factory=SourceReading)

    def current(self) -> Reading:
        """Return the same without values that are from an earlier reading than the newest."""
        return Reading(
            replace(self.zookeeper, value=self.zookeeper.current),
            replace(self.consul, value=self.consul.current),
            replace(self.consumers, value=self.consumers.current),
            replace(self.kafka, value=self.kafka.current),
            replace(self.progress, value=self.progress.current),
            replace(self.history, value=self.history.current),
        )
