"""Lists of topics, and the matrix of one, from one reading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Literal, TypeVar

from muster.cluster.partitions import TopicCells
from muster.cluster.state import ClusterState
from muster.core.diagnosis import why_failing
from muster.core.partition_list import ranges
from muster.dashboard.cluster_view import (
    UNREADABLE,
    exclusion_entries,
    freshness,
    pin_entries,
    waiting_entry,
)
from muster.dashboard.models import Behind, ParkedEntry, ShardEntry, TopicAnswer, TopicRow, TopicsAnswer
from muster.dashboard.window import Asked, Key, once_a_state, window

T = TypeVar("T")
TopicSort = Literal["topic", "state", "lag", "age", "rate", "partitions", "since"]
_WORST_FIRST = [UNREADABLE, "Initial", "Closing", "Starting", "Stable"]


def topic_row(state: ClusterState, topic: str) -> TopicRow:
    """Show one topic in the list."""
    if topic in state.unreadable_topics:
        return TopicRow(topic=topic, state=UNREADABLE, error=state.unreadable_topics[topic])
    line, cells, node = state.topics[topic], state.cells[topic], state.snapshots[topic].state
    lag, rate = state.lag_of(topic)
    return TopicRow(
        topic=topic,
        state=line.state.value,
        since=node.since or None if node is not None else None,
        stuck=state.stuck.get(topic, ""),
        reason=line.reason,
        epoch=line.epoch,
        partitions=len(cells.numbers),
        partition_states=cells.counts,
        pinned=len(state.pins.get(topic, {})),
        owners=len(set(cells.owner.values())),
        lag=lag,
        behind=Behind.of(state.behind[topic]),
        max_lag=state.settings.max_lag_of(topic),
        rate=rate,
    )


def topics_answer(state: ClusterState, sort: TopicSort, asked: Asked, ttl: float) -> TopicsAnswer:
    """Show a page of topics."""
    by = attrgetter("behind.age" if sort == "age" else sort)
    key: Key[TopicRow] = _worst_first if sort == "state" else by
    rows, total = window(_rows(state), asked, key, lambda row: (row.topic,))
    return TopicsAnswer(topics=rows, total=total, offset=asked.offset, freshness=freshness(state, ttl))


@once_a_state
def _rows(state: ClusterState) -> list[TopicRow]:
    """Show all topics."""
    return [
        topic_row(state, topic) for topic in sorted(state.snapshots.keys() | state.unreadable_topics.keys())
    ]


def _worst_first(row: TopicRow) -> float:
    return _WORST_FIRST.index(row.state) - (0.5 if row.stuck else 0.0)


def topic_answer(state: ClusterState, topic: str, ttl: float) -> TopicAnswer:
    """Show the matrix of one topic. Raises `KeyError` if there is no such topic."""
    row, fresh = topic_row(state, topic), freshness(state, ttl)
    snapshot = state.snapshots.get(topic)
    if snapshot is None:
        return TopicAnswer(row=row, pins=pin_entries(state, topic), freshness=fresh)
    cells, measured, offsets = state.cells[topic], state.measured, state.offsets
    consumers = sorted({*cells.owner.values(), *cells.source.values(), *cells.target.values()})
    index = {consumer: i for i, consumer in enumerate(consumers)}
    assignment = snapshot.assignment
    return TopicAnswer(
        row=row,
        partitions=ranges(cells.numbers),
        consumers=consumers,
        state=cells.states,
        owner=_indices(cells, cells.owner, index),
        source=_indices(cells, cells.source, index) if cells.source else [],
        target=_indices(cells, cells.target, index) if cells.target else [],
        lag=_column(topic, cells, measured.lag),
        age=_column(
            topic, cells, {(topic, p): _rounded(each.age) for p, each in state.time_lags[topic].items()}
        ),
        rate=_column(topic, cells, measured.rate),
        committed=_column(topic, cells, offsets.committed),
        end=_column(topic, cells, offsets.ends),
        pins=pin_entries(state, topic),
        standbys={p: list(s) for p, s in sorted(assignment.standbys.items())}
        if assignment is not None
        else {},
        copies={
            p: {consumer: str(copy) for consumer, copy in found.items()}
            for p, found in state.copies_of(topic).items()
        },
        parked={
            p: ParkedEntry(offset=record.offset, why=why_failing(record), answer=record.answer)
            for p, record in cells.parked.items()
        },
        shards={
            p: ShardEntry(
                keys=shard.keys,
                bytes=shard.bytes,
                offset=shard.offset,
                restoring="" if shard.restore is None else str(shard.restore),
                differs=shard.differs,
                executor=shard.executor,
            )
            for p, shard in cells.shards.items()
        },
        waiting=[waiting_entry(state, waiting) for waiting in state.waiting.get(topic, [])],
        exclusions=exclusion_entries(e for e in state.overrides.exclusions.values() if e.topic == topic),
        bootstrap_servers=assignment.bootstrap_servers if assignment is not None else "",
        group_id=assignment.group_id if assignment is not None else "",
        freshness=fresh,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _indices(cells: TopicCells, who: Mapping[int, str], index: Mapping[str, int]) -> list[int]:
    return [index[who[p]] if p in who else -1 for p in cells.numbers]


def _column(topic: str, cells: TopicCells, values: Mapping[tuple[str, int], T | None]) -> list[T | None]:
    column = [values.get((topic, p)) for p in cells.numbers]
    return column if any(value is not None for value in column) else []
