"""Histograms of seconds."""

from __future__ import annotations

import pytest

from muster.consumer.measures import BOUNDS, Timings


def test_timings_are_counted_up_to_their_bounds() -> None:
    timings = Timings()
    for seconds in (0.01, 0.011, 7.0, 1000.0):
        timings.took(seconds)
    buckets = dict(timings.buckets())
    assert buckets["0.01"] == 1
    assert buckets["0.025"] == 2
    assert (buckets["5.0"], buckets["10.0"], buckets["300.0"], buckets["+Inf"]) == (2, 3, 3, 4)
    assert timings.seconds == pytest.approx(1007.021)
    assert len(buckets) == len(BOUNDS) + 1
