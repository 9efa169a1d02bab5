"""Whether a consumer that was live is still there: the judgement of the trigger that watches it.

Pure: what was seen and the time come in as arguments. A consumer is gone when

- its driver process, on this machine, has ended;
- it is no longer in Consul: at once if its process has ended too, after `graceful` seconds while its process can be
  seen (it may be closing partitions, or registering again), after `ABSENCE` seconds if it cannot;
- its process cannot be seen, and its check has been refused a connection for `ABSENCE` seconds;
- its check has failed for `lost_after` seconds (in Consul's maintenance mode, where a check always fails, that says
  nothing).

Consul out of reach, or an answer that is not to be trusted, is no evidence. A new incarnation of the consumer, which
another process submitted, is followed instead of the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster.airflow.processes import Life
from muster.edges.consul import Registration

ABSENCE = 10.0
"""Seconds that a consumer whose process cannot be seen must be absent from Consul, or refuse connections, to be
gone."""


@dataclass
class Presence:
    """What is known about one consumer so far. Times are in seconds since the epoch."""

    incarnation: str
    lost_after: float
    graceful: float
    absent_since: float | None = None
    failing_since: float | None = None

    def gone(self, trusted: bool, registration: Registration | None, life: Life, now: float) -> str:
        """Take in what was just seen; return why the consumer is gone, '' while it is not known to be."""
        other = registration is not None and registration.incarnation != self.incarnation
        if life is Life.ENDED and not (other and registration is not None and registration.passing):
            return "its driver process has ended"
        if not trusted:
            return ""
        if registration is None:
            return self._absent(life, now)
        self.absent_since = None
        if registration.passing or registration.maintenance:
            self.failing_since = None
            if registration.incarnation is not None:
                self.incarnation = registration.incarnation
            return ""
        self.failing_since = now if self.failing_since is None else self.failing_since
        refused = registration.nothing_listens and life is not Life.RUNNING
        if now - self.failing_since > (min(ABSENCE, self.lost_after) if refused else self.lost_after):
            return f"its check has failed for {now - self.failing_since:.0f} s: {registration.output or 'no output'}"
        return ""

    def _absent(self, life: Life, now: float) -> str:
        self.absent_since = now if self.absent_since is None else self.absent_since
        absent = now - self.absent_since
        if absent > (self.graceful if life is Life.RUNNING else ABSENCE):
            return f"it left Consul {absent:.0f} s ago" + (
                ", though its process still runs" if life is Life.RUNNING else ""
            )
        return ""
