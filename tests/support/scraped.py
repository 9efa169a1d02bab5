"""A cluster whose metrics are scraped."""

from __future__ import annotations

from collections.abc import Mapping

from muster.cluster.reading import InConsul
from muster.core.model import Consumer, Membership, State, TopicAssignment, TopicSnapshot, TopicState
from muster.core.offsets import TopicOffsets
from muster.core.overrides import IsolationEntry, Overrides
from muster.edges.consul import Members, Registration
from muster.settings.cluster_settings import ClusterSettings

NOW = 1_000_000.0


CLUSTER = ClusterSettings.model_validate(
    {
        "name": "c",
        "consul_service": "s",
        "group_id": "g",
        "topics": ["t"],
        "stuck_after": "5m",
        "consumers": {"handler": "a.b", "count": 2},
    }
)


def topic(
    owners: Mapping[int, str], state: State = State.STABLE, since: float = NOW - 60
) -> dict[str, TopicSnapshot]:
    snapshot = TopicSnapshot(
        "t",
        frozenset({0, 1, 2}),
        TopicAssignment("k:9092", "g", owners, epoch=7),
        state=TopicState(state, to_close={"c-2": frozenset({2})}, epoch=7, since=since),
    )
    return {"t": snapshot}


def live(*names: str, registered: tuple[str, ...] = (), isolated: tuple[str, ...] = ()) -> InConsul:
    there = {
        name: Registration(name, f"h-{name}", 80, {"host": f"host-{name}"}) for name in {*names, *registered}
    }
    membership = Membership({name: Consumer(name) for name in names}, frozenset(isolated))
    by = {name: IsolationEntry(consumer=name, by="ann", at=1.0, why="r") for name in isolated}
    return InConsul(Members(membership, there), Overrides(isolated=by))


def doubted(why: str) -> InConsul:
    """Consul answers, and its answer cannot be trusted."""
    return InConsul(Members(None, {}, why))


OFFSETS = TopicOffsets(
    partitions={"t": frozenset({0, 1, 2})},
    ends={("t", 0): 100, ("t", 1): 50, ("t", 2): 30},
    beginnings={("t", 0): 0, ("t", 1): 20, ("t", 2): 10},
    committed={("t", 0): 90, ("t", 1): None, ("t", 2): 4},
)
