"""Plays writers of one partition that stand still or die between any two steps, while others go on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import strategies as st

from muster.core.model import OffsetRange
from tests.support.partition_files import (
    AT_ONCE,
    BY_SIZE,
    DiedError,
    JoiningWriter,
    Writer,
    files,
    has_row,
    once,
    pending,
    published,
    read,
)

Steps = tuple[tuple[Any, str], ...]
"""Functions that change the folder or look at it: each call is a step."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One delivery; before step number `stops` of its writing its writer stands still, or is killed if it `dies`.

    Then what is pending is published, if it is `old`.
    """

    writer: int
    held: OffsetRange
    stops: int
    dies: bool
    new_process: bool
    old: bool


def batches(most_steps: int) -> st.SearchStrategy[Batch]:
    close = st.tuples(st.integers(0, 9), st.integers(1, 6)).map(lambda t: (t[0], t[0] + t[1]))
    dies = st.sampled_from([False, False, True])
    return st.builds(
        Batch, st.integers(0, 3), close, st.integers(0, most_steps), dies, st.booleans(), st.booleans()
    )


class AnyWriter(Protocol):
    def write(self, held: OffsetRange) -> None: ...


class Play:
    """Writes batches in order; while a writer stands still in the middle of one, the next is written by another."""

    def __init__(self, path: Path, script: list[Batch]) -> None:
        self.path = path
        self.wanted: dict[int, int] = {}
        self._script = list(reversed(script))
        self._writers = [self.new_writer() for _ in range(4)]
        self._at_work: list[Batch] = []
        self._steps_left: list[int] = []

    def new_writer(self) -> Any:
        return Writer(self.path)

    def write(self, writer: Any, batch: Batch) -> None:
        writer.write(batch.held)

    def check(self) -> None:
        """Check what holds after each batch."""
        found = read(self.path)
        assert max(found.values(), default=1) == 1, "nothing stands twice"
        assert self.wanted.keys() <= found.keys(), "nothing that was written is missing"

    def check_step(self) -> None:
        """Check what holds before each step."""

    def finish(self) -> None:
        for writer in self._writers:
            writer.write((0, 20))
        assert read(self.path) == once((0, 20))

    def run(self) -> None:
        while self._script:
            self.next()
        self.finish()

    def next(self) -> None:
        batch = self._script.pop()
        if batch.writer in {other.writer for other in self._at_work}:
            return
        self._at_work.append(batch)
        self._steps_left.append(batch.stops)
        try:
            if batch.new_process:
                self._writers[batch.writer] = self.new_writer()
            self.write(self._writers[batch.writer], batch)
        except DiedError:
            self._steps_left[-1] = -1
            self._writers[batch.writer] = self.new_writer()
        else:
            self.wanted |= once(batch.held)
        finally:
            self._at_work.pop()
            self._steps_left.pop()
        self.check()

    def step(self) -> None:
        self.check_step()
        if not self._at_work:
            return
        self._steps_left[-1] -= 1
        if self._steps_left[-1] == -1:
            if self._at_work[-1].dies:
                raise DiedError
            if self._script:
                self.next()


class JoiningPlay(Play):
    """The same with pending files; a reader looks between all steps."""

    def __init__(self, path: Path, script: list[Batch]) -> None:
        self._reader = Reader(path)
        super().__init__(path, script)

    def new_writer(self) -> Any:
        return JoiningWriter(self.path)

    def write(self, writer: Any, batch: Batch) -> None:
        writer.write(batch.held, AT_ONCE if batch.old else BY_SIZE)

    def check(self) -> None:
        self.check_step()

    def check_step(self) -> None:
        self._reader.look(self.wanted)

    def finish(self) -> None:
        for writer in self._writers:
            writer.write((0, 20), AT_ONCE)
        self._reader.all_is_published((0, 20))


class Reader:
    """Looks at published files, and knows what it has seen."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: set[Path] = set()

    def look(self, stored: dict[int, int]) -> None:
        """Check what is published, and that it holds `stored` together with what is pending."""
        kept = self.look_at_published().keys() | pending(self._root)
        assert set(filter(has_row, stored)) <= kept, "nothing that was stored is without a file"

    def look_at_published(self) -> Counter[int]:
        seen = files(published(self._root))
        assert self._seen <= seen, "what was published stays"
        self._seen = seen
        found = read(published(self._root), has_row)
        assert max(found.values(), default=1) == 1, "no reader sees anything twice"
        return found

    def all_is_published(self, held: OffsetRange) -> None:
        assert read(published(self._root), has_row) == {n: 1 for n in once(held) if has_row(n)}
        assert not pending(self._root)


@contextmanager
def stepping(step: Callable[[], None], steps: Steps) -> Iterator[None]:
    """Have `step` called before each call of the functions `steps`. No power fails: nothing waits for the disk."""

    def stepped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            step()
            return function(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        for owner, name in steps:
            patch.setattr(owner, name, stepped(getattr(owner, name)))
        yield
