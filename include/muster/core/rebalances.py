"""Rebalances, put together from the history: when each began and ended, its phases, what moved and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from muster.core.history import CommandEntry, Record, Step, Transitions, Unreadable
from muster.core.model import Move, State


@dataclass(frozen=True, slots=True)
class Phase:
    """A state that a topic was in during a rebalance; `seconds` is up to now for the one that lasts."""

    state: State
    seconds: float


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One topic's way from Stable (or Initial) to Stable. Times are in seconds since the epoch.

    `ended` is None while it lasts. `moves` may hold fewer than `moved`, the number of all, because the history cuts
    long lists. `reasons` are those of the topic's state, `by` are all who wrote a step of it. With `whole` False its
    beginning is not in what was read.
    """

    topic: str
    began: float
    ended: float | None
    phases: tuple[Phase, ...]
    moves: tuple[Move, ...]
    moved: int
    reasons: tuple[str, ...]
    by: tuple[str, ...]
    whole: bool = True

    @property
    def seconds(self) -> float:
        """How long it took, or has taken by now."""
        return sum(phase.seconds for phase in self.phases)


@dataclass(frozen=True, slots=True)
class Quiet:
    """A step that left a topic Stable and moved nothing: its standbys changed, or a consumer is waited for."""

    topic: str
    at: float
    reason: str
    by: str


Event = Rebalance | Quiet | CommandEntry | Unreadable
"""What a person reads in a history."""


def moment(event: Event) -> float:
    """Tell when it began, in seconds since the epoch."""
    return event.began if isinstance(event, Rebalance) else event.at


@dataclass
class _UnderWay:
    rebalance: Rebalance
    state: State
    entered: float


def events(records: Iterable[Record], now: float) -> list[Event]:
    """Turn records (in any order) into events, newest first. `now` is in seconds since the epoch."""
    found: list[Event] = []
    under_way: dict[str, _UnderWay] = {}
    for record in sorted(records, key=lambda record: record.number):
        entry = record.entry
        if not isinstance(entry, Transitions):
            found.append(entry)
            continue
        for step in entry.steps:
            found += _take(step, entry, under_way)
    found += [_after(each, None, now) for each in under_way.values()]
    return sorted(found, key=moment, reverse=True)


def _take(step: Step, entry: Transitions, under_way: dict[str, _UnderWay]) -> list[Event]:
    """Go on with the topic's rebalance, or begin one; returns what is complete with this step."""
    known = under_way.pop(step.topic, None)
    if step.before in {State.STABLE, State.INITIAL}:
        before: list[Event] = [_after(known, None, entry.at)] if known else []
        if step.after is State.STABLE and not step.moved and step.before is State.STABLE:
            return [*before, Quiet(step.topic, entry.at, step.reason, entry.by)]
        began = Rebalance(step.topic, entry.at, None, (), (), 0, (), ())
        known = _UnderWay(began, step.after, entry.at)
    else:
        before = []
        if known is None:
            cut_off = Rebalance(step.topic, entry.at - step.lasted, None, (), (), 0, (), (), whole=False)
            known = _UnderWay(cut_off, step.before, entry.at - step.lasted)
    rebalance = known.rebalance
    known.rebalance = replace(
        rebalance,
        moves=rebalance.moves + step.moves,
        moved=rebalance.moved + step.moved,
        reasons=tuple(dict.fromkeys([*rebalance.reasons, *filter(None, step.reason.split("; "))])),
        by=tuple(dict.fromkeys([*rebalance.by, *filter(None, [entry.by])])),
    )
    if step.after is State.STABLE:
        return [*before, _after(known, entry.at, entry.at)]
    if step.after is not known.state:
        known = _UnderWay(_after(known, None, entry.at), step.after, entry.at)
    under_way[step.topic] = known
    return before


def _after(known: _UnderWay, ended: float | None, now: float) -> Rebalance:
    """Return the rebalance with the phase that ends, or lasts, `now`."""
    phases = known.rebalance.phases
    if known.state is not State.STABLE:
        phases += (Phase(known.state, round(max(0.0, now - known.entered), 3)),)
    return replace(known.rebalance, phases=phases, ended=ended)
