"""A cluster at a glance, and its page, from one reading. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

from muster.cluster.problems import Problem
from muster.cluster.reading import SourceReading
from muster.cluster.state import ClusterState
from muster.core.diagnosis import Waiting
from muster.core.model import State, TopicSnapshot
from muster.core.overrides import Exclusion, Override, Pin
from muster.core.partition_list import ranges
from muster.core.time_lag import of_all
from muster.dashboard.commands import command_states, override_entries
from muster.dashboard.models import (
    AssignorInForce,
    Behind,
    ClusterAnswer,
    ClusterSummary,
    ConsumerCounts,
    ExclusionEntry,
    Freshness,
    Health,
    Isolation,
    PinEntry,
    Said,
    SourceHealth,
    WaitingEntry,
)
from muster.settings.assignor_choice import choosable, in_force

AT_A_GLANCE = 5
"""Problems in a summary."""
MOST = 100
"""Entries of each list on a cluster's page."""
UNREADABLE = "Unreadable"


def freshness(state: ClusterState, ttl: float) -> Freshness:
    """Tell how old the reading is; `ttl` in seconds."""
    reading = state.reading
    sources = [
        _source("zookeeper", reading.zookeeper),
        _source("consul", reading.consul),
        _source("consumers", reading.consumers),
        _source("kafka", reading.kafka),
    ]
    return Freshness(read_at=state.at, ttl=ttl, sources=sources)


def _source(
    name: Literal["zookeeper", "consul", "consumers", "kafka"], source: SourceReading[Any]
) -> SourceHealth:
    return SourceHealth(
        source=name,
        reachable=source.error is None,
        address=source.address,
        error=source.why,
        unreachable_since=source.since,
        last_read_at=source.at if source.error is not None else None,
    )


def coordinator_dag(cluster: str) -> str:
    """Return the id of a cluster's coordinator DAG."""
    return f"muster_coordinator__{cluster}"


def commands_dag(cluster: str) -> str:
    """Return the id of the DAG of a cluster's commands."""
    return f"muster_commands__{cluster}"


def _said(entry: Override | None) -> Said | None:
    return None if entry is None else Said.of(entry)


def summary(state: ClusterState, *, may_edit: bool, ttl: float, mistake: str = "") -> ClusterSummary:
    """Show the cluster at a glance. `mistake` is in its settings, and it goes on with those it had before."""
    problems = [*_mistake(mistake), *state.problems]
    partition_states: Counter[str] = Counter()
    for cells in state.cells.values():
        partition_states.update(cells.counts)
    phase, since = _phase(state)
    lag, rate = state.totals
    return ClusterSummary(
        name=state.settings.name,
        health=_health(problems, phase),
        coordinator_dag=coordinator_dag(state.settings.name),
        may_edit=may_edit,
        paused=_said(state.overrides.paused),
        rebalance_asked=_said(state.overrides.rebalance),
        state=phase,
        since=since,
        topics=_topics_by_state(state),
        partitions=sum(partition_states.values()),
        partition_states=dict(partition_states),
        pinned=sum(len(p) for p in state.pins.values()),
        consumers=ConsumerCounts(**state.counts),
        lag=lag,
        lag_unknown=state.lag_unknown,
        behind=Behind.of(of_all(state.behind.values())),
        rate=rate,
        consumed_rate=state.consumed_rate,
        last_rebalance=state.last_rebalance,
        assignor=in_force(state.settings, state.overrides.assignor).name,
        problems=problems[:AT_A_GLANCE],
        problem_count=len(problems),
        freshness=freshness(state, ttl),
    )


def unread(name: str, *, may_edit: bool, ttl: float, error: str = "") -> ClusterSummary:
    """Show a cluster of which nothing could be read yet, or whose settings cannot be used (`error`)."""
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


def _mistake(text: str) -> list[Problem]:
    return [Problem(level="warning", what=text)] if text else []


def cluster_answer(state: ClusterState, *, may_edit: bool, ttl: float, mistake: str = "") -> ClusterAnswer:
    """Show the cluster's page, but for topics and consumers. `mistake` is as in `summary`."""
    settings = state.settings
    pins = pin_entries(state)
    waiting = [each for of_topic in state.waiting.values() for each in of_topic]
    return ClusterAnswer(
        summary=summary(state, may_edit=may_edit, ttl=ttl, mistake=mistake),
        problems=[*_mistake(mistake), *state.problems][:MOST],
        waiting=[waiting_entry(state, each) for each in waiting[:MOST]],
        waiting_count=len(waiting),
        isolated=[
            Isolation(consumer=c, said=Said.of(e)) for c, e in islice(sorted(state.isolated.items()), MOST)
        ],
        pins=pins[:MOST],
        pin_count=len(pins),
        exclusions=exclusion_entries(state.overrides.exclusions.values())[:MOST],
        assignor=_assignor(state),
        assignors=choosable(settings),
        shadow_assignor=settings.shadow_assignor.name if settings.shadow_assignor else None,
        stuck_after=settings.stuck_after,
        tick=settings.long_poll_timeout,
        group_id=settings.group_id,
        consul_service=settings.consul_service,
        levers=command_states(state.overrides),
        overrides=override_entries(state.overrides),
    )


