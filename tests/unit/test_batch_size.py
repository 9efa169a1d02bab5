"""How large batches become, and how much is fetched ahead."""

from __future__ import annotations

from collections.abc import Callable

from muster.consumer.source.batch_size import FIRST, TARGET, BatchSize


def sizes(took: Callable[[int], float], batches: int, most: int) -> list[int]:
    """What the batches hold, all of them full, when one of so many records takes `took` seconds."""
    size, now, planned = BatchSize(), 50.0, []
    for _ in range(batches):
        planned.append(size.next(most, now))
        size.planned(planned[-1], now)
        now += took(planned[-1])
    return planned


def test_a_backlog_lets_batches_grow_to_what_takes_about_the_target() -> None:
    cost, each = 0.2, 1.5e-6
    grown = sizes(lambda records: cost + each * records, 12, 10_000_000)
    assert grown[0] == FIRST
    assert grown == sorted(grown)
    assert TARGET / 1.5 < cost + each * grown[-1] < TARGET * 1.1


def test_batches_never_exceed_the_setting_nor_grow_at_a_trickle() -> None:
    assert sizes(lambda _: 0.01, 6, 250_000) == [100_000] + [250_000] * 5
    assert sizes(lambda _: 0.01, 3, 7) == [7, 7, 7]
    size = BatchSize()
    for now in range(100):
        assert size.next(500_000, now) == FIRST
        size.planned(20, now)


def test_a_handler_that_takes_long_whatever_it_is_given_is_not_given_less() -> None:
    assert sizes(lambda _: 30.0, 5, 500_000) == [FIRST] * 5


def test_batches_shrink_again_when_the_handler_becomes_slow() -> None:
    pace = iter([0.1, 0.3, 0.9, 20.0, 1.0, 1.0])
    grown = sizes(lambda _: next(pace), 6, 10_000_000)
    assert max(grown) > 2 * FIRST
    assert grown[-1] < max(grown)


def test_a_smaller_setting_holds_at_once() -> None:
    size = BatchSize()
    size.next(500_000, 0.0)
    size.planned(FIRST, 0.0)
    assert size.next(500_000, 0.25) == 400_000
    assert size.next(150_000, 0.3) == 150_000
    assert size.next(50_000, 0.3) == 50_000
