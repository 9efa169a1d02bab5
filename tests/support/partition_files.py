"""Writers of a partition folder that die at any step, and what readers find."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import strategies as st

from muster.sinks.batch import Range
from muster.sinks.partition_folder import PartitionFolder, incoming_file

SUFFIX = ".txt"


class DiedError(Exception):
    """The writer was killed."""


class Writer:
    """Writes files that hold one offset a line, as `ParquetSink` does with rows."""

    def __init__(self, path: Path) -> None:
        self.folder = PartitionFolder(path, SUFFIX)

    def write(self, held: Range) -> None:
        for piece in self.folder.missing(held):
            self._place(piece)

    def _place(self, piece: Range) -> None:
        file = incoming_file(self.folder.path)
        file.write_text("".join(f"{n}\n" for n in range(*piece)))
        while not self.folder.publish(piece, file):
            missing = self.folder.missing(piece)
            if missing != [piece]:
                for rest in missing:
                    self._place(rest)
                file.unlink(missing_ok=True)
                return


def read(path: Path) -> Counter[int]:
    """What a reader sees, who knows nothing of claims."""
    found: Counter[int] = Counter()
    for file in path.glob(f"*{SUFFIX}"):
        lines = [int(line) for line in file.read_text().split()]
        first, last = (int(part) for part in file.stem.split("-"))
        assert lines == list(range(first, last + 1)), "a file holds what its name says"
        found.update(lines)
    return found


def once(*ranges: Range) -> dict[int, int]:
    return {n: 1 for held in ranges for n in range(*held)}


ranges = st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda t: (t[0], t[0] + t[1]))
