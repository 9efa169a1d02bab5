"""A cluster's partitions and consumers put together from one reading, before it is cut into answers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from muster.core.decisions import NOTHING_DECIDED, Decisions
from muster.core.diagnosis import Waiting, stuck_message
from muster.core.model import ConsumerStatus, TopicSnapshot, TopicStatus, by_partition
from muster.core.overview import ConsumerLine, Overview, Reading, overview
from muster.core.readable import readable
from muster.dashboard.collector import Collected
from muster.dashboard.models import PartitionState


def ranges(partitions: Iterable[int]) -> list[tuple[int, int]]:
    """Partition numbers as [first, last], ascending."""
    found: list[tuple[int, int]] = []
    for partition in sorted(partitions):
        if found and found[-1][1] == partition - 1:
            found[-1] = (found[-1][0], partition)
        else:
            found.append((partition, partition))
    return found


@dataclass(frozen=True)
class TopicCells:
    """The partitions of one topic, in ascending order: entry i of `states` is of `numbers[i]`.

    `owner` is who has it, `source` who is to close it, `target` who is to have it next.
    """

    numbers: Sequence[int]
    states: str
    owner: Mapping[int, str]
    source: Mapping[int, str]
    target: Mapping[int, str]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Partitions by state."""
        return dict(Counter(self.states))


@dataclass
class Holding:
    """What one consumer has over all topics. Partitions by topic; the sums are None where nothing is known."""

    running: dict[str, list[int]] = field(default_factory=dict)
    starting: dict[str, list[int]] = field(default_factory=dict)
    closing: dict[str, list[int]] = field(default_factory=dict)
    unknown: dict[str, list[int]] = field(default_factory=dict)
    lag: int | None = None
    rate: float | None = None

    @property
    def topics(self) -> set[str]:
        """The topics of which it has something."""
        return self.running.keys() | self.starting.keys() | self.closing.keys() | self.unknown.keys()


def topic_cells(
    snapshot: TopicSnapshot, statuses: Mapping[str, ConsumerStatus], live: Iterable[str] | None
) -> TopicCells:
    """How each partition stands. Without `live` nobody knows who is; then statuses alone say what runs."""
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
    for partition in numbers:
        owner = owners.get(partition)
        if owner is None:
            states.append(PartitionState.CLOSING if partition in closing else PartitionState.UNASSIGNED)
            continue
        report = reports[owner]
        if report is None:
            states.append(PartitionState.UNKNOWN)
        elif partition in report.running:
            states.append(PartitionState.RUNNING)
        else:
            states.append(PartitionState.STARTING)
    return TopicCells(
        numbers,
        "".join(states),
        owners,
        {p: c for p, c in closing.items() if p not in owners},
        {p: c for p, c in starting.items() if owners.get(p) != c},
    )


