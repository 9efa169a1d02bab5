"""ZooKeeper as the coordinator and the consumers see it: one order of writes, servers that may lag behind it.

What stands is kept as the bytes that the real one would hold. Every write has a transaction number (zxid). A
consumer's session is with a server that has seen all writes up to some zxid, never fewer than the session saw before;
`sync` brings it up to the last one. Watches fire when the server gets to a change, unless they are lost.

Nodes may be deleted by hand, and all may be restored as it was some writes ago: then zxids go back, and every session
begins again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import WatchedEvent

from muster.core import wire
from muster.core.model import TopicAssignment, TopicSnapshot, Transition
from muster.core.wire import WireError
from muster.core.wire_racks import Racks
from muster.edges.zookeeper import ZooKeeperError

if TYPE_CHECKING:
    from tests.faults.model.coordinator import CoordinatorProcess
    from tests.faults.model.watchman import Watchman

CLUSTER = "c"
ROOT = wire.assignments_path(CLUSTER)
SESSION = 30.0
"""Seconds after which ZooKeeper has ended the session of a coordinator that stands still: what it sent is refused."""


@dataclass(frozen=True, slots=True)
class Stat:
    version: int
    mzxid: int
    pzxid: int


@dataclass(frozen=True, slots=True)
class Topic:
    """All that stands on one topic."""

    data: bytes
    version: int
    mzxid: int
    owners: dict[int, str]
    epoch: int
    partitions: frozenset[int] = frozenset()
    state: bytes | None = None
    state_version: int = -1
    name: str = "Initial"


Tree = dict[str, Topic]


@dataclass
class Ensemble:
    """`history[z]` is what stands after the write numbered z. `watchman` is told of each write of a coordinator
    before it is made."""

    watchman: Watchman
    history: list[Tree] = field(default_factory=lambda: [{}])
    listed: list[int] = field(default_factory=lambda: [0])
    """For each zxid, that of the last change to the list of topics."""
    away: bool = False
    delayed: list[tuple[Sequence[Transition], int, float]] = field(default_factory=list)
    """Writes whose sender does not know what came of them, and that may still happen: each with the moment at which
    its sender had read Consul, and the time when it was sent."""
    restored: int = 0
    """How many times an earlier state was restored."""
    _parsed: dict[tuple[str, bytes, bytes | None], TopicSnapshot] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return len(self.history) - 1

    @property
    def tree(self) -> Tree:
        return self.history[-1]

    def owner(self, topic: str, partition: int) -> str | None:
        node = self.tree.get(topic)
        return None if node is None else node.owners.get(partition)

    def commit(self, changes: Tree, without: str = "") -> None:
        tree = {topic: node for topic, node in {**self.tree, **changes}.items() if topic != without}
        same_list = tree.keys() == self.tree.keys()
        self.history.append(tree)
        self.listed.append(self.listed[-1] if same_list else self.last)

    def delete(self, topic: str) -> None:
        """A person deletes both nodes of a topic."""
        self.commit({}, without=topic)

    def delete_state(self, topic: str) -> None:
        """A person deletes the state node of a topic."""
        self.commit({topic: replace(self.tree[topic], state=None, state_version=-1, name="Initial")})

    def restore(self, writes: int) -> None:
        """All is as it was so many writes ago, or at the beginning."""
        keep = max(1, len(self.history) - writes)
        del self.history[keep:], self.listed[keep:]
        self.delayed.clear()
        self.restored += 1

    def create(self, topic: str, assignment: TopicAssignment) -> bool:
        if topic in self.tree:
            return False
        data = wire.format_assignment(assignment)
        self.commit({topic: Topic(data, 0, self.last + 1, {}, assignment.epoch)})
        return True

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None, writer: CoordinatorProcess
    ) -> None:
        node = self.tree.get(topic)
        if node is None:
            raise ZooKeeperError(f"topic {topic} is unknown")
        vanished = node.partitions - partitions if known is None else (node.partitions & known) - partitions
        self.watchman.removes(topic, vanished, writer)
        self.commit({topic: replace(node, partitions=(node.partitions | partitions) - vanished)})

    def apply(
        self, transitions: Sequence[Transition], writer: CoordinatorProcess | None, read_at: int
    ) -> list[bool]:
        fits = [self._unchanged(transition.before) for transition in transitions]
        done = [transition for transition, fit in zip(transitions, fits, strict=True) if fit]
        if done:
            self.watchman.written(done, writer, read_at)
            self.commit({transition.topic: self._after(transition) for transition in done})
        return fits

    def remove(self, snapshot: TopicSnapshot) -> bool:
        """A coordinator deletes what stands on a topic, if nothing was written to it since."""
        if not self._unchanged(snapshot):
            return False
        self.watchman.removes_topic(snapshot)
        self.delete(snapshot.topic)
        return True

    def _unchanged(self, before: TopicSnapshot) -> bool:
        node = self.tree.get(before.topic)
        versions = (before.assignment_version, before.state_version)
        return node is not None and (node.version, node.state_version) == versions

    def _after(self, transition: Transition) -> Topic:
        node = self.tree[transition.topic]
        same = transition.assignment == transition.before.assignment
        return Topic(
            node.data if same else wire.format_assignment(transition.assignment),
            node.version + (not same),
            node.mzxid if same else self.last + 1,
            dict(transition.assignment.owners),
            transition.assignment.epoch,
            node.partitions,
            wire.format_state(transition.state),
            node.state_version + 1,
            str(transition.state.state),
        )

    def snapshot(self, topic: str, zxid: int) -> TopicSnapshot | WireError:
        node = self.history[zxid][topic]
        key = (topic, node.data, node.state)
        if key not in self._parsed:
            self._parsed[key] = TopicSnapshot(
                topic,
                frozenset(),
                wire.parse_assignment(node.data, topic),
                0,
                None if node.state is None else wire.parse_state(node.state, topic),
            )
        known = self._parsed[key]
        return TopicSnapshot(
            topic, node.partitions, known.assignment, node.version, known.state, node.state_version
        )


@dataclass
class StoreClient:
    """`muster.coordinator.ports.Store`. `at` is called at each point where the process can be stopped."""

    ensemble: Ensemble
    at: Callable[[str], None]
    writer: CoordinatorProcess
    lag: int = 0
    """So many writes are not seen by the next reading (once)."""
    answer: str = "comes"
    """What becomes of the next write's answer: it comes, is lost, or the write itself is delayed as well."""
    seen: dict[str, frozenset[int]] = field(default_factory=dict)
    """The partitions of each topic as they were read last."""
    looked_at: float = 0.0
    """When topics were read last."""

    def snapshots(self) -> dict[str, TopicSnapshot | WireError]:
        self.at("read ZooKeeper")
        self._reach()
        zxid, self.lag = max(0, self.ensemble.last - self.lag), 0
        tree = self.ensemble.history[zxid]
        self.seen = {topic: node.partitions for topic, node in tree.items()}
        self.looked_at = self.writer.world.now
        return {topic: self.ensemble.snapshot(topic, zxid) for topic in tree}

    def create_topic(
        self, topic: str, bootstrap_servers: str, group_id: str, epoch: int = 0, topic_id: str = ""
    ) -> bool:
        self._before()
        assignment = TopicAssignment(bootstrap_servers, group_id, epoch=epoch, topic_id=topic_id)
        done = self.ensemble.create(topic, assignment)
        self.at("after")
        return done

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None = None
    ) -> None:
        self._before()
        self.ensemble.set_partitions(topic, partitions, known, self.writer)
        self.at("after")

    def racks(self, topics: Iterable[str]) -> dict[str, Racks | WireError]:
        self._reach()
        return {}

    def set_racks(self, topic: str, racks: Racks) -> None:
        raise AssertionError("Kafka tells of no racks here")

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        if not transitions:
            return []
        self._before()
        self._still_there()
        answer, self.answer = self.answer, "comes"
        if answer == "delayed":
            late = (transitions, self.writer.discovery.read_at, self.writer.world.now)
            self.ensemble.delayed.append(late)
        else:
            done = self.ensemble.apply(transitions, self.writer, self.writer.discovery.read_at)
        if answer != "comes":
            raise ZooKeeperError("the connection was lost while it was written")
        self.at("after")
        return done

    def remove_topic(self, topic: str, snapshot: TopicSnapshot, reason: str = "") -> bool:
        self._before()
        self._still_there()
        removed = self.ensemble.remove(snapshot)
        self.at("after")
        return removed

    def touch(self) -> None:
        self._reach()

    def now(self) -> float:
        self.at("ask for the time")
        self._reach()
        return self.writer.world.now

    def watch_changes(self, event: threading.Event) -> None:
        self._reach()

    def _before(self) -> None:
        self.at("before")
        self._reach()

    def _still_there(self) -> None:
        if self.writer.world.now - self.looked_at > SESSION:
            raise ZooKeeperError("its session has expired")

    def _reach(self) -> None:
        if self.ensemble.away:
            raise ZooKeeperError("ZooKeeper is out of reach")


