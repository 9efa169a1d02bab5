"""The last rebalance of a cluster as one thing, from its history: topics that began together are part of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from muster.core.history import Record
from muster.core.rebalances import Rebalance, events
from muster.dashboard.models import LastRebalance

TOGETHER = 1.0
"""Seconds within which topics begin the same rebalance; one write holds many, and more than fit come after it."""
SHOWN_REASONS = 3


def last_rebalance(records: Iterable[Record], now: float) -> LastRebalance | None:
    """What `records` (the newest of the history) tell of it at `now` (seconds since the epoch); None if nothing."""
    found = [event for event in events(records, now) if isinstance(event, Rebalance)]
    if not found:
        return None
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
