"""What a coordinator wrote, and the seconds between the steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from muster.core.history import Record, Transitions
from muster.edges.zookeeper import TopicStore


def first_write(store: TopicStore, since: float) -> tuple[Record, str] | None:
    """Find the first write since `since` that moved something, and the run that wrote it; None if there is none."""
    for record in reversed(store.history(since=since).records):
        if isinstance(record.entry, Transitions) and any(step.moves for step in record.entry.steps):
            return record, record.entry.by.partition(" ")[2]
    return None


def seconds_between(steps: Sequence[str], moments: Sequence[float]) -> dict[str, float]:
    return {
        step: round(later - earlier, 3)
        for step, (earlier, later) in zip(steps, pairwise(moments), strict=True)
    }
