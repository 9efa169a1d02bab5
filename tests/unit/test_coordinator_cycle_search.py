"""How the coordinator has Python search for reference cycles."""

from __future__ import annotations

import gc
import weakref

import pytest

from muster.coordinator import cycle_search


class Ring:
    """One object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


def test_the_search_is_seldom_meanwhile_and_as_before_afterwards() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(ValueError, match="any"), cycle_search.seldom():
        assert gc.get_threshold() == (cycle_search.YOUNG, *before[1:])
        assert gc.get_freeze_count() > frozen
        raise ValueError("any")
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_cycles_are_found_all_the_same() -> None:
    with cycle_search.seldom():
        found = weakref.ref(Ring())
        kept = [[] for _ in range(2 * cycle_search.YOUNG)]
        assert found() is None, "the search began by itself"
        del kept
