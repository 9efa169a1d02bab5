"""What is to be done about a consumer, by what is seen of it: before it is live, and while it is watched.

Pure: what was seen and the time come in as arguments.

**One that is to be live** (`next_step`, for the operator): adopt it, wait for it, end what is left of it, or submit
it. The rules, in this order:

1. A consumer that was asked to stop is waited for until it is gone, and ended when it takes too long.
2. A consumer that is registered and passes its check is adopted; one in Consul's maintenance
   mode too, where a check always fails. If its process is known to have ended, Consul only has not noticed yet.
3. One that is registered, and whose check is refused a connection, has ended, unless its process is seen to run.
   Any other that fails its check may be just starting, or frozen: it is waited for, for `lost_after`.
4. A job that was submitted and is not registered yet is waited for as `muster.core.starting` says. On another machine
   its process cannot be seen, so there the time since its last stage alone decides.
5. Otherwise it is submitted.

**One that was live** (`Presence`, for the trigger) is gone when

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

from dataclasses import dataclass, field
from enum import StrEnum

from muster.airflow.processes import Life
from muster.airflow.submission import Submission
from muster.core.starting import Stage, Starting
from muster.edges.consul import Registration, StopRequest
from muster.settings.cluster_settings import ConsumersSettings

STOP_MARGIN = 15.0
"""Seconds beyond `graceful_timeout` until a consumer that was asked to stop is ended."""


class Step(StrEnum):
    """What to do next."""

    ADOPT = "adopt"
    WAIT = "wait"
    END = "end"
    SUBMIT = "submit"


@dataclass(frozen=True)
class Seen:
    """What was found. `starting` is how far the job that was submitted has come, `failing_for` how long the check has
    been failing, `stopping_for` how long ago a stop was first seen to be asked for, as far as the onlooker knows;
    `now` is in seconds since the epoch."""

    registration: Registration | None
    submission: Submission | None
    life: Life
    stop: StopRequest | None
    starting: Starting | None
    failing_for: float
    stopping_for: float
    now: float


def next_step(seen: Seen, settings: ConsumersSettings) -> tuple[Step, str]:
    """Return what to do, and why in words."""
    if stopping(seen):
        if seen.stopping_for > settings.graceful_timeout + STOP_MARGIN:
            return Step.END, f"it was asked to stop {seen.stopping_for:.0f} s ago and still has not"
        return Step.WAIT, "it is stopping"
    if seen.registration is not None:
        return _registered(seen, seen.registration, settings)
    if seen.submission is not None:
        return _submitted(seen, seen.submission, settings)
    return Step.SUBMIT, "it is not in Consul, and nothing was submitted"


def stopping(seen: Seen) -> bool:
    """Report whether a person asked the consumer that is still there to stop."""
    if seen.stop is None:
        return False
    if seen.registration is not None:
        return seen.stop.incarnation in {"", seen.registration.incarnation} and seen.life is not Life.ENDED
    return (
        seen.submission is not None
        and seen.stop.incarnation in {"", seen.submission.incarnation}
        and seen.life is Life.RUNNING
    )


def _registered(seen: Seen, registration: Registration, settings: ConsumersSettings) -> tuple[Step, str]:
    if seen.life is Life.ENDED:
        return Step.SUBMIT, f"incarnation {registration.incarnation} has ended and is still in Consul"
    if registration.passing:
        return Step.ADOPT, f"incarnation {registration.incarnation} is live in Consul"
    if registration.maintenance:
        return Step.ADOPT, f"incarnation {registration.incarnation} is in Consul's maintenance mode"
    if registration.nothing_listens and seen.life is not Life.RUNNING:
        return Step.SUBMIT, f"nothing listens at its address any more: {registration.output}"
    if seen.failing_for < settings.lost_after:
        return Step.WAIT, f"its check fails: {registration.output or 'no output'}"
    return (
        Step.END,
        f"its check has failed for {seen.failing_for:.0f} s: {registration.output or 'no output'}",
    )


def _submitted(seen: Seen, submission: Submission, settings: ConsumersSettings) -> tuple[Step, str]:
    what = f"incarnation {submission.incarnation}"
    if seen.life is Life.ENDED:
        return Step.SUBMIT, f"{what} has ended"
    starting = progress(submission, seen.starting)
    if not starting.overdue(seen.now, settings.startup_timeout):
        return Step.WAIT, f"{what} is starting: {starting.stage}"
    step = Step.END if seen.life is Life.RUNNING else Step.SUBMIT
    return step, f"{what} is not in Consul, and nothing followed: {starting.said(seen.now)}"


def progress(submission: Submission, starting: Starting | None) -> Starting:
    """Return how far a job has come; without any stage, it was submitted."""
    return starting or Starting(submission.incarnation, Stage.SUBMITTED, submission.at, submission.tries)


ABSENCE = 10.0
"""Seconds that a consumer whose process cannot be seen must be absent from Consul, or refuse connections, to be
gone."""


@dataclass
class Since:
    """For how long something has been seen, look by look."""

    _began: dict[str, float] = field(default_factory=dict)

    def seconds(self, what: str, holds: bool, now: float) -> float:
        """Return for how many seconds every look up to this one has seen that `what` holds, 0 if it does not now."""
        if not holds:
            self._began.pop(what, None)
            return 0.0
        return now - self._began.setdefault(what, now)


@dataclass
class Presence:
    """What is known about one consumer so far. Times are in seconds since the epoch."""

    incarnation: str
    lost_after: float
    graceful: float
    since: Since = field(default_factory=Since)

    def gone(self, trusted: bool, registration: Registration | None, life: Life, now: float) -> str:
        """Take in what was just seen; return why the consumer is gone, '' while it is not known to be."""
        other = registration is not None and registration.incarnation != self.incarnation
        if life is Life.ENDED and not (other and registration is not None and registration.passing):
            return "its driver process has ended"
        if not trusted:
            return ""
        runs = life is Life.RUNNING
        absent = self.since.seconds("absent", registration is None, now)
        if registration is None:
            though = ", though its process still runs" if runs else ""
            longest = self.graceful if runs else ABSENCE
            return f"it left Consul {absent:.0f} s ago{though}" if absent > longest else ""
        fails = not (registration.passing or registration.maintenance)
        failing = self.since.seconds("failing", fails, now)
        if not fails:
            self.incarnation = registration.incarnation or self.incarnation
            return ""
        refused = registration.nothing_listens and not runs
        if failing > (min(ABSENCE, self.lost_after) if refused else self.lost_after):
            return f"its check has failed for {failing:.0f} s: {registration.output or 'no output'}"
        return ""
