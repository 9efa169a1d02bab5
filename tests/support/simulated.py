"""ZooKeeper, Consul and consumers in memory, for tests of the coordinator and of what reads a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from muster.core import wire
from muster.core.deployment import Deployment
from muster.core.epochs import Noted
from muster.core.history import Record, Unreadable
from muster.core.model import (
    Consumer,
    ConsumerDetails,
    ConsumerStatus,
    FailingRecord,
    Loss,
    Membership,
    PartitionLoad,
    ShardState,
    TopicPartition,
    TopicStatus,
    Transition,
)
from muster.core.offsets import TopicOffsets
from muster.core.overrides import Overrides, RebalanceRequest, SeekRequest
from muster.core.progress import Look, Mark
from muster.core.starting import Starting
from muster.core.wire import WireError, racks_parent
from muster.edges.consul import Members, WaitIndex
from muster.edges.kafka import KafkaError
from muster.edges.status import StatusFailure
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.edges.zookeeper_session import Operation, Session
from muster.settings.connections import ZooKeeperSettings
from tests.support.memory_zookeeper import SETTINGS, MemoryClient, MemoryZooKeeper


class Killed(BaseException):
    """The coordinator died here. A BaseException, so that no `except Exception` can survive it."""


@dataclass
class Node:
    data: bytes
    version: int = 0


class Nodes(MutableMapping[str, Node]):
    """The nodes below `parent` by name, read and written without the store."""

    def __init__(self, client: Any, parent: str) -> None:
        self._client = client
        self._parent = parent

    def __getitem__(self, name: str) -> Node:
        if name not in self._children(self._parent):
            raise KeyError(name)
        data, stat = self._client.get_async(f"{self._parent}/{name}").get()
        return Node(data, stat.version)

    def __setitem__(self, name: str, node: Node) -> None:
        path = f"{self._parent}/{name}"
        self._client.ensure_path_async(path).get()
        self._client.set_async(path, node.data).get()

    def __delitem__(self, name: str) -> None:
        path = f"{self._parent}/{name}"
        for child in self._children(path):
            self._client.delete_async(f"{path}/{child}").get()
        self._client.delete_async(path).get()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._children(self._parent)))

    def __len__(self) -> int:
        return len(self._children(self._parent))

    def _children(self, path: str) -> list[str]:
        there = self._client.exists_async(path).get() is not None
        return list(self._client.get_children_async(path).get()) if there else []


class _MortalSession(Session):
    """Dies at a write, and cannot reach ZooKeeper, when its store says so."""

    def __init__(self, settings: ZooKeeperSettings, store: SimulatedStore) -> None:
        super().__init__(settings)
        self._store = store

    def begin(self) -> Operation:
        if self._store.unreachable:
            raise ZooKeeperError("ZooKeeper is out of reach")
        return _MortalOperation(self, self._store)


class _MortalOperation(Operation):
    def __init__(self, session: Session, store: SimulatedStore) -> None:
        super().__init__(session)
        self._store = store

    def commit(self, what: str, transaction: Any, read_in: int = 0) -> Exception | None:
        store = self._store
        store.writes += 1
        if store.writes == store.kill_before:
            raise Killed
        refusal = super().commit(what, transaction, read_in)
        if store.writes == store.kill_after:
            raise Killed
        return refusal


class SimulatedStore(TopicStore):
    """The real store, open on a ZooKeeper in memory, or with `settings` to be opened on a real one.

    `writes` counts multis; the process dies before the one numbered `kill_before`, or after `kill_after`. A multi
    holds `group` topics at most.
    """

    def __init__(
        self, settings: ZooKeeperSettings | None = None, cluster: str = "c", *, group: int = 100
    ) -> None:
        super().__init__(settings or SETTINGS, cluster)
        self.group = group
        self.writes = 0
        self.kill_before: int | None = None
        self.kill_after: int | None = None
        self.unreachable = False
        self.touched = 0
        self.zookeeper = MemoryZooKeeper()
        self._session = _MortalSession(settings or SETTINGS, self)
        if settings is None:
            self._session.client = MemoryClient(self.zookeeper)
        self._client = self._session.client
        if settings is None:
            self._ensure_parents(self._session.begin())

    def __enter__(self) -> SimulatedStore:
        super().__enter__()
        return self

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of the ZooKeeper in memory."""
        return self.zookeeper.clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self.zookeeper.clock = clock

    @property
    def nodes(self) -> Nodes:
        """The assignment nodes of topics."""
        return Nodes(self._client, wire.assignments_path(self.cluster))

    @property
    def states(self) -> Nodes:
        return Nodes(self._client, wire.states_path(self.cluster))

    @property
    def rack_nodes(self) -> Nodes:
        return Nodes(self._client, racks_parent(self.cluster))

    @property
    def partitions(self) -> dict[str, set[int]]:
        return {
            topic: {
                int(partition) for partition in Nodes(self._client, wire.assignment_path(self.cluster, topic))
            }
            for topic in self.nodes
        }

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        written: list[bool] = []
        for start in range(0, len(transitions), self.group):
            written += super().apply(transitions[start : start + self.group])
        return written

    def touch(self) -> None:
        super().touch()
        self.touched += 1

    def record(self, records: Iterable[Record]) -> None:
        """Append entries to the history, each written when its record says."""
        clock = self.clock
        for record in records:
            self.clock = partial(float, record.written)
            assert not isinstance(record.entry, Unreadable)
            self.append_history(record.entry)
        self.clock = clock


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
    failing: dict[tuple[str, int], FailingRecord] = field(default_factory=dict)
    shards: dict[tuple[str, int], ShardState] = field(default_factory=dict)
    batch_seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    losses: dict[tuple[str, int], tuple[Loss, ...]] = field(default_factory=dict)
    left_out: dict[tuple[str, int], tuple[Loss, ...]] = field(default_factory=dict)
    paused: set[tuple[str, int]] = field(default_factory=set)
    errors: tuple[str, ...] = ()
    max_batch_time: float | None = None
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
            if assignment is None:
                continue
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
            self.paused = {tp for tp in self.paused if tp[0] != topic} | {
                (topic, p) for p in assignment.paused
            }

    def _drop(self, topic: str) -> None:
        """The topic's nodes are gone."""
        held = {tp for tp in self.running | self.starting if tp[0] == topic}
        self.running -= held
        self.starting -= held
        self.closing = {tp for tp in self.closing if tp[0] != topic} | held
        self.paused = {tp for tp in self.paused if tp[0] != topic}
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
                    failing={p: record for (name, p), record in self.failing.items() if name == t},
                    shards={p: shard for (name, p), shard in self.shards.items() if name == t},
                    batch_seconds={p: took for (name, p), took in self.batch_seconds.items() if name == t},
                    losses={p: losses for (name, p), losses in self.losses.items() if name == t},
                    left_out={p: losses for (name, p), losses in self.left_out.items() if name == t},
                    paused=frozenset(p for name, p in self.paused & self.running if name == t),
                )
                for t in topics
            },
            epochs=self.epochs,
            max_batch_time=self.max_batch_time,
            batch_seconds=max(self.batch_seconds.values(), default=None),
            details=ConsumerDetails(errors=self.errors),
        )


