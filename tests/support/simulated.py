"""ZooKeeper, Consul and consumers as plain values, for tests of the pure core and of the coordinator around it.

The store keeps the bytes that the real one would hold, so every test goes through the wire format as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.core import wire
from muster.core.coordination import RebalanceRequest
from muster.core.decisions import Decisions
from muster.core.history import HistoryPage, Record
from muster.core.model import (
    Consumer,
    ConsumerDetails,
    ConsumerStatus,
    Membership,
    PartitionLoad,
    TopicAssignment,
    TopicSnapshot,
    TopicStatus,
    Transition,
)
from muster.core.wire import WireError
from muster.core.wire_racks import Racks, format_racks, parse_racks
from muster.edges.consul import Members, WaitIndex
from muster.edges.status import StatusFailure
from muster.edges.zookeeper import ZooKeeperError


class Killed(BaseException):
    """The coordinator died here. A BaseException, so that no `except Exception` can survive it."""


@dataclass
class Node:
    data: bytes
    version: int = 0


@dataclass
class SimulatedStore:
    """`kill_before` and `kill_after` count writes: the process dies before or after that one (from 1).

    `group` is how many topics fit into one multi."""

    nodes: dict[str, Node] = field(default_factory=dict)
    partitions: dict[str, set[int]] = field(default_factory=dict)
    states: dict[str, Node] = field(default_factory=dict)
    rack_nodes: dict[str, bytes] = field(default_factory=dict)
    writes: int = 0
    kill_before: int | None = None
    kill_after: int | None = None
    unreachable: bool = False
    touched: int = 0
    group: int = 100
    records: list[Record] = field(default_factory=list)
    clock: Callable[[], float] = time.time

    def history(self, *, limit: int = 100, before: int | None = None, since: float = 0.0) -> HistoryPage:
        """What tests put into `records`; writes do not add to it."""
        newest_first = sorted(self.records, key=lambda record: record.number, reverse=True)
        found = [r for r in newest_first if (before is None or r.number < before) and r.written >= since]
        return HistoryPage(tuple(found[:limit]), found[limit - 1].number if len(found) > limit else None)

    def snapshots(self) -> dict[str, TopicSnapshot | WireError]:
        self._reach()
        found: dict[str, TopicSnapshot | WireError] = {}
        for topic, node in self.nodes.items():
            state = self.states.get(topic)
            try:
                found[topic] = TopicSnapshot(
                    topic,
                    frozenset(self.partitions.get(topic, ())),
                    wire.parse_assignment(node.data, topic),
                    node.version,
                    wire.parse_state(state.data, topic) if state else None,
                    state.version if state else -1,
                )
            except WireError as error:
                found[topic] = error
        return found

    def create_topic(
        self, topic: str, bootstrap_servers: str, group_id: str, epoch: int = 0, topic_id: str = ""
    ) -> bool:
        self._reach()
        if topic in self.nodes:
            return False
        with_nobody = TopicAssignment(bootstrap_servers, group_id, epoch=epoch, topic_id=topic_id)
        self._write(lambda: self.nodes.__setitem__(topic, Node(wire.format_assignment(with_nobody))))
        return True

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None = None
    ) -> None:
        self._reach()
        self._write(lambda: self.partitions.__setitem__(topic, set(partitions)))

    def racks(self, topics: Iterable[str]) -> dict[str, Racks | WireError]:
        self._reach()
        found: dict[str, Racks | WireError] = {}
        for topic in self.rack_nodes.keys() & set(topics):
            try:
                found[topic] = parse_racks(self.rack_nodes[topic], topic)
            except WireError as error:
                found[topic] = error
        return found

    def set_racks(self, topic: str, racks: Racks) -> None:
        self._reach()
        if racks:
            self._write(lambda: self.rack_nodes.__setitem__(topic, format_racks(racks)))
        else:
            self._write(lambda: self.rack_nodes.pop(topic))

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        self._reach()
        results: list[bool] = []
        for start in range(0, len(transitions), self.group):
            group = transitions[start : start + self.group]
            fits = all(self._unchanged(transition.before) for transition in group)
            if fits:
                self._write(lambda group=group: [self._put(transition) for transition in group])
            results += [fits] * len(group)
        return results

    def _unchanged(self, before: TopicSnapshot) -> bool:
        node, state = self.nodes[before.topic], self.states.get(before.topic)
        versions = (node.version, state.version if state else -1)
        return versions == (before.assignment_version, before.state_version)

    def _put(self, transition: Transition) -> None:
        topic = transition.topic
        node, state = self.nodes[topic], self.states.get(topic)
        if transition.assignment != transition.before.assignment:
            self.nodes[topic] = Node(wire.format_assignment(transition.assignment), node.version + 1)
        self.states[topic] = Node(wire.format_state(transition.state), state.version + 1 if state else 0)

    def now(self) -> float:
        self._reach()
        return self.clock()

    def remove_topic(self, topic: str, snapshot: TopicSnapshot, reason: str = "") -> bool:
        self._reach()
        if topic not in self.nodes or not self._unchanged(snapshot):
            return False
        self._write(lambda: self._forget(topic))
        return True

    def _forget(self, topic: str) -> None:
        del self.nodes[topic]
        for kept in (self.states, self.partitions, self.rack_nodes):
            kept.pop(topic, None)

    def touch(self) -> None:
        self._reach()
        self.touched += 1

    def watch_changes(self, event: threading.Event) -> None:
        self._reach()

    def _reach(self) -> None:
        if self.unreachable:
            raise ZooKeeperError("ZooKeeper is out of reach")

    def _write(self, write: object) -> None:
        assert callable(write)
        self.writes += 1
        if self.writes == self.kill_before:
            raise Killed
        write()
        if self.writes == self.kill_after:
            raise Killed


@dataclass
class SimulatedConsumer:
    """A consumer that obeys what it last read. `lists` may be changed by hand to make it disobey."""

    id: str
    running: set[tuple[str, int]] = field(default_factory=set)
    starting: set[tuple[str, int]] = field(default_factory=set)
    closing: set[tuple[str, int]] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    epochs: bool = True
    answers: bool = True
    rates: dict[tuple[str, int], float] = field(default_factory=dict)
    stalled: dict[tuple[str, int], float] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    stuck: bool = False
    alive: bool = True

    def obey(self, store: SimulatedStore) -> None:
        """One round: notice the assignment, let go what was taken away, start what was given."""
        if self.stuck or not self.alive:
            return
        for topic in self.seen.keys() - store.nodes.keys():
            self._drop(topic)
        for topic, node in store.nodes.items():
            try:
                assignment = wire.parse_assignment(node.data, topic)
            except WireError:
                continue
            assert assignment is not None
            mine = {(topic, p) for p, owner in assignment.owners.items() if owner == self.id}
            held = {tp for tp in self.running | self.starting if tp[0] == topic}
            self.closing = {tp for tp in self.closing if tp[0] != topic}  # what closed last time is closed
            self.running |= self.starting & mine
            self.starting -= self.running
            gone = held - mine
            self.running -= gone
            self.starting -= gone
            self.closing |= gone
            self.starting |= mine - self.running - self.closing
            self.seen[topic] = assignment.epoch

    def _drop(self, topic: str) -> None:
        """The topic's nodes are gone."""
        held = {tp for tp in self.running | self.starting if tp[0] == topic}
        self.running -= held
        self.starting -= held
        self.closing = {tp for tp in self.closing if tp[0] != topic} | held
        del self.seen[topic]

    def status(self) -> ConsumerStatus:
        topics = {t for t, _ in self.running | self.starting | self.closing} | self.seen.keys()
        return ConsumerStatus(
            self.id,
            "one",
            {
                t: TopicStatus(
                    frozenset(p for name, p in self.running if name == t),
                    frozenset(p for name, p in self.starting if name == t),
                    frozenset(p for name, p in self.closing if name == t),
                    self.seen.get(t) if self.epochs else None,
                    loads={
                        p: PartitionLoad(rate=self.rates[name, p])
                        for name, p in self.running & self.rates.keys()
                        if name == t
                    },
                    stalled={p: seconds for (name, p), seconds in self.stalled.items() if name == t},
                )
                for t in topics
            },
            epochs=self.epochs,
            details=ConsumerDetails(errors=self.errors),
        )


