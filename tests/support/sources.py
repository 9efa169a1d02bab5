"""A cluster's servers as the front ends read them, over a simulated store, service discovery and consumers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from muster.cluster.sources import Opener, Sources
from muster.core.history import HistoryPage
from muster.core.model import Consumer, TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.core.overrides import Overrides
from muster.core.progress import Look
from muster.core.starting import Starting
from muster.core.wire import Racks, WireError
from muster.edges.consul import Members
from muster.edges.status import StatusResult
from muster.settings.cluster_settings import ClusterSettings


@dataclass
class StandIns:
    """`muster.cluster.sources.Sources`; `poll` may be None where no consumer is asked."""

    store: Any
    consul: Any
    ask: Any = None
    offsets_now: TopicOffsets = field(default_factory=TopicOffsets)

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        found: Mapping[str, TopicSnapshot | WireError] = self.store.snapshots()
        return found

    def look(self) -> Look:
        found: Look = self.store.look()
        return found

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        found: Mapping[str, Racks | WireError] = self.store.racks(topics)
        return found

    def history(self, *, limit: int = 100, before: int | None = None, since: float = 0.0) -> HistoryPage:
        found: HistoryPage = self.store.history(limit=limit, before=before, since=since)
        return found

    def members(self) -> Members:
        found: Members = self.consul.catalog.members()
        return found

    def starting(self) -> dict[str, Starting]:
        return {}

    def overrides(self) -> Overrides:
        found: Overrides = self.consul.overrides.read()
        return found

    def poll(
        self,
        consumers: Iterable[Consumer],
        timeout: float,
        *,
        topics: Mapping[str, Collection[str]] | None = None,
    ) -> Mapping[str, StatusResult]:
        found: Mapping[str, StatusResult] = self.ask(consumers, timeout)
        return found

    def offsets(self, reads: Callable[[str], bool], groups: Mapping[str, str]) -> TopicOffsets:
        return self.offsets_now

    def addresses(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        pass


def opener(store: object, consul: object, ask: object = None) -> Opener:
    """What opens these for a command."""

    @contextmanager
    def opened(_: ClusterSettings) -> Iterator[Sources]:
        yield StandIns(store, consul, ask)

    return opened