@dataclass
class SimulatedOffsets:
    """What Kafka says of offsets: nothing is committed, and each partition has so many records."""

    records: dict[TopicPartition, int] = field(default_factory=dict)
    away: bool = False
    unreadable: set[TopicPartition] = field(default_factory=set)
    """Partitions whose records are no more than markers of transactions."""

    def read(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        if self.away:
            raise KafkaError("Kafka is out of reach")
        ends = {(t, p): self.records.get((t, p), 0) for t, found in partitions.items() for p in found}
        none = dict.fromkeys(self.unreadable)
        return TopicOffsets(partitions, ends, dict.fromkeys(ends, 0), dict.fromkeys(ends), first=none)


@dataclass
class SimulatedCluster:
    """Everything around a coordinator, and the clock."""

    store: SimulatedStore = field(default_factory=SimulatedStore)
    consumers: dict[str, SimulatedConsumer] = field(default_factory=dict)
    isolated: set[str] = field(default_factory=set)
    starting: dict[str, Starting] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    attributes: dict[str, Consumer] = field(default_factory=dict)
    decided: Overrides = field(default_factory=Overrides)
    doubt: str = ""
    strangers: dict[str, str] = field(default_factory=dict)
    offsets: SimulatedOffsets | None = None
    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.store.clock = self.clock

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for consumer in self.consumers.values():
            consumer.obey(self.store)

    def stands(self, tp: TopicPartition, seconds: float) -> None:
        """A partition has records, and has not moved for so many seconds."""
        self.offsets = self.offsets or SimulatedOffsets()
        self.offsets.records[tp] = 7
        before = self.store.look()
        marks = {**before.marks, tp: Mark(None, int(self.now - seconds))}
        self.store.note_look(before, Look(self.now, marks))

    @property
    def catalog(self) -> SimulatedCluster:
        """As the catalog and the overrides of `muster.edges.consul.ConsulCluster`."""
        return self

    overrides = catalog

    def members(self) -> Members:
        if self.doubt:
            return Members(None, {}, self.doubt)
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
        return Members(membership, {}, strangers=self.strangers)

    def read(self) -> Overrides:
        return self.decided

    def end_seek(self, request: SeekRequest) -> bool:
        tp = (request.topic, request.partition)
        self.decided = replace(
            self.decided, seeks={key: each for key, each in self.decided.seeks.items() if key != tp}
        )
        return True

    def end_rebalance(self, request: RebalanceRequest) -> bool:
        if self.decided.rebalance != request:
            return False
        self.decided = replace(self.decided, rebalance=None)
        return True

    def forget_epochs(self, epochs: Mapping[str, int]) -> None:
        left = {t: e for t, e in self.decided.epochs.items() if epochs.get(t, -1) < e.epoch}
        self.decided = replace(self.decided, epochs=left)

    def note_epochs(self, epochs: Mapping[str, Noted]) -> None:
        known = self.decided.epochs
        noted = {t: known[t].merged(note) if t in known else note for t, note in epochs.items()}
        self.decided = replace(self.decided, epochs={**known, **noted})

    def note_deployment(self, deployment: Deployment, before: Deployment | None) -> bool:
        if self.decided.deployment != before:
            return False
        self.decided = replace(self.decided, deployment=deployment)
        return True

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
