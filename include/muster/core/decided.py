"""Who decided something by hand, when and why: what every decision of a person has in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

LONGEST_WHY = 200
"""Characters of a person's reason that stand in the reason of a move; the whole of it is where it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """`by` decided it, at `at` (seconds since the epoch, 0 if unknown), and `why`."""

    by: str
    at: float
    why: str

    def said(self) -> str:
        """`ann: why`, on one line and not too long; semicolons separate the reasons of a topic."""
        words = " ".join(self.why.split()).replace(";", ",")
        cut = words if len(words) <= LONGEST_WHY else words[: LONGEST_WHY - 3] + "..."
        return f"{self.by}: {cut}" if cut else self.by

    def said_since(self) -> str:
        """`ann since 2026-03-01T12:00:00+00:00: why`, on one line; without the moment if it is unknown."""
        if self.at <= 0:
            return self.said()
        since = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")
        said = self.said().removeprefix(self.by)
        return f"{self.by} since {since}{said}"