@dataclass(frozen=True, slots=True)
class Result:
    """What kazoo's `..._async` calls return."""

    value: Any = None
    error: Exception | None = None

    def get(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


@dataclass
class Session:
    """As much of `kazoo.client.KazooClient` as a consumer uses."""

    ensemble: Ensemble
    view: int
    """The last write that its server has seen."""
    begun_again: Callable[[], None]
    """Is called when it begins again, after an earlier state was restored."""
    away: bool = False
    restored: int = 0
    watches: dict[str, tuple[Callable[[WatchedEvent], None], int]] = field(default_factory=dict)
    logger: None = None
    client_state: str = "CONNECTING"
    """What a session that is suspended may look like; none is ever refused here."""

    @property
    def connected(self) -> bool:
        """It is not while its server has to see again what the session has seen: `catch_up` ends that."""
        return not self.away and not self.ensemble.away and self.restored == self.ensemble.restored

    @property
    def last_zxid(self) -> int:
        return self.view

    def sync_async(self, path: str) -> Result:
        self.view = self.ensemble.last
        return Result(path)

    def get_children_async(
        self, path: str, watch: Callable[[WatchedEvent], None], include_data: bool
    ) -> Result:
        self.watches[path] = (watch, self.ensemble.listed[self.view])
        zxid = self.ensemble.listed[self.view]
        return Result((list(self.ensemble.history[self.view]), Stat(0, 0, zxid)))

    def get_async(self, path: str, watch: Callable[[WatchedEvent], None]) -> Result:
        node = self.ensemble.history[self.view].get(path.rpartition("/")[2])
        if node is None:
            return Result(error=NoNodeError())
        self.watches[path] = (watch, node.mzxid)
        return Result((node.data, Stat(node.version, node.mzxid, node.mzxid)))

    def catch_up(self, writes: int, watches_lost: bool) -> None:
        """The server sees up to so many more writes; watches fire, or are lost."""
        if self.restored != self.ensemble.restored:
            self.restored, self.view = self.ensemble.restored, self.ensemble.last
            self.watches.clear()
            self.begun_again()
        self.view = min(self.ensemble.last, self.view + writes)
        for path, watch in list(self._changed()):
            del self.watches[path]
            if not watches_lost:
                watch(WatchedEvent("CHANGED", "CONNECTED", path))

    def _changed(self) -> Iterator[tuple[str, Callable[[WatchedEvent], None]]]:
        tree = self.ensemble.history[self.view]
        for path, (watch, zxid) in self.watches.items():
            node = tree.get(path.rpartition("/")[2])
            stands = -1 if node is None else node.mzxid
            if zxid != (self.ensemble.listed[self.view] if path == ROOT else stands):
                yield path, watch
