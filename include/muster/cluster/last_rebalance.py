"""The last rebalance of a cluster as one thing: topics that began together are part of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from muster.core.history import Record
from muster.core.model import TopicSnapshot
from muster.core.rebalances import Rebalance, events

TOGETHER = 1.0
"""Seconds within which topics begin the same rebalance; one write holds many, and more than fit come after it."""
SHOWN_REASONS = 3


@dataclass(frozen=True, slots=True)
class LastRebalance:
    """When it began (`at`; or ended, if only that is known), why, and how many `topics` took part.

    `moved` partitions changed hands, in `lasted` seconds until Stable; both are None where they are unknown, `lasted`
    also while it goes on.
    """

    at: float
    reason: str
    topics: int
    moved: int | None = None
    lasted: float | None = None


def last_rebalance(
    records: Iterable[Record], now: float, snapshots: Iterable[TopicSnapshot] = ()
) -> LastRebalance | None:
    """Return what `records` (the newest of the history) say of it at `now` (seconds since the epoch), else the state
    nodes in `snapshots`; None if nothing."""
    found = [event for event in events(records, now) if isinstance(event, Rebalance)]
    if not found:
        return _by_states(snapshots)
    newest = max(each.began for each in found)
    part = [each for each in found if newest - each.began <= TOGETHER]
    began = min(each.began for each in part)
    ended = [each.ended for each in part if each.ended is not None]
    reasons = Counter(reason for each in part for reason in each.reasons)
    return LastRebalance(
        at=began,
        reason="; ".join(reason for reason, _ in reasons.most_common(SHOWN_REASONS)),
        topics=len({each.topic for each in part}),
        moved=sum(each.moved for each in part),
        lasted=round(max(ended) - began, 3) if len(ended) == len(part) else None,
    )


def _by_states(snapshots: Iterable[TopicSnapshot]) -> LastRebalance | None:
    states = [s.state for s in snapshots if s.state is not None and s.state.since]
    latest = max(states, key=lambda state: state.since, default=None)
    if latest is None:
        return None
    together = sum(abs(state.since - latest.since) < TOGETHER for state in states)
    return LastRebalance(at=latest.since, reason=latest.reason, topics=together)
