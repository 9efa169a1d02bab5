"""For how long a partition made no progress."""

from __future__ import annotations

from muster.consumer.measures import STALLED_AFTER, Measures


def test_held_partition_that_was_never_seen_to_be_well_is_stalled() -> None:
    a, b = Measures(), Measures()
    for measures in (a, b):
        measures.held(closing=False, now=100.0)
        assert measures.stalled(100.0 + STALLED_AFTER - 1) is None
    a.well(105.0)
    assert (a.stalled(112.0), b.stalled(112.0)) == (None, 12.0)
    for measures in (a, b):
        measures.held(closing=False, now=112.0)
    assert (a.stalled(120.0), b.stalled(120.0)) == (15.0, 20.0), "to be held is no progress"


def test_partition_closed_and_taken_up_again_begins_from_nothing() -> None:
    measures = Measures()
    measures.held(closing=False, now=0.0)
    measures.held(closing=True, now=50.0)
    measures.well(50.0)
    assert measures.stalled(59.0) is None
    measures.held(closing=False, now=60.0)
    assert measures.stalled(75.0) == 15.0
