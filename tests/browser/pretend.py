"""Clusters of the tests' own, in any state and size, answered in the models of the dashboard's API.

Here the page is tested, not the server: what it shows of states that are hard to bring about, and of sizes that no
machine has. That the real server gives such answers, and that the commands work, is shown on a real stack
(`test_real_stack.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.commands.command import Command, CommandError
from muster.commands.table import COMMANDS
from muster.core.model import ConsumerDetails
from muster.dashboard.models import (
    Applicable,
    AssignorInForce,
    BalanceEntry,
    Behind,
    ClusterAnswer,
    ClusterSummary,
    CommandState,
    ConsumerAnswer,
    ConsumerCounts,
    ConsumerRow,
    ConsumerTopic,
    ExclusionEntry,
    Freshness,
    Health,
    Isolation,
    LastRebalance,
    MoveEntry,
    OverrideEntry,
    ParkedEntry,
    PinEntry,
    Problem,
    Said,
    ShardEntry,
    Share,
    SourceHealth,
    TimelineEntry,
    TopicAnswer,
    TopicRow,
    WaitingEntry,
    WhatIfAnswer,
    WhatIfRequest,
)

T = TypeVar("T")

VERSION = "0.1.0"
VALUE = '{"carrier": "DL", "flight": 1547, "tail": "N3' + "9" * 90 + '", "delay": "n/a"}'
"""Of the record that a preview shows: with a word that is longer than the dialog is wide."""


@dataclass
class Partition:
    """One partition: a letter of PartitionState, and who has it."""

    owner: str | None
    state: str = "R"
    source: str | None = None
    target: str | None = None
    lag: int | None = 0
    age: float | None = 0.0
    rate: float | None = 0.0
    standby: str | None = None
    copies: dict[str, str] = field(default_factory=dict)
    parked: ParkedEntry | None = None
    shard: ShardEntry | None = None


@dataclass
class Topic:
    """One topic; `partitions` by number."""

    name: str
    partitions: dict[int, Partition]
    state: str = "Stable"
    since: float = 0.0
    reason: str = "first assignment"
    error: str = ""
    stuck: str = ""
    epoch: int = 3
    behind: Behind = field(default_factory=lambda: Behind(age=0.0, catch_up=0.0))
    max_lag: float | None = None


@dataclass
class Cluster:
    """One cluster; what is missing in `states` of a consumer is live."""

    name: str
    topics: dict[str, Topic]
    consumers: list[str]
    states: dict[str, str] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    pins: list[PinEntry] = field(default_factory=list)
    exclusions: list[ExclusionEntry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    waiting: list[WaitingEntry] = field(default_factory=list)
    timeline: list[TimelineEntry] = field(default_factory=list)
    sources: list[SourceHealth] = field(default_factory=list)
    health: Health = Health.OK
    paused: Said | None = None
    rebalance_asked: Said | None = None
    may_edit: bool = True
    assignor: str = "sticky"
    chosen: Said | None = None
    unavailable: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    frozen: bool = False
    """It never changes, so what is counted once stays counted: for clusters that take seconds to count."""
    _counted: dict[str, Any] = field(default_factory=dict)

    def once(self, key: str, count: Callable[[], T]) -> T:
        """What `count` gives, remembered if the cluster is frozen."""
        if not self.frozen:
            return count()
        if key not in self._counted:
            self._counted[key] = count()
        found: T = self._counted[key]
        return found

    def freshness(self) -> Freshness:
        """Read just now."""
        return Freshness(read_at=time.time(), ttl=1, sources=self.sources)

    def summary(self) -> ClusterSummary:
        """The cluster at a glance, counted from its parts."""
        return self.once("summary", self._summary)

    def _summary(self) -> ClusterSummary:
        cells = [cell for topic in self.topics.values() for cell in topic.partitions.values()]
        states = Counter(self.states.get(consumer, "live") for consumer in self.consumers)
        moving = [topic for topic in self.topics.values() if topic.state != "Stable"]
        newest = next((entry for entry in self.timeline if entry.kind == "transition"), None)
        return ClusterSummary(
            name=self.name,
            health=self.health,
            coordinator_dag=f"muster_coordinator__{self.name}",
            may_edit=self.may_edit,
            paused=self.paused,
            rebalance_asked=self.rebalance_asked,
            state="Rebalancing" if moving else "Stable" if self.topics else "Empty",
            since=self.began - 4321,
            topics=dict(Counter(topic.state for topic in self.topics.values())),
            partitions=len(cells),
            partition_states=dict(Counter(cell.state for cell in cells)),
            pinned=sum(last - first + 1 for pin in self.pins for first, last in pin.partitions),
            consumers=ConsumerCounts(
                live=states["live"],
                isolated=states["isolated"],
                missing=states["gone"] + states["not passing"],
                unknown=states["unknown"],
            ),
            lag=sum(cell.lag or 0 for cell in cells),
            lag_unknown=sum(cell.lag is None for cell in cells),
            behind=max(
                (t.behind for t in self.topics.values()), key=lambda b: b.age or 0.0, default=Behind()
            ),
            rate=sum(cell.rate or 0 for cell in cells),
            consumed_rate=sum(cell.rate or 0 for cell in cells) * 0.98,
            last_rebalance=newest
            and LastRebalance(
                at=newest.at, reason=newest.reason, topics=1, moved=newest.moved or 4, lasted=3.4
            ),
            assignor=self.assignor,
            problems=self.problems[:5],
            problem_count=len(self.problems),
            freshness=self.freshness(),
        )

    def answer(self) -> ClusterAnswer:
        """What is not by topic or consumer."""
        return ClusterAnswer(
            summary=self.summary(),
            problems=self.problems,
            waiting=self.waiting,
            waiting_count=len(self.waiting),
            isolated=[
                Isolation(consumer=consumer, said=said)
                for consumer, said in self.said.items()
                if self.states.get(consumer) == "isolated"
            ],
            pins=self.pins,
            pin_count=len(self.pins),
            exclusions=self.exclusions,
            assignor=AssignorInForce(
                name=self.assignor,
                from_settings=self.chosen is None,
                said=self.chosen,
                configured="sticky",
            ),
            assignors=["co-partitioned", "failover", "load-aware", "range", "round-robin", "sticky"],
            stuck_after=300,
            tick=20,
            group_id=f"{self.name}-parquet",
            consul_service=f"muster-{self.name}",
            levers=[
                CommandState(lever=name, available=not why_not, why_not=why_not)
                for name in (*COMMANDS, "apply")
                for why_not in [self.unavailable.get(name) or self._why_not(name)]
            ],
            overrides=[
                OverrideEntry(command="isolate", on={"consumer": consumer}, said=said)
                for consumer, said in self.said.items()
                if self.states.get(consumer) == "isolated"
            ]
            + [
                OverrideEntry(command="exclude", on={"consumer": e.consumer, "topic": e.topic}, said=e.said)
                for e in self.exclusions
            ],
        )

    def _why_not(self, name: str) -> str:
        wrong = {"pause", "rebalance"} if self.paused else {"resume"}
        return "not now" if name in wrong else ""

    def topic_row(self, topic: Topic) -> TopicRow:
        """A topic's line."""
        return self.once(f"topic {topic.name}", lambda: self._topic_row(topic))

    def _topic_row(self, topic: Topic) -> TopicRow:
        cells = topic.partitions.values()
        return TopicRow(
            topic=topic.name,
            state=topic.state,
            since=self.began - 900 if topic.state == "Stable" else self.began - 4,
            error=topic.error,
            stuck=topic.stuck,
            reason=topic.reason,
            epoch=topic.epoch,
            partitions=len(topic.partitions),
            partition_states=dict(Counter(cell.state for cell in cells)),
            pinned=sum(
                last - first + 1 for p in self.pins if p.topic == topic.name for first, last in p.partitions
            ),
            owners=len({cell.owner for cell in cells if cell.owner}),
            lag=sum(cell.lag or 0 for cell in cells),
            behind=topic.behind,
            max_lag=topic.max_lag,
            rate=sum(cell.rate or 0 for cell in cells),
        )

    def topic_answer(self, name: str) -> TopicAnswer:
        """A topic with its matrix, in columns."""
        topic = self.topics[name]
        cells = [topic.partitions[number] for number in sorted(topic.partitions)]
        named = sorted({who for cell in cells for who in (cell.owner, cell.source, cell.target) if who})
        index = {consumer: i for i, consumer in enumerate(named)}
        column = [[index.get(_people(cell)[i] or "", -1) for cell in cells] for i in range(3)]
        return TopicAnswer(
            row=self.topic_row(topic),
            partitions=ranges(topic.partitions),
            consumers=named,
            state="".join(cell.state for cell in cells),
            owner=column[0],
            source=column[1],
            target=column[2],
            lag=[cell.lag for cell in cells],
            age=[cell.age for cell in cells],
            rate=[cell.rate for cell in cells],
            committed=[10_000 + 7 * number for number in sorted(topic.partitions)],
            end=[10_000 + 7 * number + (cell.lag or 0) for number, cell in sorted(topic.partitions.items())],
            pins=[pin for pin in self.pins if pin.topic == name],
            standbys={n: [cell.standby] for n, cell in topic.partitions.items() if cell.standby},
            copies={n: cell.copies for n, cell in topic.partitions.items() if cell.copies},
            parked={n: cell.parked for n, cell in topic.partitions.items() if cell.parked},
            shards={n: cell.shard for n, cell in topic.partitions.items() if cell.shard},
            waiting=[entry for entry in self.waiting if entry.topic == name],
            exclusions=[entry for entry in self.exclusions if entry.topic == name],
            bootstrap_servers="kafka-1:9092",
            group_id=f"{self.name}-parquet",
            freshness=self.freshness(),
        )

    def held(self, consumer: str) -> list[Partition]:
        """What a consumer owns."""
        return [
            cell for t in self.topics.values() for cell in t.partitions.values() if cell.owner == consumer
        ]

    def consumer_row(self, consumer: str, cells: list[Partition] | None = None) -> ConsumerRow:
        """A consumer's line."""
        cells = self.held(consumer) if cells is None else cells
        state = self.states.get(consumer, "live")
        there = state in {"live", "isolated"}
        number = int(consumer.rsplit("-", 1)[-1])
        total = sum(len(topic.partitions) for topic in self.topics.values())
        return ConsumerRow(
            consumer=consumer,
            state=state,
            expected=True,
            said=self.said.get(consumer),
            error=self.errors.get(consumer, ""),
            doing="running" if state == "live" else state,
            host=f"worker-{number % 7 + 1}.example.net" if there else "",
            address=f"10.0.{number // 250}.{number % 250}:8{number % 1000:03}",
            version=VERSION if there else "",
            incarnation=f"{number * 2654435761 % 2**32:08x}-5f0c-4b51-9d0a-{number:012x}" if there else "",
            started_at=self.began - 86_400 - 97 * number if there else None,
            partitions=len(cells),
            running=sum(cell.state == "R" for cell in cells),
            parked=sum(cell.state == "K" for cell in cells),
            starting=sum(cell.state == "S" for cell in cells),
            topics=len({id(cell) for cell in cells}),
            commands=["restore" if state == "isolated" else "isolate", "drain", "exclude"],
            overrides=[OverrideEntry(command="isolate", on={"consumer": consumer}, said=self.said[consumer])]
            if state == "isolated"
            else [],
            lag=sum(cell.lag or 0 for cell in cells) if there else None,
            rate=sum(cell.rate or 0 for cell in cells) if there else None,
            share=len(cells) * max(1, len(self.consumers)) / total if total and state == "live" else None,
            weight=1.0 if there else None,
            priority=0 if there else None,
            zone=f"zone-{'abc'[number % 3]}" if there else None,
        )

    def rows(self) -> list[ConsumerRow]:
        """Every consumer's line."""
        return self.once("consumers", self._rows)

    def _rows(self) -> list[ConsumerRow]:
        held: dict[str, list[Partition]] = {consumer: [] for consumer in self.consumers}
        for topic in self.topics.values():
            for cell in topic.partitions.values():
                if cell.owner:
                    held.setdefault(cell.owner, []).append(cell)
        return [self.consumer_row(consumer, cells) for consumer, cells in held.items()]

    def consumer_answer(self, consumer: str) -> ConsumerAnswer:
        """A consumer with what it has."""
        return ConsumerAnswer(
            row=self.consumer_row(consumer),
            topics=[
                entry
                for topic in self.topics.values()
                if (entry := _consumer_topic(topic, consumer, self.pins))
            ],
            details=ConsumerDetails(
                errors=(self.errors[consumer],) if consumer in self.errors else (),
                records=1_234_567,
                batches=8_910,
                last_batch_at=time.time() - 1.5,
            ),
            exclusions=[entry for entry in self.exclusions if entry.consumer == consumer],
            freshness=self.freshness(),
        )

    def foresee(self, command: Command, body: Mapping[str, Any]) -> list[str]:
        """What a command would do. Raises `CommandError` where there is no such record."""
        given = {each.name: each.read(body) for each in command.fields}
        if command.name == "seek":
            return [f"topic {given['topic']}, partition {n}: to {given['to']}" for n in given["partitions"]]
        if command.subject != "record":
            return [command.summary]
        topic, number, offset = given["topic"], given["partition"], given["offset"]
        cell = self.topics[topic].partitions[number]
        where = f"partition {number} of topic {topic!r}"
        if cell.parked is None or cell.parked.offset != offset:
            raise CommandError(f"consumer {cell.owner} does not fail with a record of {where} now")
        return [
            "key: 'DL1547' (6 bytes)",
            f"value: {VALUE!r} ({len(VALUE)} bytes)",
            "headers: none",
            cell.parked.why,
            f"the record at offset {offset} of {where} is skipped",
        ]

    def what_if(self, asked: WhatIfRequest) -> WhatIfAnswer:
        """The partitions of those that leave are dealt to the others, who has least first."""
        return self.once(f"what if {asked}", lambda: self._what_if(asked))

    def _what_if(self, asked: WhatIfRequest) -> WhatIfAnswer:
        live = [c for c in self.consumers if self.states.get(c, "live") == "live"]
        stay = [c for c in live if c not in asked.without] + [f"new-{i + 1}" for i in range(asked.more)]
        before = Counter(cell.owner for t in self.topics.values() for cell in t.partitions.values())
        moves, after = [], Counter(before)
        for topic in self.topics.values():
            for number, cell in topic.partitions.items():
                leaves = cell.owner in asked.without
                if stay and (leaves or (asked.more and number % 30 == 0)):
                    target = min(stay, key=after.__getitem__)
                    why = f"consumer {cell.owner} left" if leaves else f"consumer {target} joined"
                    moves.append(
                        MoveEntry(
                            topic=topic.name,
                            partitions=[(number, number)],
                            source=cell.owner,
                            target=target,
                            why=why,
                        )
                    )
                    after[cell.owner] -= 1
                    after[target] += 1
        reasons = Counter(move.why for move in moves).most_common()
        total = sum(len(topic.partitions) for topic in self.topics.values())
        return WhatIfAnswer(
            plan="plan-1",
            assignor=asked.assignor.name if asked.assignor else self.assignor,
            held="" if stay else "no consumer would be live",
            moved=len(moves),
            moves=moves[:500],
            reasons=reasons,
            shares=sorted(
                (
                    Share(consumer=c, before=before[c], after=after[c], weight=1, zone=None)
                    for c in {*live, *stay}
                    if before[c] != after[c]
                ),
                key=lambda share: -abs(share.after - share.before),
            )[:500],
            share_count=len({*live, *stay}),
            before=_balance(total, before, live),
            after=_balance(total, after, stay),
            warnings=[],
            as_pins=Applicable(
                possible=bool(moves) and not asked.without,
                why_not="consumers that leave cannot be pinned away",
            ),
            as_assignor=Applicable(
                possible=asked.assignor is not None, why_not="no other assignor is supposed"
            ),
        )


