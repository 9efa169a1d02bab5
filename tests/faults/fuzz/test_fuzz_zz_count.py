"""Whether as many inputs were played as is said: the last file of this folder, so that the others have been."""

from __future__ import annotations

import pytest

from tests.faults.fuzz.tally import KINDS, PLAYED
from tests.support.only_long import ALL_FAULTS

LEAST = 10_000 if ALL_FAULTS else 4_000


def test_count_of_played_inputs_is_enough(request: pytest.FixtureRequest) -> None:
    files = {path.stem for path in request.path.parent.glob("test_fuzz_*.py")} - {request.path.stem}
    asked = {item.path.stem for item in request.session.items if item.path.parent == request.path.parent}
    if files - asked or request.config.option.keyword:
        pytest.skip(f"only a part was asked for: {sum(PLAYED.values())} inputs")
    if hasattr(request.config, "workerinput"):
        pytest.skip("the other processes play inputs, too; the summary counts them all")
    assert PLAYED.keys() == KINDS
    assert PLAYED.total() >= LEAST
