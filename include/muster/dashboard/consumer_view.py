"""Lists of consumers, and one with all that it has, from one reading. Pure."""

from __future__ import annotations

from typing import Literal

from muster.commands.offers import on_consumer
from muster.core.model import ConsumerDetails
from muster.dashboard.board import Board, Holding, ranges
from muster.dashboard.cluster_view import exclusion_entries, freshness, said
from muster.dashboard.commands import overrides_on
from muster.dashboard.models import (
    ConsumerAnswer,
    ConsumerRow,
    ConsumersAnswer,
    ConsumerTopic,
    Said,
)
from muster.dashboard.window import Asked, Key, window

ConsumerSort = Literal["consumer", "state", "partitions", "lag", "rate", "started_at", "host"]
_WORST_FIRST = ["gone", "not passing", "unknown", "isolated", "live"]
MOST_TOPICS = 1000


def consumer_row(board: Board, consumer: str, average: float | None) -> ConsumerRow:
    """One consumer in the list; `average` is the partitions per weight of the live ones. Raises `KeyError`."""
    collected, line = board.collected, board.lines[consumer]
    status = collected.statuses.get(consumer)
    details = status.details if status is not None else ConsumerDetails()
    consul = collected.consul
    registration = consul.members.registered.get(consumer) if consul is not None else None
    holding = board.holdings.get(consumer, Holding())
    return ConsumerRow(
        consumer=consumer,
        state=line.state,
        expected=consumer in board.expected,
        said=_isolated_by(board, consumer),
        error=line.answers or "; ".join(details.errors) or (registration.output if registration else ""),
        doing=details.doing,
        host=details.host,
        address=line.address,
        version=details.version,
        incarnation=(status.incarnation if status is not None else None)
        or (registration.incarnation if registration is not None else None)
        or "",
        started_at=_whole(details.started_at),
        partitions=line.partitions,
        running=_count(holding.running),
        starting=_count(holding.starting),
        closing=_count(holding.closing),
        pinned=board.pinned_to.get(consumer, 0),
        topics=len(holding.topics),
        commands=on_consumer(board.decisions, consumer),
        overrides=overrides_on(board.decisions, consumer),
        lag=holding.lag,
        rate=None if holding.rate is None else round(holding.rate, 1),
        share=round(line.partitions / line.weight / average, 2) if average and line.weight else None,
        weight=line.weight,
        priority=line.priority,
        zone=line.zone,
    )


def consumers_answer(board: Board, sort: ConsumerSort, asked: Asked, ttl: float) -> ConsumersAnswer:
    """A page of consumers; what is searched for may be in the id, the host or the zone."""
    rows, total = window(
        _rows(board), asked, _KEYS[sort], lambda row: (row.consumer, row.host, row.zone or "")
    )
    return ConsumersAnswer(consumers=rows, total=total, offset=asked.offset, freshness=freshness(board, ttl))


def _rows(board: Board) -> list[ConsumerRow]:
    """All consumers; made once a reading."""
    found: list[ConsumerRow] | None = board.rows.get("consumers")
    if found is None:
        average = _average(board)
        found = board.rows["consumers"] = [consumer_row(board, consumer, average) for consumer in board.lines]
    return found


_KEYS: dict[str, Key[ConsumerRow]] = {
    "consumer": lambda row: row.consumer,
    "state": lambda row: _WORST_FIRST.index(row.state) - (0.5 if row.error else 0.0),
    "partitions": lambda row: row.partitions,
    "lag": lambda row: row.lag,
    "rate": lambda row: row.rate,
    "started_at": lambda row: row.started_at,
    "host": lambda row: row.host or None,
}


def consumer_answer(board: Board, consumer: str, ttl: float) -> ConsumerAnswer:
    """One consumer with all that it has. Raises `KeyError` if there is no such consumer."""
    collected = board.collected
    status = collected.statuses.get(consumer)
    details = status.details if status is not None else ConsumerDetails()
    there = collected.live.get(consumer)
    return ConsumerAnswer(
        row=consumer_row(board, consumer, _average(board)),
        topics=_topics(board, consumer),
        errors=list(details.errors),
        exclusions=exclusion_entries(
            e for e in board.decisions.exclusions.values() if e.consumer == consumer
        ),
        subscribes=sorted(there.topics) if there is not None and there.topics is not None else None,
        records=details.records,
        batches=details.batches,
        last_batch_at=details.last_batch_at,
        freshness=freshness(board, ttl),
    )


def _topics(board: Board, consumer: str) -> list[ConsumerTopic]:
    holding = board.holdings.get(consumer, Holding())
    status = board.collected.statuses.get(consumer)
    standing_by = {t: s.standby for t, s in status.topics.items() if s.standby} if status is not None else {}
    measured = board.collected.measured
    found = []
    for topic in sorted(holding.topics | standing_by.keys())[:MOST_TOPICS]:
        held = [
            p
            for kind in (holding.running, holding.starting, holding.closing, holding.unknown)
            for p in kind.get(topic, ())
        ]
        lags = [lag for p in held if (lag := measured.lag.get((topic, p))) is not None]
        rates = [rate for p in held if (rate := measured.rate.get((topic, p))) is not None]
        found.append(
            ConsumerTopic(
                topic=topic,
                running=ranges(holding.running.get(topic, ())),
                starting=ranges(holding.starting.get(topic, ())),
                closing=ranges(holding.closing.get(topic, ())),
                unknown=ranges(holding.unknown.get(topic, ())),
                standby=ranges(standing_by.get(topic, ())),
                pinned=ranges(p for p, to in board.pins.get(topic, {}).items() if to == consumer),
                lag=sum(lags) if lags else None,
                rate=round(sum(rates), 1) if rates else None,
            )
        )
    return found


def _average(board: Board) -> float | None:
    """Partitions per weight, over the live consumers; None without any."""
    live = [line for line in board.lines.values() if line.state == "live" and line.weight]
    weight = sum(line.weight or 0.0 for line in live)
    return sum(line.partitions for line in live) / weight if weight else None


def _isolated_by(board: Board, consumer: str) -> Said | None:
    consul = board.collected.consul
    entry = consul.isolated.get(consumer) if consul is not None else None
    return said(entry) if entry is not None else None


def _count(partitions: dict[str, list[int]]) -> int:
    return sum(map(len, partitions.values()))


def _whole(moment: float | None) -> float | None:
    return None if moment is None else round(moment, 1)
