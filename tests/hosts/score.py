"""What came of the faults on several hosts: a row a fault, and the line that counts.

`python -m tests.hosts.score` prints the last line of the last run again. It ends with 1 if there is none, or if a
number in it is not what it has to be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.real import matrix

FILE = Path(__file__).resolve().parents[2] / "artifacts" / "hosts.json"
ASSIGNORS = 6


@dataclass(frozen=True)
class Row:
    """One fault, all its injections together. `seconds` is the longest time until all partitions flowed again."""

    fault: str
    injected: int
    lost: int
    doubled: int
    zombie_commits: int
    double_owner: int
    seconds: float
    planned: bool = False


@dataclass(frozen=True)
class Score:
    """All of a run. `assignors` are the names of those that planned a rebalance."""

    hosts: int
    rows: Sequence[Row] = ()
    assignors: Sequence[str] = field(default_factory=tuple)

    def last_line(self) -> str:
        """The numbers that count."""
        rows = self.rows
        return (
            f"hosts: hosts={self.hosts} injected={sum(row.injected for row in rows)} "
            f"lost={sum(row.lost for row in rows)} "
            f"doubled_planned={sum(row.doubled for row in rows if row.planned)} "
            f"zombie_commits={sum(row.zombie_commits for row in rows)} "
            f"double_owner={sum(row.double_owner for row in rows)} assignors={len(self.assignors)}"
        )

    @property
    def good(self) -> bool:
        """Whether nothing was lost, nothing doubled that was planned, no zombie heard, and no partition had two
        owners."""
        return bool(self.rows) and not any(
            row.lost or row.zombie_commits or row.double_owner or (row.planned and row.doubled)
            for row in self.rows
        )

    def table(self) -> str:
        """The rows for people."""
        heads = ("fault", "injected", "lost", "doubled", "zombies", "two owners", "flows again after")
        lines = [
            (
                row.fault + (" (planned)" if row.planned else ""),
                *map(str, (row.injected, row.lost, row.doubled, row.zombie_commits, row.double_owner)),
                f"{row.seconds:.1f} s",
            )
            for row in self.rows
        ]
        return matrix.table([heads, *lines])

    def write(self) -> None:
        """Keep it for who prints it."""
        SCORES[:] = [self]
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")


SCORES: list[Score] = []
"""What was written in this process."""


def from_dict(found: dict[str, object]) -> Score:
    """A score as it was written."""
    rows, assignors, hosts = found["rows"], found["assignors"], found["hosts"]
    assert isinstance(rows, list)
    assert isinstance(assignors, list)
    assert isinstance(hosts, int)
    return Score(hosts, [Row(**row) for row in rows], assignors)


def main() -> int:
    """Print the last line; returns the exit code."""
    if not FILE.exists():
        print("hosts: no score, because the tests on several hosts did not get to their end, or were skipped")
        return 1
    score = from_dict(json.loads(FILE.read_text(encoding="utf-8")))
    print(score.last_line())
    return 0 if score.good else 1


if __name__ == "__main__":
    sys.exit(main())
