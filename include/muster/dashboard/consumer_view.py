"""Lists of consumers, and one with all that it has, from one reading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Literal

from muster.cluster.condition import Condition
from muster.cluster.partitions import PartitionState
from muster.cluster.state import ClusterState
from muster.commands.table import on_consumer
from muster.core.model import ConsumerDetails
from muster.core.partition_list import ranges
from muster.dashboard.cluster_view import exclusion_entries, freshness
from muster.dashboard.commands import overrides_on
from muster.dashboard.models import (
    ConsumerAnswer,
    ConsumerRow,
    ConsumersAnswer,
    ConsumerTopic,
    Said,
)
from muster.dashboard.window import Asked, Key, once_a_state, window

ConsumerSort = Literal["consumer", "state", "partitions", "lag", "rate", "started_at", "host"]
_WORST_FIRST = [
    *(Condition.ABSENT, Condition.FAILING, Condition.UNKNOWN),
    *(Condition.ISOLATED, Condition.STARTING, Condition.LIVE),
]
MOST_TOPICS = 1000


def consumer_row(state: ClusterState, consumer: str, average: float | None) -> ConsumerRow:
    """Show one consumer in the list; `average` is the partitions per weight of the live ones. Raises `KeyError`."""
    each, status = state.consumers[consumer], state.statuses.get(consumer)
    details = status.details if status is not None else ConsumerDetails()
    registration = state.registered.get(consumer)
    holding = state.holdings.get(consumer, {})
    lag, rate = state.measured.total([(topic, p) for (_, topic), held in holding.items() for p in held])

    def count(of: PartitionState) -> int:
        return sum(len(held) for (each, _), held in holding.items() if each == of)

    return ConsumerRow(
        consumer=consumer,
        state=each.condition.value,
        expected=each.expected,
        said=Said.of(each.isolation) if each.isolation is not None else None,
        error=each.failure or "; ".join(details.errors) or each.output,
        doing=details.doing or (each.starting.said(state.at) if each.starting is not None else ""),
        host=details.host,
        address=each.address,
        version=details.version,
        incarnation=(status.incarnation if status is not None else None)
        or (registration.incarnation if registration is not None else None)
        or "",
        started_at=_whole(details.started_at),
        partitions=each.partitions,
        running=count(PartitionState.RUNNING),
        paused=count(PartitionState.PAUSED),
        parked=count(PartitionState.PARKED),
        restoring=count(PartitionState.RESTORING),
        starting=count(PartitionState.STARTING),
        closing=count(PartitionState.CLOSING),
        pinned=state.pinned_to.get(consumer, 0),
        topics=len({topic for _, topic in holding}),
        commands=on_consumer(state.overrides, consumer),
        overrides=overrides_on(state.overrides, consumer),
        lag=lag,
        rate=rate,
        share=round(each.partitions / each.weight / average, 2) if average and each.weight else None,
        weight=each.weight,
        priority=each.priority,
        zone=each.zone,
    )


def consumers_answer(state: ClusterState, sort: ConsumerSort, asked: Asked, ttl: float) -> ConsumersAnswer:
    """Show a page of consumers; what is searched for may be in the id, the host or the zone."""
    key = _KEYS.get(sort, attrgetter(sort))
    rows, total = window(_rows(state), asked, key, lambda row: (row.consumer, row.host, row.zone or ""))
    return ConsumersAnswer(consumers=rows, total=total, offset=asked.offset, freshness=freshness(state, ttl))


@once_a_state
def _rows(state: ClusterState) -> list[ConsumerRow]:
    """Show all consumers."""
    average = _average(state)
    return [consumer_row(state, consumer, average) for consumer in state.consumers]


_KEYS: Mapping[str, Key[ConsumerRow]] = {
    "state": lambda row: _WORST_FIRST.index(Condition(row.state)) - (0.5 if row.error else 0.0),
    "host": lambda row: row.host or None,
}
"""What is sorted by something else than its own value."""


def consumer_answer(state: ClusterState, consumer: str, ttl: float) -> ConsumerAnswer:
    """Show one consumer with all that it has. Raises `KeyError` if there is no such consumer."""
    status = state.statuses.get(consumer)
    there = state.live.get(consumer)
    return ConsumerAnswer(
        row=consumer_row(state, consumer, _average(state)),
        topics=_topics(state, consumer),
        details=status.details if status is not None else ConsumerDetails(),
        exclusions=exclusion_entries(
            e for e in state.overrides.exclusions.values() if e.consumer == consumer
        ),
        subscribes=sorted(there.topics) if there is not None and there.topics is not None else None,
        freshness=freshness(state, ttl),
    )


def _topics(state: ClusterState, consumer: str) -> list[ConsumerTopic]:
    holding = state.holdings.get(consumer, {})
    status = state.statuses.get(consumer)
    standing_by = {t: s.standby for t, s in status.topics.items() if s.standby} if status is not None else {}
    found = []
    for topic in sorted({topic for _, topic in holding} | standing_by.keys())[:MOST_TOPICS]:
        held = {of: holding.get((of, topic), []) for of in PartitionState}
        lag, rate = state.measured.total([(topic, p) for partitions in held.values() for p in partitions])
        found.append(
            ConsumerTopic(
                topic=topic,
                running=ranges(held[PartitionState.RUNNING]),
                paused=ranges(held[PartitionState.PAUSED]),
                parked=ranges(held[PartitionState.PARKED]),
                restoring=ranges(held[PartitionState.RESTORING]),
                starting=ranges(held[PartitionState.STARTING]),
                closing=ranges(held[PartitionState.CLOSING]),
                unknown=ranges(held[PartitionState.UNKNOWN]),
                standby=ranges(standing_by.get(topic, ())),
                pinned=ranges(p for p, to in state.pins.get(topic, {}).items() if to == consumer),
                lag=lag,
                rate=rate,
            )
        )
    return found


def _average(state: ClusterState) -> float | None:
    """Return the partitions per weight, over the live consumers; None without any."""
    live = [c for c in state.consumers.values() if c.condition is Condition.LIVE and c.weight]
    weight = sum(each.weight or 0.0 for each in live)
    return sum(each.partitions for each in live) / weight if weight else None


def _whole(moment: float | None) -> float | None:
    return None if moment is None else round(moment, 1)