def _people(cell: Partition) -> tuple[str | None, str | None, str | None]:
    return (cell.owner, cell.source, cell.target)


def _balance(total: int, has: Counter[str | None], consumers: list[str]) -> BalanceEntry:
    counts = [has[consumer] for consumer in consumers] or [0]
    return BalanceEntry(
        consumers=len(consumers),
        partitions=total,
        least=min(counts),
        most=max(counts),
        unowned=0,
        words=f"{len(consumers)} consumers, {min(counts)} to {max(counts)} partitions each",
    )


def _consumer_topic(topic: Topic, consumer: str, pins: Iterable[PinEntry]) -> ConsumerTopic | None:
    mine = {
        n: cell for n, cell in topic.partitions.items() if consumer in {cell.owner, cell.source, cell.standby}
    }
    if not mine:
        return None

    def those(state: str) -> list[tuple[int, int]]:
        return ranges(n for n, cell in mine.items() if cell.owner == consumer and cell.state == state)

    pinned = [
        pair
        for pin in pins
        if pin.topic == topic.name and pin.consumer == consumer
        for pair in pin.partitions
    ]
    return ConsumerTopic(
        topic=topic.name,
        running=those("R"),
        parked=those("K"),
        restoring=those("T"),
        starting=those("S"),
        closing=ranges(n for n, cell in mine.items() if cell.source == consumer),
        unknown=those("?"),
        standby=ranges(n for n, cell in mine.items() if cell.standby == consumer),
        pinned=pinned,
        lag=sum(cell.lag or 0 for cell in mine.values()),
        rate=sum(cell.rate or 0 for cell in mine.values()),
    )


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Partition numbers as [first, last]."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def stable(name: str, consumers: list[str], partitions: int, *, busy: float = 40.0) -> Topic:
    """A topic whose partitions run, dealt in turn."""
    return Topic(
        name,
        {
            number: Partition(
                consumers[number % len(consumers)], lag=(number * 37) % 113, rate=busy * (1 + number % 4) / 2
            )
            for number in range(partitions)
        },
    )
