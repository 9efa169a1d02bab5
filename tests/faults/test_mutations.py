"""The model can fail: each mistake that `mutations` makes in the real code breaks a promise in a short history.

The same history without the mistake breaks none. The histories were found by the search of `test_model` with the
mistake in place, and shortened; a few were written by hand.
"""

from __future__ import annotations

import pytest

from tests.faults.model.histories import DEFECTS, MISTAKES, play
from tests.faults.model.mutations import MUTATIONS
from tests.faults.model.watchman import ViolationError
from tests.support.only_long import ALL_FAULTS


def test_every_mutation_has_a_history() -> None:
    assert MISTAKES.keys() == MUTATIONS.keys()


@pytest.mark.skipif(not ALL_FAULTS, reason="slow: LONG=1 and make test-faults run it")
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play(MISTAKES[name])
    MUTATIONS[name](monkeypatch)
    with pytest.raises(ViolationError):
        play(MISTAKES[name])


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_that_the_model_found_is_mended(name: str) -> None:
    play(DEFECTS[name])
