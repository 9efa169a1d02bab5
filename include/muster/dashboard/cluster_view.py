"""A cluster at a glance, and its page, from one reading. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

from muster.core.decided import Decided
from muster.core.decisions import Exclusion, Pin
from muster.core.diagnosis import Waiting
from muster.core.model import State, TopicSnapshot
from muster.dashboard.board import Board, ranges
from muster.dashboard.models import (
    AssignorInForce,
    ClusterAnswer,
    ClusterSummary,
    CommandState,
    ConsumerCounts,
    ExclusionEntry,
    Freshness,
    Health,
    Isolation,
    LastRebalance,
    OverrideEntry,
    PinEntry,
    Problem,
    Said,
    WaitingEntry,
)
from muster.dashboard.problems import problems
from muster.edges.consul import IsolationEntry
from muster.settings.assignor_choice import choosable, in_force

AT_A_GLANCE = 5
"""Problems in a summary."""
MOST = 100
"""Entries of each list on a cluster's page."""
UNREADABLE = "Unreadable"


def freshness(board: Board, ttl: float) -> Freshness:
    """How old the reading is; `ttl` in seconds."""
    return Freshness(read_at=board.collected.at, ttl=ttl, sources=list(board.collected.health))


def coordinator_dag(cluster: str) -> str:
    """The id of a cluster's coordinator DAG."""
    return f"muster_coordinator__{cluster}"


def _said(entry: Decided | None) -> Said | None:
    return None if entry is None else said(entry)


def said(entry: Decided | IsolationEntry) -> Said:
    """Who decided it, when and why."""
    return Said(by=entry.by, at=entry.at or None, why=entry.why)


def summary(board: Board, *, may_edit: bool, ttl: float) -> ClusterSummary:
    """The cluster at a glance."""
    collected = board.collected
    found = problems(board)
    partition_states: Counter[str] = Counter()
    for cells in board.cells.values():
        partition_states.update(cells.counts)
    partitions = sum(partition_states.values())
    state, since = _state(board)
    return ClusterSummary(
        name=collected.settings.name,
        health=_health(found, state),
        coordinator_dag=coordinator_dag(collected.settings.name),
        may_edit=may_edit,
        paused=_said(board.decisions.paused),
        rebalance_asked=_said(board.decisions.rebalance),
        state=state,
        since=since,
        topics=_topics_by_state(board),
        partitions=partitions,
        partition_states=dict(partition_states),
        pinned=sum(len(p) for p in board.pins.values()),
        consumers=_counts(board),
        lag=board.totals[0],
        lag_unknown=board.lag_unknown,
        rate=board.totals[1],
        consumed_rate=collected.measured.consumed_rate,
        last_rebalance=_last_rebalance(board),
        assignor=in_force(collected.settings, board.decisions.assignor).name,
        problems=found[:AT_A_GLANCE],
        problem_count=len(found),
        freshness=freshness(board, ttl),
    )


def unread(name: str, *, may_edit: bool, ttl: float, error: str = "") -> ClusterSummary:
    """A cluster of which nothing could be read yet, or whose settings cannot be used (`error`)."""
    return ClusterSummary(
        name=name,
        health=Health.CRITICAL if error else Health.UNKNOWN,
        error=error,
        coordinator_dag=coordinator_dag(name),
        may_edit=may_edit,
        problems=[Problem(level="critical", what=error)] if error else [],
        problem_count=1 if error else 0,
        freshness=Freshness(read_at=None, ttl=ttl),
    )


def cluster_answer(
    board: Board,
    *,
    may_edit: bool,
    ttl: float,
    levers: Sequence[CommandState],
    overrides: Sequence[OverrideEntry],
) -> ClusterAnswer:
    """The cluster's page, but for topics and consumers."""
    settings = board.collected.settings
    consul = board.collected.consul
    pins = pin_entries(board)
    return ClusterAnswer(
        summary=summary(board, may_edit=may_edit, ttl=ttl),
        problems=problems(board)[:MOST],
        waiting=[waiting_entry(board, waiting) for waiting in board.overview.waiting[:MOST]],
        waiting_count=len(board.overview.waiting),
        isolated=[
            Isolation(consumer=c, said=said(e)) for c, e in islice(sorted(consul.isolated.items()), MOST)
        ]
        if consul
        else [],
        pins=pins[:MOST],
        pin_count=len(pins),
        exclusions=exclusion_entries(board.decisions.exclusions.values())[:MOST],
        assignor=_assignor(board),
        assignors=choosable(settings),
        shadow_assignor=settings.shadow_assignor.name if settings.shadow_assignor else None,
        stuck_after=settings.stuck_after,
        tick=settings.tick,
        group_id=settings.group_id,
        consul_service=settings.consul_service,
        levers=list(levers),
        overrides=list(overrides),
    )


