"""How large batches become: by the clock, by their bytes, and by what a handler takes in time."""

from __future__ import annotations

from collections.abc import Callable

from muster.consumer.source.batch_size import BLIND, FIRST, TARGET, TRY_AGAIN, BatchSize, Bounds


def sizes(took: Callable[[int], float], batches: int, most: int, seconds: float = 10.0) -> list[int]:
    """What the batches hold, all of them full, when one of so many records takes `took` seconds."""
    size, now, planned = BatchSize(Bounds(most, seconds)), 50.0, []
    for _ in range(batches):
        planned.append(size.next(now))
        size.planned(planned[-1], now)
        now += took(planned[-1])
    return planned


def test_a_backlog_lets_batches_grow_to_what_takes_about_the_target() -> None:
    cost, each = 0.2, 1.5e-6
    grown = sizes(lambda records: cost + each * records, 12, 10_000_000)
    assert grown[0] == FIRST
    assert grown == sorted(grown)
    assert TARGET / 1.5 < cost + each * grown[-1] < TARGET * 1.1


def test_second_batch_is_larger_though_the_first_took_long_within_the_bound() -> None:
    cold = iter([2.0, 0.6, 0.8])
    assert sizes(lambda _: next(cold), 3, 300_000) == [FIRST, 300_000, 300_000]
    slow = sizes(lambda records: 4e-5 * records, 3, 10_000_000)
    assert slow == [FIRST, 250_000, FIRST], "what takes 10 s, and no more than the least afterwards"
    assert sizes(lambda records: 11e-5 * records, 2, 10_000_000) == [FIRST, FIRST]


def test_batches_never_exceed_the_setting_nor_grow_at_a_trickle() -> None:
    assert sizes(lambda _: 0.01, 6, 250_000) == [100_000] + [250_000] * 5
    assert sizes(lambda _: 0.01, 3, 7) == [7, 7, 7]
    size = BatchSize()
    for now in range(100):
        assert size.next(now) == FIRST
        size.planned(20, now)


def test_batches_shrink_to_what_a_slow_handler_takes_in_time() -> None:
    shrunk = sizes(lambda records: 0.2 + 0.002 * records, 12, 500_000)
    assert shrunk[:3] == [100_000, 25_000, 6_250], "to a quarter at a time"
    assert all(8.0 < 0.002 * records < 12.5 for records in shrunk[3:])
    assert sizes(lambda records: 3.0 * records, 12, 500_000)[-1] in {2, 3, 4}
    assert sizes(lambda records: 60.0 * records, 12, 500_000)[-1] == 1


def test_bound_of_a_batch_that_is_smaller_shrinks_as_well() -> None:
    assert sizes(lambda records: 0.02 * records, 4, 2_000, seconds=5.0) == [2_000, 500, 250, 250]


def test_batches_grow_again_when_a_slow_handler_becomes_quick() -> None:
    now, size, planned = 0.0, BatchSize(), []
    for batch in range(30):
        planned.append(size.next(now))
        size.planned(planned[-1], now)
        now += (0.01 if batch < 10 else 1e-6) * planned[-1]
    assert planned[9] == 1_000
    assert planned[-1] == 500_000


def test_a_handler_that_takes_long_whatever_it_is_given_is_not_given_less_for_long() -> None:
    given = sizes(lambda _: 30.0, 2 * TRY_AGAIN, 500_000)
    assert given[:4] == [FIRST, 33_333, FIRST, FIRST], "a smaller batch is tried once, and does not help"
    assert given.count(FIRST) >= 2 * TRY_AGAIN - 3


def test_batches_shrink_only_as_far_as_their_pace_is_half_of_what_it_was() -> None:
    given = sizes(lambda records: 12.0 + 0.0002 * records, 20, 500_000)
    assert given[-1] == given[-2] < 50_000
    cost = [(12.0 + 0.0002 * records) / records for records in (given[-1], FIRST)]
    assert cost[0] < 2.1 * cost[1]


def test_batches_shrink_again_when_the_handler_becomes_slow() -> None:
    pace = iter([0.1, 0.3, 0.9, 9.0, 1.0, 1.0])
    grown = sizes(lambda _: next(pace), 6, 10_000_000)
    assert max(grown) > 2 * FIRST
    assert FIRST <= grown[-1] < max(grown)


def test_batch_that_failed_teaches_nothing() -> None:
    size = BatchSize()
    for now in (0.0, 60.0, 120.0):
        assert size.next(now, failed=now > 0) == FIRST
        size.read(10**9)
        size.planned(FIRST, now)


def test_batches_hold_about_as_many_bytes_as_the_setting_allows() -> None:
    size, now, planned = BatchSize(Bounds(size=1_000_000)), 0.0, []
    for each in [500] * 4 + [5_000] * 8 + [2_000_000] * 30:
        planned.append(size.next(now))
        size.planned(planned[-1], now)
        size.read(each * planned[-1])
        now += 0.1
    assert planned[0] == BLIND, "before it is known how large records are"
    assert planned[1:5] == [2_000] * 4
    assert 190 < planned[11] < 210
    assert planned[-1] == 1, "a record is never too large"
