"""Lag in time, from ends at moments."""

from __future__ import annotations

import pytest

from muster.consumer.measures import BOUNDS, POINT_EVERY, POINTS, Measures, Timings


def watched(*points: tuple[float, int]) -> Measures:
    lags = Measures()
    for at, end in points:
        lags.seen(end, at)
    return lags


def test_consumer_that_has_processed_all_is_not_behind() -> None:
    assert watched((0, 100)).seconds_behind(100, 50.0) == 0.0


def test_records_between_two_moments_are_taken_to_arrive_evenly() -> None:
    lags = watched((0, 0), (10, 100), (20, 300))
    assert lags.seconds_behind(50, 20.0) == pytest.approx(15.0)
    assert lags.seconds_behind(200, 26.0) == pytest.approx(11.0)


def test_time_passes_also_while_nothing_is_seen() -> None:
    lags = watched((0, 0), (10, 100))
    assert lags.seconds_behind(0, 10.0) == pytest.approx(10.0)
    assert lags.seconds_behind(0, 70.0) == pytest.approx(70.0)


def test_a_record_after_a_quiet_time_has_not_waited_since_its_beginning() -> None:
    lags = watched((0, 100), (100, 100), (200, 100), (300, 100), (310, 110))
    assert lags.seconds_behind(100, 310.0) == pytest.approx(10.0)


def test_pace_before_the_first_moment_is_taken_to_have_been_the_same() -> None:
    lags = watched((100, 1000), (110, 1100))
    assert lags.seconds_behind(900, 110.0) == pytest.approx(20.0)


def test_unknown_lag_is_not_reported() -> None:
    assert Measures().seconds_behind(0, 1.0) is None
    assert watched((0, 100)).seconds_behind(50, 1.0) is None
    assert watched((0, 100), (60, 100)).seconds_behind(50, 60.0) is None


def test_recreated_topic_begins_again() -> None:
    lags = watched((0, 1000), (10, 2000), (20, 5), (30, 15))
    assert lags.seconds_behind(5, 30.0) == pytest.approx(10.0)


def test_little_is_remembered_however_often_it_looks() -> None:
    lags = watched(*((at / 5, at) for at in range(20_000)))
    points = lags._points
    assert len(points) == POINTS
    assert points[-1] == (19_999, 19_999 / 5)
    assert points[-1][1] - points[0][1] == pytest.approx((POINTS - 1) * POINT_EVERY, rel=0.1)
    assert lags.seconds_behind(19_999 - 500, 19_999 / 5) == pytest.approx(100.0)


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
