"""Arrival rates: right from the start, slow to follow a burst, and silent while too little was seen."""

from __future__ import annotations

import pytest

from muster.consumer.measures import RATE_OVER, SHORTEST_WATCH, Measures


def watch(
    measures: Measures, rate: float, begin: float, end: float, step: float, offset: float = 0.0
) -> float:
    """Look every `step` seconds from `begin` to `end` while `rate` records arrive; returns the last offset."""
    now = begin
    while now <= end:
        measures.seen(round(offset + rate * (now - begin)), now)
        now += step
    return offset + rate * (end - begin)


def test_hardly_watched_partition_has_no_rate() -> None:
    measures = Measures()
    watch(measures, 100.0, 0.0, SHORTEST_WATCH - 1, 0.5)
    assert measures.rate is None
    measures.seen(1000, SHORTEST_WATCH)
    assert measures.rate == pytest.approx(100.0, rel=0.05)


@pytest.mark.parametrize("step", [0.2, 1.0, 7.0])
def test_steady_rate_is_measured_however_often_it_looks(step: float) -> None:
    measures = Measures()
    watch(measures, 50.0, 1000.0, 1100.0, step)
    assert measures.rate == pytest.approx(50.0, rel=0.02)


def test_an_idle_partition_has_the_rate_zero() -> None:
    measures = Measures()
    watch(measures, 0.0, 0.0, 20.0, 1.0, offset=7)
    assert measures.rate == 0.0


def test_a_change_is_followed_over_about_a_minute() -> None:
    measures = Measures()
    offset = watch(measures, 0.0, 0.0, 300.0, 1.0)
    offset = watch(measures, 100.0, 301.0, 311.0, 1.0, offset)
    assert 10 < (measures.rate or 0) < 20, "a burst of ten seconds moves it little"
    watch(measures, 100.0, 312.0, 312.0 + 3 * RATE_OVER, 1.0, offset)
    assert measures.rate == pytest.approx(100.0, rel=0.06)


def test_recreated_partition_begins_again() -> None:
    measures = Measures()
    watch(measures, 100.0, 0.0, 60.0, 1.0)
    measures.seen(0, 61.0)
    assert measures.rate is None
    watch(measures, 10.0, 62.0, 90.0, 1.0)
    assert measures.rate == pytest.approx(10.0, rel=0.1)