def _assignor(board: Board) -> AssignorInForce:
    chosen, configured = board.decisions.assignor, board.collected.settings.assignor
    force = in_force(board.collected.settings, chosen)
    return AssignorInForce(
        name=force.name,
        options=force.options,
        from_settings=chosen is None,
        said=_said(chosen),
        configured=configured.name,
    )


def waiting_entry(board: Board, waiting: Waiting) -> WaitingEntry:
    """A consumer that holds up a topic."""
    state = board.snapshots[waiting.topic].state
    return WaitingEntry(
        topic=waiting.topic,
        consumer=waiting.consumer,
        phase=waiting.phase.name.lower(),
        partitions=ranges(waiting.partitions),
        why=waiting.why,
        since=state.since or None if state is not None else None,
    )


def pin_entries(board: Board, topic: str | None = None) -> list[PinEntry]:
    """The pins, one entry a topic, consumer and decision."""
    grouped: dict[tuple[str, str, str, float, str], list[Pin]] = {}
    for (of, _), pin in sorted(board.decisions.pins.items()):
        if topic in {None, of}:
            grouped.setdefault((of, pin.consumer, pin.by, pin.at, pin.why), []).append(pin)
    return [
        PinEntry(
            topic=of,
            partitions=ranges(pin.partition for pin in pins),
            consumer=consumer,
            said=said(pins[0]),
            obstacle=_obstacle(board, of, consumer),
        )
        for (of, consumer, *_), pins in grouped.items()
    ]


def _obstacle(board: Board, topic: str, consumer: str) -> str:
    """Why a pin cannot be obeyed now."""
    consul = board.collected.consul
    if consul is None or consul.members.membership is None:
        return ""
    membership = consul.members.membership
    if (consumer, topic) in consul.decisions.exclusions:
        return f"consumer {consumer} is excluded from the topic"
    if consumer in membership.isolated or consumer in consul.decisions.drained:
        return f"consumer {consumer} is {'isolated' if consumer in membership.isolated else 'drained'}"
    there = membership.live.get(consumer)
    if there is None:
        return f"consumer {consumer} is not live"
    return "" if there.subscribes(topic) else f"consumer {consumer} does not subscribe to the topic"


def exclusion_entries(exclusions: Iterable[Exclusion]) -> list[ExclusionEntry]:
    """Exclusions, by consumer and topic."""
    ordered = sorted(exclusions, key=lambda e: (e.consumer, e.topic))
    return [ExclusionEntry(consumer=e.consumer, topic=e.topic, said=said(e)) for e in ordered]


def _topics_by_state(board: Board) -> dict[str, int]:
    counts = Counter(str(snapshot.name) for snapshot in board.snapshots.values())
    if board.unreadable:
        counts[UNREADABLE] = len(board.unreadable)
    return dict(counts)


def _counts(board: Board) -> ConsumerCounts:
    expected = board.expected
    counts: Counter[str] = Counter()
    for line in board.lines.values():
        if line.state in {"gone", "not passing"}:
            wanted = line.partitions or line.consumer in expected
            counts["missing" if wanted or line.state == "gone" else "not_passing"] += 1
        else:
            counts[line.state] += 1
    return ConsumerCounts(**counts)


ClusterState = Literal["Stable", "Rebalancing", "Empty", "Unknown"]


def _state(board: Board) -> tuple[ClusterState, float | None]:
    if board.collected.topics is None:
        return "Unknown", None
    if not board.snapshots:
        return "Empty", None
    moving = [s for s in board.snapshots.values() if s.name is not State.STABLE]
    if moving:
        return "Rebalancing", min((since for s in moving if (since := _since(s))), default=None)
    return "Stable", max((since for s in board.snapshots.values() if (since := _since(s))), default=None)


def _since(snapshot: TopicSnapshot) -> float | None:
    return snapshot.state.since or None if snapshot.state is not None else None


def _health(found: Sequence[Problem], state: str) -> Health:
    if any(problem.level == "critical" for problem in found):
        return Health.CRITICAL
    if found:
        return Health.WARNING
    if state == "Unknown":
        return Health.UNKNOWN
    return Health.REBALANCING if state == "Rebalancing" else Health.OK


def _last_rebalance(board: Board) -> LastRebalance | None:
    """What the history tells of it; for what went on before there was one, the state nodes."""
    if board.collected.last_rebalance is not None:
        return board.collected.last_rebalance
    latest = max(
        (s.state for s in board.snapshots.values() if s.state is not None and s.state.since),
        key=lambda state: state.since,
        default=None,
    )
    if latest is None:
        return None
    together = [
        s for s in board.snapshots.values() if s.state is not None and abs(s.state.since - latest.since) < 1.0
    ]
    return LastRebalance(at=latest.since, reason=latest.reason, topics=len(together))
