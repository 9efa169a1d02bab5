"""When Python searches for reference cycles in a worker that reads."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from muster.consumer.source.cycle_search import CycleSearch


class Ring:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _shown() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_cycle_made_during_a_chunk_is_found_once_in_a_while() -> None:
    now = 100.0
    search = CycleSearch(every=60.0, clock=lambda: now)
    with search.paused():
        assert not gc.isenabled()
        ring = Ring()
    assert gc.isenabled()
    found = weakref.ref(ring)
    del ring
    now += 59.0
    search.task_ended()
    gc.collect()  # as Spark has its workers do after each task
    assert found() is not None, "this is what costs 60 ms a task"
    now += 1.0
    search.task_ended()
    gc.collect()
    assert found() is None


def test_cycle_made_after_a_chunk_is_found_at_once() -> None:
    search = CycleSearch()
    with search.paused():
        pass
    found = weakref.ref(Ring())
    search.task_ended()
    gc.collect()
    assert found() is None


def test_search_that_was_switched_off_before_stays_off() -> None:
    gc.disable()
    with pytest.raises(ZeroDivisionError), CycleSearch().paused():
        raise ZeroDivisionError
    assert not gc.isenabled()
