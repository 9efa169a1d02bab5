"""For how long a partition made no progress."""

from __future__ import annotations

from muster.consumer.measures import STALLED_AFTER, Progress

A, B = ("t", 0), ("t", 1)


def test_held_partition_that_was_never_seen_to_be_well_is_stalled() -> None:
    progress = Progress()
    progress.held({A, B}, 100.0)
    assert progress.stalled(100.0 + STALLED_AFTER - 1) == {}
    progress.well([A], 105.0)
    assert progress.stalled(112.0) == {B: 12.0}
    progress.held({A, B}, 112.0)
    assert progress.stalled(120.0) == {A: 15.0, B: 20.0}, "to be held is no progress"


def test_partition_closed_and_taken_up_again_begins_from_nothing() -> None:
    progress = Progress()
    progress.held({A}, 0.0)
    progress.held(set(), 50.0)
    progress.well([A], 50.0)
    progress.held({A}, 60.0)
    assert progress.stalled(75.0) == {A: 15.0}
