"""A partition's folder whose writers stand still or die between any two steps, while others go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.sinks import partition_folder as module
from muster.sinks.batch import Range
from tests.support.partition_files import DiedError, Writer, once, read

STEPS: tuple[tuple[Any, str], ...] = (
    (os, "link"),
    (os, "listdir"),
    (Path, "rename"),
    (Path, "unlink"),
    (Path, "read_bytes"),
    (Path, "write_text"),
)
"""Each change of the folder, and each look at it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One delivery; before step number `stops` of its writing its writer stands still, or is killed if it `dies`."""

    writer: int
    held: Range
    stops: int
    dies: bool
    born_anew: bool


close = st.tuples(st.integers(0, 9), st.integers(1, 6)).map(lambda t: (t[0], t[0] + t[1]))
batches = st.builds(
    Batch, st.integers(0, 3), close, st.integers(0, 18), st.sampled_from([False, False, True]), st.booleans()
)


class Play:
    """Writes batches in order; while a writer stands still in the middle of one, the next is written by another."""

    def __init__(self, path: Path, script: list[Batch]) -> None:
        self.path = path
        self.wanted: dict[int, int] = {}
        self._script = list(reversed(script))
        self._writers = [Writer(path) for _ in range(4)]
        self._at_work: list[Batch] = []
        self._steps_left: list[int] = []

    def run(self) -> None:
        while self._script:
            self.next()
        for writer in self._writers:
            writer.write((0, 20))
        assert read(self.path) == once((0, 20))

    def next(self) -> None:
        batch = self._script.pop()
        if batch.writer in {other.writer for other in self._at_work}:
            return
        self._at_work.append(batch)
        self._steps_left.append(batch.stops)
        try:
            if batch.born_anew:
                self._writers[batch.writer] = Writer(self.path)
            self._writers[batch.writer].write(batch.held)
        except DiedError:
            self._steps_left[-1] = -1
            self._writers[batch.writer] = Writer(self.path)
        else:
            self.wanted |= once(batch.held)
        finally:
            self._at_work.pop()
            self._steps_left.pop()
        found = read(self.path)
        assert max(found.values(), default=1) == 1, "nothing stands twice"
        assert self.wanted.keys() <= found.keys(), "nothing that was written is missing"

    def step(self) -> None:
        if not self._at_work:
            return
        self._steps_left[-1] -= 1
        if self._steps_left[-1] == -1:
            if self._at_work[-1].dies:
                raise DiedError
            if self._script:
                self.next()


@given(st.lists(batches, min_size=2, max_size=10), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_any_order_of_steps(tmp_path_factory: pytest.TempPathFactory, script: list[Batch], kept: int) -> None:
    play = Play(tmp_path_factory.mktemp("p"), script)

    def stepping(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            play.step()
            return step(*args, **options)

        return stepped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT", kept)
        for owner, name in STEPS:
            patch.setattr(owner, name, stepping(getattr(owner, name)))
        play.run()
