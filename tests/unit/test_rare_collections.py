"""How the coordinator sets Python's cyclic garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from muster.coordinator.opening import YOUNG_OBJECTS, rare_collections


class Ring:
    """One object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Thresholds that differ from each other and from Python's own."""
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_collections_are_rare_within_and_as_before_afterwards(thresholds: tuple[int, int, int]) -> None:
    before, frozen = thresholds, gc.get_freeze_count()
    with pytest.raises(ValueError, match="any"), rare_collections():
        assert gc.get_threshold() == (YOUNG_OBJECTS, *before[1:])
        assert gc.get_freeze_count() > frozen
        raise ValueError("any")
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_cycles_are_nevertheless_collected() -> None:
    with rare_collections():
        found = weakref.ref(Ring())
        kept = [[] for _ in range(2 * YOUNG_OBJECTS)]
        assert found() is None, "a collection began by itself"
        del kept
