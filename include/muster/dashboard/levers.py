"""The levers as the dashboard pulls them: `muster.levers`, the same code as the DAGs and the command line.

Each lever opens its own connections, because it is pulled rarely, must not use what a reading is using, and has to
see what there is now and not some seconds ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from muster.cluster.state import ClusterState
from muster.dashboard.models import (
    AssignorLever,
    ConsumerLever,
    ExclusionLever,
    Lever,
    LeverState,
    PinLever,
    UnpinLever,
)
from muster.edges.consul import Discovery
from muster.edges.zookeeper import TopicStore
from muster.levers import assignor, coordination, isolation, placement
from muster.levers.audit import recorded
from muster.levers.outcome import Outcome, Word
from muster.levers.partition_list import parse_partitions
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_lookup import CONNECTIONS

VIA = "dashboard"
"""Where a lever was pulled, for the cluster's history."""


@dataclass(frozen=True)
class LeverEdges:
    """What a lever is pulled through; `store` connects to ZooKeeper when it is entered."""

    discovery: Discovery
    store: Callable[[], AbstractContextManager[TopicStore]]


OpenLevers = Callable[[ClusterSettings], LeverEdges]


def open_levers(cluster: ClusterSettings) -> LeverEdges:
    """The real servers of `cluster`. Raises `ConnectionSettingsError`."""

    @contextmanager
    def store() -> Iterator[TopicStore]:
        with TopicStore(CONNECTIONS.zookeeper(cluster.zookeeper), cluster.name, read_only=True) as opened:
            yield opened

    discovery = Discovery.of(CONNECTIONS.consul(cluster.consul), cluster)
    return LeverEdges(discovery, store)


Pull = Callable[[LeverEdges, ClusterSettings, Any, Word], Outcome]


def _isolate(edges: LeverEdges, cluster: ClusterSettings, asked: ConsumerLever, word: Word) -> Outcome:
    return isolation.isolate(edges.discovery, cluster, asked.consumer, word)


def _restore(edges: LeverEdges, cluster: ClusterSettings, asked: ConsumerLever, word: Word) -> Outcome:
    return isolation.restore(edges.discovery, cluster, asked.consumer, word)


def _pin(edges: LeverEdges, cluster: ClusterSettings, asked: PinLever, word: Word) -> Outcome:
    partitions = parse_partitions(asked.partitions)
    with edges.store() as store:
        return placement.pin(edges.discovery, store, cluster, asked.topic, partitions, asked.consumer, word)


def _unpin(edges: LeverEdges, cluster: ClusterSettings, asked: UnpinLever, word: Word) -> Outcome:
    return placement.unpin(edges.discovery, cluster, asked.topic, parse_partitions(asked.partitions), word)


def _exclude(edges: LeverEdges, cluster: ClusterSettings, asked: ExclusionLever, word: Word) -> Outcome:
    with edges.store() as store:
        return placement.exclude(edges.discovery, store, cluster, asked.consumer, asked.topic, word)


def _include(edges: LeverEdges, cluster: ClusterSettings, asked: ExclusionLever, word: Word) -> Outcome:
    return placement.include(edges.discovery, cluster, asked.consumer, asked.topic, word)


def _pause(edges: LeverEdges, cluster: ClusterSettings, _: Lever, word: Word) -> Outcome:
    return coordination.pause(edges.discovery, cluster, word)


def _resume(edges: LeverEdges, cluster: ClusterSettings, _: Lever, word: Word) -> Outcome:
    return coordination.resume(edges.discovery, cluster, word)


def _rebalance(edges: LeverEdges, cluster: ClusterSettings, _: Lever, word: Word) -> Outcome:
    return coordination.rebalance_now(edges.discovery, cluster, word)


def _assignor(edges: LeverEdges, cluster: ClusterSettings, asked: AssignorLever, word: Word) -> Outcome:
    choice = asked.assignor
    if choice is None:
        return assignor.clear_assignor(edges.discovery, cluster, word)
    return assignor.set_assignor(edges.discovery, cluster, choice.name, choice.options, word)


LEVERS: Mapping[str, Pull] = {
    "isolate": _isolate,
    "restore": _restore,
    "pin": _pin,
    "unpin": _unpin,
    "exclude": _exclude,
    "include": _include,
    "pause": _pause,
    "resume": _resume,
    "rebalance": _rebalance,
    "assignor": _assignor,
}
"""By the name in the path."""


def pull(lever: str, edges: LeverEdges, cluster: ClusterSettings, asked: Lever, word: Word) -> Outcome:
    """Pull a lever, and note it in the cluster's history.

    Raises `LeverError` and the errors of ZooKeeper and Consul; then nothing was done, or part of it where a lever
    says so.
    """
    return recorded(LEVERS[lever](edges, cluster, asked, word), edges.store, VIA)


def lever_states(state: ClusterState) -> list[LeverState]:
    """Every lever, and whether it can be pulled now."""
    paused = state.decisions.paused is not None
    why_not = {
        "pause": "coordination is paused already" if paused else "",
        "resume": "" if paused else "coordination is not paused",
        "rebalance": "coordination is paused; resume it first" if paused else "",
    }
    return [
        LeverState(lever=lever, available=not why_not.get(lever), why_not=why_not.get(lever, ""))
        for lever in (*LEVERS, "apply")
    ]
