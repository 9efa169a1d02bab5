"""Writers of a partition folder that die at any step, and what readers find."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

from hypothesis import strategies as st

from muster.core.model import OffsetRange
from muster.sinks.partition_folder import PartitionFolder, incoming_file
from muster.sinks.pending_files import Due, PendingFolder, Piece, pending_place

SUFFIX = ".txt"
FILE_SIZE = 8
"""Bytes of a joined file: three or four rows."""
BY_SIZE, AT_ONCE = Due(FILE_SIZE, -math.inf), Due(FILE_SIZE, math.inf, of_all=True)


class DiedError(BaseException):
    """The writer was killed."""


class Writer:
    """Writes files that hold one offset a line, as `ParquetSink` does with rows."""

    def __init__(self, path: Path) -> None:
        self.folder = PartitionFolder(path, SUFFIX)

    def write(self, held: OffsetRange) -> None:
        for piece in self.folder.missing(held):
            self._place(piece)

    def _place(self, piece: OffsetRange) -> None:
        file = incoming_file(self.folder.path)
        file.write_text("".join(f"{n}\n" for n in range(*piece)))
        while not self.folder.publish(piece, file):
            missing = self.folder.missing(piece)
            if missing != [piece]:
                for rest in missing:
                    self._place(rest)
                file.unlink(missing_ok=True)
                return


class JoiningWriter:
    """Writes as `ParquetSink` with `file_size` does, below `root`; offsets may have no row."""

    def __init__(self, root: Path) -> None:
        self.folder = PendingFolder(pending_place(root, published(root)), published(root), SUFFIX, join_lines)

    def write(self, held: OffsetRange, due: Due = BY_SIZE) -> None:
        for piece in self.folder.missing(held):
            file = None
            if rows := [n for n in range(*piece) if has_row(n)]:
                file = incoming_file(self.folder.path)
                file.write_text(_lines(rows))
            self.folder.store(piece, file)
        self.folder.publish(due)


def published(root: Path) -> Path:
    return root / "p"


def has_row(offset: int) -> bool:
    """Whether the handler makes a row of a record."""
    return offset % 4 < 2


def join_lines(pieces: Sequence[Piece], target: Path) -> int:
    """Join files of lines; those of offsets from 8 on do not fit to those before, as with other columns."""
    fit = list(takewhile(lambda piece: _columns(piece) == _columns(pieces[0]), pieces))
    lines = [
        n for piece in fit for n in map(int, piece.file.path.read_bytes().split()) if n in range(*piece.held)
    ]
    target.write_text(_lines(lines))
    return len(fit)


def _columns(piece: Piece) -> bool:
    return piece.file.held[0] >= 8


def _lines(offsets: Sequence[int]) -> str:
    return "".join(f"{n}\n" for n in offsets)


def read(path: Path, has_row: Callable[[int], bool] = lambda _: True) -> Counter[int]:
    """What a reader sees, who knows nothing of claims."""
    found: Counter[int] = Counter()
    for file in files(path):
        lines = [int(line) for line in file.read_text().split()]
        first, last = (int(part) for part in file.stem.split("-"))
        assert lines == list(filter(has_row, range(first, last + 1))), "a file holds what its name says"
        found.update(lines)
    return found


def pending(root: Path) -> set[int]:
    """The rows that no reader sees yet."""
    place = pending_place(root, published(root))
    return {int(line) for file in files(place, "") for line in file.read_text().split()}


def files(path: Path, suffix: str = SUFFIX) -> set[Path]:
    """List a folder without a call that the tests count as a step."""
    try:
        with os.scandir(path) as entries:
            return {Path(entry.path) for entry in entries if entry.name.endswith(suffix)}
    except FileNotFoundError:
        return set()


def once(*ranges: OffsetRange) -> dict[int, int]:
    return {n: 1 for held in ranges for n in range(*held)}


ranges = st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda t: (t[0], t[0] + t[1]))