def _assignor(state: ClusterState) -> AssignorInForce:
    chosen, configured = state.overrides.assignor, state.settings.assignor
    force = in_force(state.settings, chosen)
    return AssignorInForce(
        name=force.name,
        options=force.options,
        from_settings=chosen is None,
        said=_said(chosen),
        configured=configured.name,
    )


def waiting_entry(state: ClusterState, waiting: Waiting) -> WaitingEntry:
    """Show what holds up a topic, and since when: since when partitions stand still, or a rebalance goes on."""
    snapshot = state.snapshots.get(waiting.topic)
    of_topic = snapshot.state if snapshot is not None else None
    begun = of_topic.since or None if of_topic is not None else None
    return WaitingEntry(
        topic=waiting.topic,
        consumer=waiting.consumer,
        phase=waiting.phase.name.lower(),
        partitions=ranges(waiting.partitions),
        why=waiting.why,
        offset=waiting.offset,
        since=begun if waiting.since is None else waiting.since,
        asked=waiting.asked,
    )


def pin_entries(state: ClusterState, topic: str | None = None) -> list[PinEntry]:
    """Return the pins, of all topics or of `topic`, one entry a topic, consumer and decision."""
    grouped: dict[tuple[str, str, str, float, str], list[Pin]] = {}
    for (of, _), pin in sorted(state.overrides.pins.items()):
        if topic in {None, of}:
            grouped.setdefault((of, pin.consumer, pin.by, pin.at, pin.why), []).append(pin)
    return [
        PinEntry(
            topic=of,
            partitions=ranges(pin.partition for pin in pins),
            consumer=consumer,
            said=Said.of(pins[0]),
            obstacle=_obstacle(state, of, consumer),
        )
        for (of, consumer, *_), pins in grouped.items()
    ]


def _obstacle(state: ClusterState, topic: str, consumer: str) -> str:
    """Say why a pin cannot be obeyed now."""
    if state.membership is None:
        return ""
    if (consumer, topic) in state.overrides.exclusions:
        return f"consumer {consumer} is excluded from the topic"
    if consumer in state.membership.isolated:
        return f"consumer {consumer} is isolated"
    if consumer in state.overrides.drained:
        return f"consumer {consumer} is drained"
    there = state.live.get(consumer)
    if there is None:
        return f"consumer {consumer} is not live"
    return "" if there.subscribes(topic) else f"consumer {consumer} does not subscribe to the topic"


def exclusion_entries(exclusions: Iterable[Exclusion]) -> list[ExclusionEntry]:
    ordered = sorted(exclusions, key=lambda e: (e.consumer, e.topic))
    return [ExclusionEntry(consumer=e.consumer, topic=e.topic, said=Said.of(e)) for e in ordered]


def _topics_by_state(state: ClusterState) -> dict[str, int]:
    counts = Counter(str(snapshot.name) for snapshot in state.snapshots.values())
    if state.unreadable_topics:
        counts[UNREADABLE] = len(state.unreadable_topics)
    return dict(counts)


Phase = Literal["Stable", "Rebalancing", "Empty", "Unknown"]


def _phase(state: ClusterState) -> tuple[Phase, float | None]:
    if state.reading.zookeeper.value is None:
        return "Unknown", None
    if not state.snapshots:
        return "Empty", None
    moving = [s for s in state.snapshots.values() if s.name is not State.STABLE]
    if moving:
        return "Rebalancing", min((since for s in moving if (since := _since(s))), default=None)
    return "Stable", max((since for s in state.snapshots.values() if (since := _since(s))), default=None)


def _since(snapshot: TopicSnapshot) -> float | None:
    return snapshot.state.since or None if snapshot.state is not None else None


def _health(found: Sequence[Problem], phase: Phase) -> Health:
    if any(problem.level == "critical" for problem in found):
        return Health.CRITICAL
    if found:
        return Health.WARNING
    if phase == "Unknown":
        return Health.UNKNOWN
    return Health.REBALANCING if phase == "Rebalancing" else Health.OK
