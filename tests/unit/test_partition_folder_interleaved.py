"""A partition's folder whose writers stand still or die between any two steps, while others go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.sinks import partition_folder as module
from tests.support.partition_play import Batch, Play, Steps, batches, stepping

STEPS: Steps = (
    (os, "link"),
    (os, "listdir"),
    (Path, "rename"),
    (Path, "unlink"),
    (Path, "read_bytes"),
    (Path, "write_text"),
)
"""Each change of the folder, and each look at it."""


@given(st.lists(batches(most_steps=18), min_size=2, max_size=10), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_any_order_of_steps(tmp_path_factory: pytest.TempPathFactory, script: list[Batch], kept: int) -> None:
    play = Play(tmp_path_factory.mktemp("p"), script)
    with pytest.MonkeyPatch.context() as patch, stepping(play.step, STEPS):
        patch.setattr(module, "KEPT", kept)
        play.run()
