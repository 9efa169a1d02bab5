"""What a check comes to: an outcome, what was found, and the next step where not all is well. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

NAMED = 5
"""A finding names so many items; its details hold all of them."""


class CheckOutcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one part. `step` says what to do, '' where there is nothing; `details` are the items in full."""

    part: str
    name: str
    outcome: CheckOutcome
    found: str
    step: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Makes the checks of one part, such as 'zookeeper'."""

    name: str

    def ok(self, name: str, found: str) -> Check:
        """Report that all is well."""
        return Check(self.name, name, CheckOutcome.OK, found)

    def warning(self, name: str, found: str, step: str, details: Iterable[str] = ()) -> Check:
        """Report that it works, or may; a person should look."""
        return Check(self.name, name, CheckOutcome.WARNING, found, step, tuple(details))

    def failed(self, name: str, found: str, step: str, details: Iterable[str] = ()) -> Check:
        """Report that it does not work."""
        return Check(self.name, name, CheckOutcome.FAILED, found, step, tuple(details))

    def skipped(self, name: str, found: str) -> Check:
        """Report that it could not be tried, because something before it failed."""
        return Check(self.name, name, CheckOutcome.SKIPPED, found)

    def refused(self, name: str, error: Exception) -> Check:
        """Report what an error of Muster's own says, which is 'problem; next step'."""
        found, step = explained(error)
        return self.failed(name, found, step)


def explained(error: Exception) -> tuple[str, str]:
    """Take an error's message apart into the problem and the next step."""
    problem, separator, step = str(error).partition("; ")
    if step.startswith("last heard: "):
        heard, _, step = step.partition("; ")
        problem = f"{problem}; {heard}"
    return problem, step if separator else "see the message"


def named(items: Iterable[str]) -> str:
    """Name the first few items, and how many more there are."""
    there = list(items)
    more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
    return "; ".join(there[:NAMED]) + more


def failed(checks: Iterable[Check]) -> bool:
    return any(check.outcome is CheckOutcome.FAILED for check in checks)


def counts(checks: Iterable[Check]) -> dict[str, int]:
    """Count how many checks ended how, every outcome named."""
    found = {str(outcome): 0 for outcome in CheckOutcome}
    for check in checks:
        found[check.outcome] += 1
    return found