@dataclass
class World:
    """Everything around a coordinator, and the clock."""

    store: SimulatedStore = field(default_factory=SimulatedStore)
    consumers: dict[str, SimulatedConsumer] = field(default_factory=dict)
    isolated: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    attributes: dict[str, Consumer] = field(default_factory=dict)
    decided: Decisions = field(default_factory=Decisions)
    doubt: str = ""
    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.store.clock = self.clock

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for consumer in self.consumers.values():
            consumer.obey(self.store)

    def members(self) -> Members:
        if self.doubt:
            return Members(None, {}, 1, self.doubt)
        there = {
            c.id: self.attributes.get(c.id, Consumer(c.id))
            for c in self.consumers.values()
            if c.alive or c.id in self.failing
        }
        membership = Membership(
            {c: there[c] for c in there if c not in self.isolated | self.failing},
            frozenset(self.isolated),
            failing={c: there[c] for c in there if c in self.failing - self.isolated},
            outside={c: there[c] for c in there if c in self.isolated},
        )
        return Members(membership, {}, 1, "")

    def decisions(self) -> Decisions:
        return self.decided

    def end_rebalance(self, request: RebalanceRequest) -> bool:
        if self.decided.rebalance != request:
            return False
        self.decided = replace(self.decided, rebalance=None)
        return True

    def note_epochs(self, epochs: Mapping[str, int]) -> None:
        known = self.decided.epochs
        self.decided = replace(
            self.decided, epochs={**known, **{t: max(e, known.get(t, e)) for t, e in epochs.items()}}
        )

    def wait(self, index: WaitIndex, timeout: float) -> WaitIndex:
        self.now += timeout
        return index

    def poll(
        self, consumers: Iterable[Consumer], timeout: float, topics: object = None
    ) -> Mapping[str, ConsumerStatus | StatusFailure]:
        answers: dict[str, ConsumerStatus | StatusFailure] = {}
        for consumer in consumers:
            there = self.consumers[consumer.id]
            if not there.alive:
                answers[consumer.id] = StatusFailure(consumer.id, "connection refused", refused=True)
            elif there.answers:
                answers[consumer.id] = there.status()
            else:
                answers[consumer.id] = StatusFailure(consumer.id, "no answer in time")
        return answers

    def join(self, *ids: str) -> None:
        for consumer in ids:
            self.consumers[consumer] = SimulatedConsumer(consumer)

    def owners(self, topic: str = "t") -> dict[int, str]:
        assignment = wire.parse_assignment(self.store.nodes[topic].data, topic)
        assert assignment is not None
        return dict(assignment.owners)
