"""What each part of a coordinator run reports: small values that fit an XCom and read well in a log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from muster.coordinator.shadow import ShadowReport
from muster.core.model import Move, State
from muster.edges.consul import Members

SHOWN_MOVES = 200
"""Longer lists of moves are cut in events and XComs: bulk data stays in ZooKeeper."""
SHOWN = 50
"""So are longer lists and mappings of anything else."""


@dataclass(frozen=True)
class _Report:
    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values, at most `SHOWN` of a kind; `left_out` says how many more there are."""
        found = {key: _first(value) for key, value in asdict(self).items()}
        more = {
            key: len(value) - SHOWN
            for key, value in vars(self).items()
            if isinstance(value, list | dict) and len(value) > SHOWN
        }
        return found | ({"left_out": more} if more else {})


def _first(value: Any) -> Any:
    """Return of a list or mapping the first `SHOWN`, and the first of each list in it."""
    if isinstance(value, list):
        return value[:SHOWN]
    if isinstance(value, dict):
        return {key: _first(each) for key, each in islice(value.items(), SHOWN)}
    return value


@dataclass(frozen=True)
class Change(_Report):
    """One transition that was written; to Initial if a topic's nodes were removed. `at` is in seconds since the
    epoch, `lasted` in seconds since the topic's rebalance began (0 for its first step)."""

    topic: str
    before: State
    after: State
    reason: str
    moves: tuple[Move, ...]
    epoch: int
    at: float
    lasted: float

    def as_dict(self, moves: int = SHOWN_MOVES) -> dict[str, Any]:
        """Return plain JSON-able values, with so many `moves` at most and the number of all."""
        return {
            "topic": self.topic,
            "before": str(self.before),
            "after": str(self.after),
            "reason": self.reason,
            "moved": len(self.moves),
            "moves": [
                {"partition": m.partition, "from": m.source, "to": m.target, "why": m.reason}
                for m in self.moves[:moves]
            ],
            "epoch": self.epoch,
            "at": round(self.at, 3),
            "lasted": round(self.lasted, 3),
        }

    def __str__(self) -> str:
        """Format one line for a log."""
        moved = f", {len(self.moves)} partition(s) to move" if self.moves else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"topic {self.topic}: {self.before} -> {self.after}{moved}{why}"


@dataclass(frozen=True)
class PartitionsReport(_Report):
    """Result of `fetch_partitions`. `errors` is by topic; with `kafka_error` the last known ones stand.

    `recreated` are the topics that were deleted and created again in Kafka. `racks` are the topics whose leaders'
    racks have changed; `warnings` is what is wrong and does no harm. `held` says why nothing was looked at."""

    topics: int = 0
    new_topics: list[str] = field(default_factory=list)
    recreated: list[str] = field(default_factory=list)
    added: dict[str, list[int]] = field(default_factory=dict)
    removed: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    kafka_error: str | None = None
    racks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    held: str = ""


@dataclass(frozen=True)
class ConsumersReport(_Report):
    """Result of `fetch_consumers`. Where Consul's answer is not to be trusted, `doubt` says why. `strangers` says
    which consumers of other clusters are registered for this one's service, and what to do about them."""

    live: int = 0
    isolated: list[str] = field(default_factory=list)
    trusted: bool = True
    doubt: str = ""
    strangers: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, members: Members) -> ConsumersReport:
        """Report the live and the isolated consumers."""
        if members.membership is None:
            return cls(trusted=False, doubt=members.doubt)
        return cls(
            live=len(members.membership.live),
            isolated=sorted(members.membership.isolated),
            strangers=list(members.strangers.values()),
        )


@dataclass(frozen=True)
class PlanReport(_Report):
    """Result of `compute_assignment`: what `advance` would begin with; `needed`, too, where it would only find that
    something is stuck. `held` says why nothing is planned although something might have to be (then `needed` is True
    only for what people ask of the flow). `warnings` is what could not be taken into account:
    pins that cannot be obeyed, keys that cannot be read, racks and loads that are unknown. `stuck` is as in
    `AdvanceReport`. `shadow` is None where no assignor is named for it. `assignor` is what a person chose in the
    place of that in the settings, and `asked` who asked for a rebalance now; '' if no one did. `states` is how many
    topics are in which state. `woke` says what ended the long poll; `waited` is how long it took, in seconds.
    `planning_error` says why there is no plan: what needs none is done, and the run fails."""

    needed: bool = False
    topics: dict[str, str] = field(default_factory=dict)
    moves: int = 0
    reasons: list[str] = field(default_factory=list)
    held: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    shadow: ShadowReport | None = None
    assignor: str = ""
    asked: str = ""
    states: dict[str, int] = field(default_factory=dict)
    behind: dict[str, float] = field(default_factory=dict)
    """`muster.core.time_lag.gauges`, if Kafka's offsets were read for this."""
    woke: str = ""
    waited: float = 0.0
    planning_error: str = ""

    @property
    def trouble(self) -> list[str]:
        """Why the run is to fail."""
        return [*self.errors.values(), *([self.planning_error] if self.planning_error else [])]


@dataclass(frozen=True)
class AdvanceReport(_Report):
    """Result of `advance`. `waiting` names who holds up what, `stuck` holds full messages for people, `warnings` is
    as in `PlanReport`, and so is `planning_error`. `asked` says who asked for a rebalance now, if that was carried
    out."""

    changes: list[Change] = field(default_factory=list)
    stable: bool = True
    waiting: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    held: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    asked: str = ""
    planning_error: str = ""

    @property
    def trouble(self) -> list[str]:
        """Why the run is to fail."""
        return [*self.stuck, *self.errors.values(), *([self.planning_error] if self.planning_error else [])]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values."""
        return vars(self) | {"changes": [change.as_dict() for change in self.changes]}
