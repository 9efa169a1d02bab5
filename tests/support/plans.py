"""Topics and memberships for plans and their reasons."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.model import (
    Consumer,
    Membership,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
)


def topic(
    owners: Mapping[int, str], partitions: int | None = None, name: str = "t", state: bool = True
) -> TopicSnapshot:
    count = len(owners) if partitions is None else partitions
    stable = TopicState(State.STABLE) if state else None
    return TopicSnapshot(
        name,
        frozenset(range(count)),
        TopicAssignment("k:9092", "g", dict(owners)),
        1,
        stable,
        1 if state else -1,
    )


def live(*consumers: str | Consumer, isolated: str = "") -> Membership:
    made = [c if isinstance(c, Consumer) else Consumer(c) for c in consumers]
    return Membership({c.id: c for c in made}, frozenset(isolated.split()))
