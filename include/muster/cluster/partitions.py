"""How each partition of a topic stands, and what each consumer holds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from muster.core.model import (
    ConsumerStatus,
    FailingRecord,
    ShardState,
    TopicSnapshot,
    TopicStatus,
    by_partition,
)


class PartitionState(StrEnum):
    """How one partition stands, in one letter.

    `R` running: its owner reports it running. `H` paused: its owner reports that it holds it and does not read it, as
    its consumption is paused. `K` parked: its owner reports that it holds it and does not read it until a person
    answers about a record, or chooses where its state goes on, paused or not. `T` restoring: its owner restores its
    state by key. `S` starting: it has an owner that does not report it running yet.
    `C` closing: it was taken from an owner that has not let go of it yet. `U` unassigned: no consumer has it (closed
    and not yet given away, or no consumer takes it). `?` unknown: it has an owner that is not live, or without a
    status.
    """

    RUNNING = "R"
    PAUSED = "H"
    PARKED = "K"
    RESTORING = "T"
    STARTING = "S"
    CLOSING = "C"
    UNASSIGNED = "U"
    UNKNOWN = "?"


@dataclass(frozen=True)
class TopicCells:
    """The partitions of one topic, in ascending order: entry i of `states` is of `numbers[i]`.

    `owner` is the consumer that has it, `source` the one that is to close it, `target` the one that has it next.
    `parked` has the record that holds a parked one up, and `shards` the state by key of those that have one.
    """

    numbers: Sequence[int]
    states: str
    owner: Mapping[int, str]
    source: Mapping[int, str]
    target: Mapping[int, str]
    parked: Mapping[int, FailingRecord] = field(default_factory=dict)
    shards: Mapping[int, ShardState] = field(default_factory=dict)

    @cached_property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.states))


Holding = dict[tuple[str, str], list[int]]
"""What one consumer has: partitions, ascending, by `PartitionState` and topic."""


def topic_cells(
    snapshot: TopicSnapshot, statuses: Mapping[str, ConsumerStatus], live: Iterable[str] | None
) -> TopicCells:
    """Return how each partition stands. Without `live`, which consumers are is unknown, and statuses alone decide."""
    assignment, state = snapshot.assignment, snapshot.state
    owners = assignment.owners if assignment is not None else {}
    closing = by_partition(state.to_close) if state is not None else {}
    starting = by_partition(state.to_start) if state is not None else {}
    there = None if live is None else set(live)
    reports: dict[str, TopicStatus | None] = {}
    for each in set(owners.values()):
        status = statuses.get(each) if there is None or each in there else None
        reports[each] = status.on(snapshot.topic) if status is not None else None
    numbers = sorted(snapshot.partitions | owners.keys())
    states: list[str] = []
    parked: dict[int, FailingRecord] = {}
    shards: dict[int, ShardState] = {}
    for partition in numbers:
        owner = owners.get(partition)
        if owner is None:
            states.append(PartitionState.CLOSING if partition in closing else PartitionState.UNASSIGNED)
            continue
        report = reports[owner]
        reported = _reported(report, partition)
        states.append(reported)
        if report is not None and reported is PartitionState.PARKED and partition in report.failing:
            parked[partition] = report.failing[partition]
        if report is not None and partition in report.shards:
            shards[partition] = report.shards[partition]
    return TopicCells(
        numbers,
        "".join(states),
        owners,
        {p: c for p, c in closing.items() if p not in owners},
        {p: c for p, c in starting.items() if owners.get(p) != c},
        parked,
        shards,
    )


def _reported(report: TopicStatus | None, partition: int) -> PartitionState:
    """Return how a partition stands by what its owner reports of the topic; None: it is not live, or silent."""
    if report is None:
        return PartitionState.UNKNOWN
    record, shard = report.failing.get(partition), report.shards.get(partition)
    if partition not in report.closing:
        if (record is not None and record.parked) or (shard is not None and shard.differs):
            return PartitionState.PARKED
        if shard is not None and shard.restore is not None:
            return PartitionState.RESTORING
    if partition not in report.running:
        return PartitionState.STARTING
    return PartitionState.PAUSED if partition in report.paused else PartitionState.RUNNING


def holdings(cells: Mapping[str, TopicCells]) -> dict[str, Holding]:
    """Return what each consumer has, by id; `cells` are by topic."""
    found: dict[str, Holding] = {}
    for topic, of_topic in cells.items():
        for partition, state in zip(of_topic.numbers, of_topic.states, strict=True):
            held_by = of_topic.source if state == PartitionState.CLOSING else of_topic.owner
            consumer = held_by.get(partition)
            if consumer is not None:
                found.setdefault(consumer, {}).setdefault((state, topic), []).append(partition)
    return found
