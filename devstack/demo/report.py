"""How the demo ends: the tables, the verdict, and the last line for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from devstack.demo.arrivals import Arrivals


@dataclass(frozen=True)
class Rebalance:
    """One rebalance: when its last step was done (local time), how long it took (seconds), what moved and why."""

    ended: str
    lasted: float
    moved: int
    reason: str


def rebalances_of(events: Iterable[Mapping[str, Any]], topic: str) -> list[Rebalance]:
    """Read the rebalances of a topic from Asset events, oldest first: each ends when the topic is Stable again."""
    found: list[Rebalance] = []
    moved = 0
    changes = [change for event in events for change in event.get("extra", {}).get("changes", ())]
    for change in sorted((c for c in changes if c["topic"] == topic), key=lambda c: c["at"]):
        moved += change["moved"]
        if change["after"] == "Stable" and change["before"] != "Stable":
            ended = datetime.fromtimestamp(change["at"]).astimezone().strftime("%H:%M:%S")
            found.append(Rebalance(ended, change["lasted"], moved, change["reason"]))
            moved = 0
    return found


@dataclass(frozen=True)
class Verdict:
    """What was produced against what arrived."""

    produced: int
    arrivals: Arrivals
    expected: Counter[str]
    rebalances: list[Rebalance]

    @property
    def missing(self) -> int:
        """Flights that were produced and stand nowhere."""
        return self.produced - self.arrivals.rows

    @property
    def duplicates(self) -> int:
        """Records that stand there more than once."""
        return self.arrivals.records - self.arrivals.rows

    @property
    def good(self) -> bool:
        """Nothing missing, nothing twice, every carrier's count right, and at least one hand-over."""
        return (
            self.missing == 0
            and self.duplicates == 0
            and self.arrivals.carriers == self.expected
            and len(self.rebalances) > 1
        )

    def show(self, console: Console) -> None:
        """Print the tables."""
        console.print()
        rebalances = Table(title="Rebalances of topic flights", title_justify="left")
        for column in ("done at", "took", "partitions moved", "why"):
            rebalances.add_column(column)
        for r in self.rebalances:
            rebalances.add_row(r.ended, f"{r.lasted:.1f} s", str(r.moved), r.reason)
        console.print(rebalances)
        carriers = Table(title="Flights by carrier", title_justify="left")
        for column in ("carrier", "source file", "arrived", ""):
            carriers.add_column(column, justify="left" if column in {"carrier", ""} else "right")
        for carrier in sorted(self.expected | self.arrivals.carriers):
            expected, arrived = self.expected[carrier], self.arrivals.carriers[carrier]
            carriers.add_row(
                carrier, f"{expected:,}", f"{arrived:,}", "ok" if expected == arrived else "DIFFERENT"
            )
        console.print(carriers)
        totals = Table(title="Every record accounted for", title_justify="left")
        for column in ("produced", "arrived", "missing", "read twice", "rebalances"):
            totals.add_column(column, justify="right")
        totals.add_row(
            f"{self.produced:,}",
            f"{self.arrivals.rows:,}",
            f"{self.missing:,}",
            f"{self.duplicates:,}",
            str(len(self.rebalances)),
        )
        console.print(totals)

    @property
    def last_line(self) -> str:
        """The line that scripts read."""
        return (
            f"demo: produced={self.produced} arrived={self.arrivals.rows} missing={self.missing} "
            f"duplicates={self.duplicates} rebalances={len(self.rebalances)}"
        )
