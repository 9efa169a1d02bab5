"""The matrix of faults: written by the tests, told in pytest's summary when all have run.

`python -m tests.faults.real.matrix` prints the last line of the last one again, and ends with 1 if there is none or a
number in it is not what it has to be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parents[3] / "artifacts" / "faults.json"


@dataclass(frozen=True)
class Row:
    """One fault, all its injections together. `seconds` is the longest time until all partitions flowed again."""

    fault: str
    injected: int
    lost: int
    doubled: int
    zombie_commits: int
    seconds: float
    planned: bool = False


ROWS: list[Row] = []
"""Those that were written in this process."""


def last_line(rows: Sequence[Row]) -> str:
    """The numbers that count."""
    return (
        f"faults: injected={sum(row.injected for row in rows)} lost={sum(row.lost for row in rows)} "
        f"doubled_planned={sum(row.doubled for row in rows if row.planned)} "
        f"zombie_commits={sum(row.zombie_commits for row in rows)}"
    )


def good(rows: Sequence[Row]) -> bool:
    """Whether nothing was lost, nothing doubled that was planned, and no zombie heard."""
    return bool(rows) and not any(
        row.lost or row.zombie_commits or (row.planned and row.doubled) for row in rows
    )


def text(rows: Sequence[Row]) -> str:
    """The matrix as a table."""
    heads = ("fault", "injected", "lost", "doubled", "zombie commits", "flows again after")
    lines = [
        (
            row.fault + (" (planned)" if row.planned else ""),
            str(row.injected),
            str(row.lost),
            str(row.doubled),
            str(row.zombie_commits),
            f"{row.seconds:.1f} s",
        )
        for row in rows
    ]
    return table([heads, *lines])


def table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells in columns, the first one to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def write(rows: Sequence[Row]) -> None:
    """Keep the matrix for whoever prints it."""
    ROWS[:] = rows
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps([asdict(row) for row in rows], indent=2), encoding="utf-8")


def main() -> int:
    """Print the last line; returns the exit code."""
    if not FILE.exists():
        print("faults: no matrix, because the tests of real faults did not get to their end")
        return 1
    rows = [Row(**row) for row in json.loads(FILE.read_text(encoding="utf-8"))]
    print(last_line(rows))
    return 0 if good(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