@dataclass(frozen=True)
class Board:
    """One reading, and what follows from it. Everything is worked out once, whoever looks at it."""

    collected: Collected
    rows: dict[str, Any] = field(default_factory=dict)
    """Lists that were made of this reading already, for whoever sorts and cuts them."""

    @cached_property
    def expected(self) -> frozenset[str]:
        """The consumers that Airflow runs for the cluster."""
        return frozenset(self.collected.settings.consumer_ids())

    @cached_property
    def split(self) -> tuple[dict[str, TopicSnapshot], dict[str, str]]:
        """The topics that can be read, and why the others cannot."""
        return readable(self.collected.topics or {})

    @property
    def snapshots(self) -> dict[str, TopicSnapshot]:
        """The topics that can be read."""
        return self.split[0]

    @property
    def unreadable(self) -> dict[str, str]:
        """The others, with the reason."""
        return self.split[1]

    @cached_property
    def cells(self) -> dict[str, TopicCells]:
        """The partitions of each topic that can be read."""
        trusted = self.collected.consul is not None and self.collected.consul.members.membership is not None
        live = self.collected.live.keys() if trusted else None
        return {t: topic_cells(s, self.collected.statuses, live) for t, s in self.snapshots.items()}

    @cached_property
    def overview(self) -> Overview:
        """What `muster status` shows of the same reading."""
        consul, collected = self.collected.consul, self.collected
        read = Reading(
            snapshots=self.snapshots,
            left_alone=self.unreadable,
            membership=consul.members.membership if consul is not None else None,
            doubt=consul.members.doubt if consul is not None else "Consul was not read yet",
            registered={r.id: f"{r.address}:{r.port}" for r in consul.members.registered.values()}
            if consul
            else {},
            isolated={e.consumer: e.why for e in consul.isolated.values()} if consul else {},
            statuses=collected.statuses,
            failures=collected.failures,
        )
        return overview(read, collected.at, collected.settings.stuck_after)

    @cached_property
    def waiting(self) -> dict[str, list[Waiting]]:
        """Who holds up each topic."""
        found: dict[str, list[Waiting]] = {}
        for waiting in self.overview.waiting:
            found.setdefault(waiting.topic, []).append(waiting)
        return found

    @cached_property
    def stuck(self) -> dict[str, str]:
        """Topic to the full message, of those that are held up for too long."""
        consul = self.collected.consul
        if consul is None or consul.members.membership is None:
            return {}
        found = {}
        for topic, snapshot in self.snapshots.items():
            message = stuck_message(
                snapshot, self.waiting.get(topic, []), self.collected.at, self.collected.settings.stuck_after
            )
            if message is not None:
                found[topic] = message
        return found

    @cached_property
    def holdings(self) -> dict[str, Holding]:
        """What each consumer has, by id."""
        found: dict[str, Holding] = {}
        measured = self.collected.measured
        for topic, cells in self.cells.items():
            for partition, state in zip(cells.numbers, cells.states, strict=True):
                consumer = (
                    cells.source.get(partition)
                    if state == PartitionState.CLOSING
                    else cells.owner.get(partition)
                )
                if consumer is None:
                    continue
                holding = found.get(consumer)
                if holding is None:
                    holding = found[consumer] = Holding()
                kind = _KIND[state]
                getattr(holding, kind).setdefault(topic, []).append(partition)
                key = (topic, partition)
                if (lag := measured.lag.get(key)) is not None:
                    holding.lag = (holding.lag or 0) + lag
                if (rate := measured.rate.get(key)) is not None:
                    holding.rate = (holding.rate or 0.0) + rate
        return found

    def prepare(self) -> None:
        """Work out what takes longest, where its time counts as part of the reading."""
        _ = self.overview, self.holdings, self.totals, self.lag_unknown

    @cached_property
    def totals(self) -> tuple[int | None, float | None]:
        """Lag and rate over all topics; None where nothing is known."""
        of_topics = [self.lag_of(topic) for topic in self.cells]
        lags = [lag for lag, _ in of_topics if lag is not None]
        rates = [rate for _, rate in of_topics if rate is not None]
        return (sum(lags) if lags else None), (round(sum(rates), 1) if rates else None)

    @cached_property
    def lag_unknown(self) -> int:
        """Partitions whose lag is not known."""
        lag = self.collected.measured.lag
        return sum((t, p) not in lag for t, cells in self.cells.items() for p in cells.numbers)

    @cached_property
    def lines(self) -> dict[str, ConsumerLine]:
        """Every consumer that is registered, isolated, assigned something or expected, by id."""
        found = {line.consumer: line for line in self.overview.consumers}
        state = "unknown" if self.overview.doubt else "gone"
        for consumer in self.expected:
            found.setdefault(consumer, ConsumerLine(consumer, state, 0))
        return {consumer: found[consumer] for consumer in sorted(found)}

    @property
    def decisions(self) -> Decisions:
        """What people decided, as far as it was read."""
        consul = self.collected.consul
        return consul.decisions if consul is not None else NOTHING_DECIDED

    @cached_property
    def pins(self) -> dict[str, dict[int, str]]:
        """Topic to partition to the consumer it is pinned to."""
        return {t: dict(p) for t, p in self.decisions.pinned().items()}

    @cached_property
    def pinned_to(self) -> dict[str, int]:
        """Consumer to the number of partitions that are pinned to it."""
        return dict(Counter(to for of_topic in self.pins.values() for to in of_topic.values()))

    def lag_of(self, topic: str) -> tuple[int | None, float | None]:
        """Lag and rate of a topic; None where nothing is known."""
        measured = self.collected.measured
        lags = [lag for p in self.cells[topic].numbers if (lag := measured.lag.get((topic, p))) is not None]
        rates = [
            rate for p in self.cells[topic].numbers if (rate := measured.rate.get((topic, p))) is not None
        ]
        return (sum(lags) if lags else None), (round(sum(rates), 1) if rates else None)


_KIND = {
    PartitionState.RUNNING.value: "running",
    PartitionState.STARTING.value: "starting",
    PartitionState.CLOSING.value: "closing",
    PartitionState.UNKNOWN.value: "unknown",
}
