"""Snapshots of a topic, memberships and statuses for the state machine, in few words."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.model import (
    Consumer,
    ConsumerStatus,
    Membership,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
    Transition,
)

NOW = 5_000.0


def members(
    *live: str,
    isolated: tuple[str, ...] = (),
    failing: tuple[str, ...] = (),
    outside: tuple[str, ...] = (),
    older: tuple[str, ...] = (),
) -> Membership:
    return Membership(
        {c: Consumer(c) for c in live},
        frozenset((*isolated, *outside)),
        failing={c: Consumer(c) for c in failing},
        outside={c: Consumer(c) for c in outside},
        older={c: (Consumer(c, incarnation="older"),) for c in older},
    )


def topic(
    owners: Mapping[int, str],
    state: State | None = State.STABLE,
    *,
    partitions: int = 4,
    to_start: Mapping[str, set[int]] | None = None,
    to_close: Mapping[str, set[int]] | None = None,
    epoch: int = 3,
    missing: Mapping[str, float] | None = None,
) -> TopicSnapshot:
    return TopicSnapshot(
        "t",
        frozenset(range(partitions)),
        TopicAssignment("k:9092", "g", dict(owners), epoch),
        7,
        None
        if state is None
        else TopicState(
            state,
            {c: frozenset(p) for c, p in (to_start or {}).items()},
            {c: frozenset(p) for c, p in (to_close or {}).items()},
            epoch,
            since=4_900.0,
            reason="before",
            missing=dict(missing or {}),
        ),
        8,
    )


def status(
    consumer: str,
    running: set[int] | None = None,
    starting: set[int] | None = None,
    closing: set[int] | None = None,
    epoch: int | None = 3,
    epochs: bool = True,
) -> dict[str, ConsumerStatus]:
    lists = TopicStatus(
        frozenset(running or ()),
        frozenset(starting or ()),
        frozenset(closing or ()),
        epoch if epochs else None,
    )
    return {consumer: ConsumerStatus(consumer, "i", {"t": lists}, epochs=epochs)}


def expect(transition: Transition | None) -> Transition:
    assert transition is not None, "expected a transition"
    return transition


HALVES = {0: "a", 1: "a", 2: "b", 3: "b"}
