"""How far a consumer that was submitted has come, until it is live. Pure.

A stage is what has been done. Progress is the next stage, and nothing else: a job may take `startup_timeout` for
each, twice as long at the next try and four times from the third on, because a busy machine stays busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_DOUBLINGS = 2
"""A stage may take twice as long at each later try, so many times."""


class Stage(StrEnum):
    """What has been done, in this order. The values are the words that users see."""

    SUBMITTED = "submitted"
    PROCESS = "process started"
    JVM = "JVM started"
    SESSION = "Spark session made"
    BATCH = "first batch tried"
    REGISTERED = "registered"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Starting:
    """A consumer that is to be live.

    `since` is when it came to its stage, in seconds since the epoch; `tries` are the jobs in a row, this one
    included, that were submitted; `failed` says why this one was given up, '' while it was not.
    """

    incarnation: str
    stage: Stage
    since: float
    tries: int = 1
    failed: str = ""

    def patience(self, startup_timeout: float) -> float:
        """Return the seconds that the stage may take."""
        return startup_timeout * (1 << min(max(self.tries - 1, 0), MOST_DOUBLINGS))

    def overdue(self, now: float, startup_timeout: float) -> bool:
        """Return whether it has taken longer for its stage than it may."""
        return now - self.since >= self.patience(startup_timeout)

    def said(self, now: float) -> str:
        """Say how far it has come."""
        again = f", try {self.tries}" if self.tries > 1 else ""
        return f"{self.stage} {max(0.0, now - self.since):.0f} s ago{again}"
