"""What came of the faults in real servers: a row a fault, and the line that counts.

`python -m tests.support.fault_score faults` (or `hosts`) prints the last line of the last run again. It ends with 1
if there is none, or if a number in it is not what it has to be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"


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

    @property
    def good(self) -> bool:
        """Whether nothing was lost, nothing doubled that was planned, no zombie's commit counted, and no partition
        had two owners."""
        return not (self.lost or self.zombie_commits or self.double_owner or (self.planned and self.doubled))


@dataclass(frozen=True)
class Score:
    """All faults of a run. On several `hosts` double owners are counted, and the `assignors` that planned.

    Over `days` double owners are counted, partitions that stood still `unnamed`, and measures that were `growing`.
    """

    name: str
    rows: Sequence[Row]
    hosts: int = 0
    assignors: Sequence[str] = ()
    unnamed: int | None = None
    """Partitions that stood still without a name; None where that was not watched."""
    days: int = 0
    growing: int = 0

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Score:
        """Return a score as it was written."""
        return cls(**{**found, "rows": [Row(**row) for row in found["rows"]]})

    @property
    def good(self) -> bool:
        """Whether there are faults, every row is as it has to be, nothing stood still without a name, and nothing has
        grown."""
        good = bool(self.rows) and all(row.good for row in self.rows)
        return good and not (self.unnamed or self.growing)

    def last_line(self) -> str:
        """Return the numbers that count."""
        rows = self.rows
        numbers = {
            "injected": sum(row.injected for row in rows),
            "lost": sum(row.lost for row in rows),
            "doubled_planned": sum(row.doubled for row in rows if row.planned),
            "zombie_commits": sum(row.zombie_commits for row in rows),
        }
        owners = sum(row.double_owner for row in rows)
        if self.days:
            del numbers["zombie_commits"]
            over = {"double_owner": owners, "unnamed": self.unnamed or 0, "growing": self.growing}
            numbers = {"days": self.days, **numbers, **over}
        if self.hosts:
            numbers = {
                "hosts": self.hosts,
                **numbers,
                "double_owner": owners,
                "assignors": len(self.assignors),
            }
        if self.unnamed is not None:
            numbers["unnamed"] = self.unnamed
        return f"{self.name}: " + " ".join(f"{key}={number}" for key, number in numbers.items())

    def table(self) -> str:
        """Return the rows in columns, the first one to the left and the others to the right."""
        heads = ("fault", "injected", "lost", "doubled", "zombie commits", "two owners", "flows again after")
        lines = [
            (
                row.fault + (" (planned)" if row.planned else ""),
                *map(str, (row.injected, row.lost, row.doubled, row.zombie_commits)),
                str(row.double_owner) if self.hosts or self.days else "-",
                f"{row.seconds:.1f} s",
            )
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in (heads, *lines)
        )

    def write(self) -> None:
        """Keep it for the summary and for `main`."""
        SCORES.append(self)
        ARTIFACTS.mkdir(exist_ok=True)
        _file(self.name).write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")


SCORES: list[Score] = []
"""Those that were written in this process."""


def _file(name: str) -> Path:
    return ARTIFACTS / f"{name}.json"


def main(name: str) -> int:
    """Print the last line; return the exit code."""
    if not _file(name).exists():
        print(f"{name}: no score, because these tests did not get to their end, or were skipped")
        return 1
    score = Score.from_dict(json.loads(_file(name).read_text(encoding="utf-8")))
    print(score.last_line())
    return 0 if score.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
