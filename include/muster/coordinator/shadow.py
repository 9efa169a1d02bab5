"""A candidate assignor beside the live one: what it would do differently is reported, and never done.

It may be half-finished code, so it gets copies of what it reads, works in a thread of its own and has a limited time.
Any failure of it ends as a line in the report. A thread cannot be kept from ending the process; and one that never
returns goes on until the process of the run ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from muster.core.assignors import Assignor, PlanningContext, load_assignor
from muster.core.comparison import Balance, Difference, balance_of, differences, resulting
from muster.core.model import Assignment, Consumer, TopicSnapshot
from muster.core.planner import intended_owners, plan
from muster.settings.cluster_settings import AssignorSettings

TIME_LIMIT = 5.0
"""Seconds that the shadow may take, loading it and reading what it plans with included."""
EXAMPLES = 5
"""So many partitions placed differently are named; the rest is counted."""


@dataclass(frozen=True)
class ShadowReport:
    """What the shadow assignor would have done. With `error` there is nothing else.

    `moves` and `live_moves` count the partitions that either plan gives to another consumer than the one that has
    it, `different` those that the two plans place differently. `seconds` is what planning took.
    """

    assignor: str
    moves: int = 0
    live_moves: int = 0
    balance: Balance | None = None
    live_balance: Balance | None = None
    different: int = 0
    examples: list[Difference] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""

    def __str__(self) -> str:
        """Format one line for logs and for `muster plan`."""
        if self.error:
            return f"shadow: {self.assignor}: no plan to compare with: {self.error}"
        examples = "; ".join(
            f"{d.topic} {d.partition} with {d.second or 'no consumer'} instead of {d.first or 'no consumer'}"
            for d in self.examples
        )
        more = "; ..." if self.different > len(self.examples) else ""
        return (
            f"shadow: {self.assignor}: {self.moves} move(s), {self.balance}; "
            f"live: {self.live_moves} move(s), {self.live_balance}; "
            f"{self.different} partition(s) placed differently"
            + (f" ({examples}{more})" if examples else "")
            + f"; planned in {self.seconds:.2f} s"
        )


def shadow_report(
    settings: AssignorSettings,
    snapshots: Iterable[TopicSnapshot],
    consumers: Mapping[str, Consumer],
    live: Assignment,
    context: Callable[[Assignor], PlanningContext],
    time_limit: float = TIME_LIMIT,
) -> ShadowReport:
    """Plan with the assignor that `settings` name, and hold it against the plan `live`. Never raises.

    `context` returns what a plan of this assignor is made with; it is called in the shadow's thread. Returns after
    `time_limit` seconds at the latest, with an error if the shadow is not ready by then.
    """
    read, there = list(snapshots), deepcopy(dict(consumers))
    reports: list[ShadowReport] = []

    def work() -> None:
        try:
            reports.append(_compared(settings, read, there, live, context))
        except BaseException as error:  # in this thread nothing that it raises may count, sys.exit neither
            reports.append(ShadowReport(settings.name, error=f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=work, name="shadow-assignor", daemon=True)
    thread.start()
    thread.join(time_limit)
    if not reports:
        return ShadowReport(
            settings.name, error=f"it was not ready after {time_limit:g} s and was left alone"
        )
    return reports[0]


def _compared(
    settings: AssignorSettings,
    snapshots: list[TopicSnapshot],
    consumers: dict[str, Consumer],
    live: Assignment,
    context: Callable[[Assignor], PlanningContext],
) -> ShadowReport:
    topics = {snapshot.topic: snapshot.partitions for snapshot in snapshots}
    standing = {snapshot.topic: intended_owners(snapshot) for snapshot in snapshots}
    assignor = load_assignor(settings.name, settings.options)
    name, known = assignor.name, deepcopy(context(assignor))
    began = time.monotonic()
    planned = plan(snapshots, dict(consumers), assignor, known).owners
    seconds = time.monotonic() - began
    shadow, lived = resulting(standing, planned, topics), resulting(standing, live, topics)
    apart = differences(lived, shadow)
    return ShadowReport(
        assignor=name,
        moves=len(differences(standing, shadow)),
        live_moves=len(differences(standing, lived)),
        balance=balance_of(shadow, topics, consumers),
        live_balance=balance_of(lived, topics, consumers),
        different=len(apart),
        examples=apart[:EXAMPLES],
        seconds=round(seconds, 3),
    )
