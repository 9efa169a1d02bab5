"""Who decided something by hand, when and why: what every decision of a person has in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

LAST_MOMENT = 253_370_764_800.0
"""Seconds since the epoch at the end of the year 9998: what can be written and shown in any time zone."""

LONGEST_WHY = 200
"""Characters of a person's name, and of a reason, that stand in the reason of a move; all of it stands in Consul."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """`by` decided it, at `at` (seconds since the epoch, 0 if unknown), and `why`."""

    by: str
    at: float
    why: str

    def said(self) -> str:
        """`ann: why`, on one line and not too long; semicolons separate the reasons of a topic."""
        who, words = _line(self.by), _line(self.why)
        return f"{who}: {words}" if words else who

    def said_since(self) -> str:
        """`ann since 2026-03-01T12:00:00+00:00: why`, on one line; without the moment if it is unknown."""
        if self.at <= 0:
            return self.said()
        since = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")
        who, words = _line(self.by), _line(self.why)
        return f"{who} since {since}: {words}" if words else f"{who} since {since}"


def _line(text: str) -> str:
    """`text` on one line, without what UTF-8 cannot write, and cut where it is long."""
    words = " ".join(text.encode("utf-8", "replace").decode().split()).replace(";", ",")
    return words if len(words) <= LONGEST_WHY else words[: LONGEST_WHY - 3] + "..."
