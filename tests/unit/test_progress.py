"""For how long a partition made no progress, and when a committed offset is committed again."""

from __future__ import annotations

from muster.consumer.progress import STALLED_AFTER, Progress
from muster.consumer.renewals import LONGEST, SPREAD, Renewals, interval

A, B = ("t", 0), ("t", 1)


def test_what_is_held_and_never_seen_to_be_well_is_stalled() -> None:
    progress = Progress()
    progress.held({A, B}, 100.0)
    assert progress.stalled(100.0 + STALLED_AFTER - 1) == {}
    progress.well([A], 105.0)
    assert progress.stalled(112.0) == {B: 12.0}
    progress.held({A, B}, 112.0)
    assert progress.stalled(120.0) == {A: 15.0, B: 20.0}, "to be held is no progress"


def test_what_was_closed_and_taken_up_again_begins_from_nothing() -> None:
    progress = Progress()
    progress.held({A}, 0.0)
    progress.held(set(), 50.0)
    progress.well([A], 50.0)
    progress.held({A}, 60.0)
    assert progress.stalled(75.0) == {A: 15.0}


def test_an_offset_is_committed_again_within_a_day_and_not_all_at_once() -> None:
    keys = [("t", number) for number in range(1000)]
    renewals = Renewals()
    renewals.committed(keys, 0.0)
    assert renewals.due(keys, LONGEST * (1 - SPREAD) - 1) == frozenset()
    assert renewals.due(keys, LONGEST) == set(keys)
    hours = [sum(1 for key in keys if h <= interval(key) / 3600 < h + 1) for h in range(18, 24)]
    assert max(hours) < 250, "spread over the last quarter of the day"
    renewals.committed(keys[:1], LONGEST)
    assert renewals.due(keys, LONGEST) == set(keys[1:])
    assert renewals.due(keys[:2], LONGEST) == {keys[1]}
    assert renewals.due(keys, LONGEST) == {keys[1]}, "what is not held is forgotten"
