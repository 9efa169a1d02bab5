"""The timeline: what the history of a cluster holds, newest first, as the page shows it. Pure but for the reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from muster.core.history import HistoryPage, Record, Step
from muster.core.model import Move
from muster.core.partition_list import ranges
from muster.dashboard.models import MoveEntry, TimelineEntry

READ_AT_ONCE = 100
"""Records of the history that are read together."""
MOST_READS = 10
"""So many times it is read for one answer, when a filter leaves little of it."""
MOST_PARTITIONS = 200
"""Partitions that the moves of one entry name."""


ReadHistory = Callable[[int, int | None], HistoryPage]
"""Reads so many records, older than the one with this number, newest first."""


@dataclass(frozen=True)
class Timeline:
    """Entries, newest first, and where to go on; None at the end."""

    entries: list[TimelineEntry]
    next_before: int | None


def timeline(
    read: ReadHistory, *, limit: int, before: int | None, topic: str | None, consumer: str | None
) -> Timeline:
    """Return at least `limit` entries if there are as many, of one topic or one consumer if that is asked for.

    A record is never torn apart, so there may be more: one has the steps of all topics that were written together.
    """
    entries: list[TimelineEntry] = []
    for _ in range(MOST_READS):
        page = read(READ_AT_ONCE, before)
        for record in page.records:
            entries += [e for e in _entries(record) if _fits(e, topic, consumer)]
            before = record.number
            if len(entries) >= limit:
                last = record is page.records[-1]
                return Timeline(_with_phases(entries), None if last and page.before is None else before)
        if page.before is None:
            return Timeline(_with_phases(entries), None)
        before = page.before
    return Timeline(_with_phases(entries), before)


def _entries(record: Record) -> Iterator[TimelineEntry]:
    """Yield what one record tells, its last step first."""
    entry = record.entry
    name = f"{record.number:010d}"
    if entry.kind == "transitions":
        for index, step in reversed(list(enumerate(entry.steps))):
            yield _step(f"{name}-{index:05d}", entry.at, entry.by, step)
    elif entry.kind == "lever":
        details = dict(entry.details)
        topic = details.get("topic")
        yield TimelineEntry(
            id=f"{name}-00000",
            at=entry.at,
            kind="lever",
            topic=topic if isinstance(topic, str) else None,
            lever=entry.what,
            details=details,
            reason=entry.why,
            who=entry.who,
            by=entry.via,
        )
    else:
        yield TimelineEntry(id=f"{name}-00000", at=entry.at, kind="unreadable", reason=entry.problem)


def _step(name: str, at: float, by: str, step: Step) -> TimelineEntry:
    return TimelineEntry(
        id=name,
        at=at,
        kind="transition",
        topic=step.topic,
        before=str(step.before),
        after=str(step.after),
        reason=step.reason,
        epoch=step.epoch,
        moved=step.moved,
        moves=grouped_moves(step.moves, MOST_PARTITIONS),
        rebalance_lasted=step.lasted,
        by=by,
    )


def grouped_moves(moves: Sequence[Move], most: int) -> list[MoveEntry]:
    """Put moves together that go the same way for the same reason; `most` is the number of partitions to name."""
    groups: dict[tuple[str, str | None, str | None, str], list[int]] = {}
    for move in moves[:most]:
        groups.setdefault((move.topic, move.source, move.target, move.reason), []).append(move.partition)
    return [
        MoveEntry(topic=topic, partitions=ranges(partitions), source=source, target=target, why=why)
        for (topic, source, target, why), partitions in groups.items()
    ]


def _fits(entry: TimelineEntry, topic: str | None, consumer: str | None) -> bool:
    if topic is not None and entry.topic != topic:
        return False
    if consumer is None:
        return True
    named = {name for move in entry.moves for name in (move.source, move.target)}
    return consumer in named or entry.details.get("consumer") == consumer


def _with_phases(entries: list[TimelineEntry]) -> list[TimelineEntry]:
    """Say of each step how long the state that it leaves had lasted, where its beginning is here too."""
    entered: dict[str, tuple[str, float]] = {}
    lasted: dict[str, float] = {}
    for entry in reversed(entries):
        if entry.kind != "transition" or entry.topic is None or entry.after is None:
            continue
        began = entered.get(entry.topic)
        if entry.before == entry.after:
            continue
        if began is not None and began[0] == entry.before:
            lasted[entry.id] = round(max(0.0, entry.at - began[1]), 3)
        entered[entry.topic] = (entry.after, entry.at)
    return [e.model_copy(update={"lasted": lasted[e.id]}) if e.id in lasted else e for e in entries]
