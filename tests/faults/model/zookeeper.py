"""ZooKeeper as the coordinator and the consumers see it: one order of writes, servers that may lag behind it.

Every write has a transaction number (zxid). A consumer's session is with a server that has seen all writes up to some
zxid, never fewer than the session saw before; `sync` brings it up to the last one. Watches fire when the server gets
to a change, unless they are lost.

Nodes may be deleted by hand, and restored as they were after any earlier write, several times. Where the servers are
restored, zxids go back, or on behind an election, and every session begins again. Where a person writes what was
there before, zxids go on and sessions stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from kazoo.protocol.states import WatchedEvent

from muster.core import wire
from muster.core.history import history_path
from muster.core.model import TopicSnapshot, Transition
from muster.core.progress import Look
from muster.core.wire import Racks, WireError
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from tests.faults.model.tally import CONFLICTS
from tests.support.memory_zookeeper import (
    SETTINGS,
    MemoryClient,
    MemoryZooKeeper,
    Operation,
    Result,
    Tree,
    Znode,
)

if TYPE_CHECKING:
    from tests.faults.model.coordinator import CoordinatorProcess
    from tests.faults.model.watchman import Watchman

CLUSTER = "c"
ROOT = wire.assignments_path(CLUSTER)
SESSION = 30.0
"""Seconds after which ZooKeeper has ended the session of a coordinator that stands still; it then has another one."""

_state = lru_cache(maxsize=10_000)(wire.parse_state)
_assignment = lru_cache(maxsize=10_000)(wire.parse_assignment)


@lru_cache
def _paths(topic: str) -> tuple[str, str]:
    return wire.assignment_path(CLUSTER, topic), wire.state_path(CLUSTER, topic)


class Ensemble(MemoryZooKeeper):
    """`history[z]` is what stands after the write numbered z. `watchman` is told of each write of a coordinator."""

    def __init__(self, watchman: Watchman) -> None:
        super().__init__()
        self.watchman = watchman
        self.away = False
        self.delayed: list[tuple[Callable[[], object], float]] = []
        """Writes whose sender does not know what came of them, and that may still happen, and when they were sent."""
        self.look = Look()
        self.restored = 0
        """How many times the servers were restored."""
        self.past: list[tuple[int, Tree]] = []
        """All that stood at any time, with its zxid; also what a restored server does not know any more."""
        self.history: list[Tree] = [super().tree]
        for path in (ROOT, wire.states_path(CLUSTER), history_path(CLUSTER)):
            self.write(*self.missing(path))
        self.zxid = 0
        self.history = [{path: replace(node, mzxid=0, pzxid=0) for path, node in self.tree.items()}]
        self.past = [(0, self.tree)]

    @property
    def tree(self) -> Tree:
        return self.history[-1]

    def _commit(self, changes: Mapping[str, Znode | None]) -> None:
        after = {**self.tree, **changes}
        self.history.append({path: node for path, node in after.items() if node is not None})
        self.zxid += 1
        self.past.append((self.zxid, self.tree))

    def snapshot(self, topic: str, zxid: int = -1) -> TopicSnapshot | None:
        """Return what stands on a topic after the write `zxid`, the last one without it; None if it is unknown."""
        path, state_path = _paths(topic)
        tree = self.history[zxid]
        node, state = tree.get(path), tree.get(state_path)
        if node is None:
            return None
        return TopicSnapshot(
            topic,
            frozenset(map(int, node.children)),
            _assignment(node.data, topic),
            node.version,
            None if state is None else _state(state.data, topic),
            -1 if state is None else state.version,
        )

    def owner(self, topic: str, partition: int) -> str | None:
        node = self.tree.get(_paths(topic)[0])
        assignment = None if node is None else _assignment(node.data, topic)
        return None if assignment is None else assignment.owners.get(partition)

    def written(self, topic: str) -> int:
        """Return the number of the last write to the assignment of a topic."""
        return self.tree[_paths(topic)[0]].mzxid

    def delete(self, topic: str) -> None:
        """A person deletes both nodes of a topic."""
        self._delete(topic, _paths(topic)[1])

    def delete_assignment(self, topic: str) -> None:
        """A person deletes the assignment node of a topic, and its children."""
        self._delete(topic)

    def _delete(self, topic: str, *further: str) -> None:
        path = _paths(topic)[0]
        paths = [f"{path}/{child}" for child in self.tree[path].children]
        self.write(*(Operation("delete", p) for p in (*paths, path, *further) if p in self.tree))

    def delete_state(self, topic: str) -> None:
        """A person deletes the state node of a topic."""
        self.write(Operation("delete", _paths(topic)[1]))

    def restore(self, writes: int, elects: bool = False) -> None:
        """The servers are as they were so many writes ago, or at the beginning. If one `elects` a leader that counts
        on from what was there last, zxids are higher than any before."""
        zxid, tree = self._before(writes)
        self.zxid = max(number for number, _ in self.past) + 1 if elects else zxid
        self.history = [tree] * (self.zxid + 1)
        self.past.append((self.zxid, tree))
        self.delayed.clear()
        self.restored += 1

    def write_back(self, writes: int, part: str) -> None:
        """A person writes what stood so many writes ago: of a topic, or of the 'assignments' or the 'states' of
        all."""
        _, earlier = self._before(writes)
        roots = {"assignments": [ROOT], "states": [wire.states_path(CLUSTER)]}.get(part, [*_paths(part)])
        paths = {
            path for tree in (self.tree, earlier) for path in tree if any(_is_below(path, r) for r in roots)
        }
        self.write(
            *(Operation("delete", path) for path in sorted(paths - earlier.keys(), reverse=True)),
            *(
                Operation("set" if path in self.tree else "create", path, earlier[path].data)
                for path in sorted(paths & earlier.keys())
            ),
        )

    def _before(self, writes: int) -> tuple[int, Tree]:
        return self.past[max(0, len(self.past) - 1 - writes)]


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root}/") or (path == root and root not in {ROOT, wire.states_path(CLUSTER)})


class LateClient(MemoryClient):
    """A client whose server has seen the writes up to `view`, all without it."""

    def __init__(self, ensemble: Ensemble, view: int | None = None) -> None:
        super().__init__(ensemble)
        self.ensemble = ensemble
        self.view = view

    @property
    def tree(self) -> Tree:
        return self.ensemble.history[-1 if self.view is None else self.view]


class StoreClient(TopicStore):
    """A coordinator's store. `at` is called at each point where the process can be stopped."""

    def __init__(self, ensemble: Ensemble, at: Callable[[str], None], writer: CoordinatorProcess) -> None:
        super().__init__(SETTINGS, CLUSTER)
        self.ensemble = ensemble
        self.at = at
        self.writer = writer
        self.lag = 0
        """So many writes are not seen by the next reading (once)."""
        self.answer = "comes"
        """What becomes of the next write's answer: it comes, is lost, or the write itself is delayed as well."""
        self.seen: dict[str, frozenset[int]] = {}
        """The partitions of each topic as they were read last."""
        self.read_zxid = 0
        """The last write that the last reading saw."""
        self.heard_at = 0.0
        """When ZooKeeper heard of its session last."""
        self.server = LateClient(ensemble)
        self._client = self._session.client = self.server

    def snapshots(self) -> dict[str, TopicSnapshot | WireError]:
        self.at("read ZooKeeper")
        self._reach()
        self.server.view, self.lag = max(0, self.ensemble.zxid - self.lag), 0
        self.read_zxid = self.server.view
        found = super().snapshots()
        self.server.view = None
        self.seen = {
            topic: read.partitions for topic, read in found.items() if isinstance(read, TopicSnapshot)
        }
        return found

    def create_topic(
        self, topic: str, bootstrap_servers: str, group_id: str, epoch: int = 0, topic_id: str = ""
    ) -> bool:
        self._before()
        done = super().create_topic(topic, bootstrap_servers, group_id, epoch, topic_id)
        self.at("after")
        return done

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None = None
    ) -> None:
        self._before()
        before = self.ensemble.snapshot(topic)
        super().set_partitions(topic, partitions, known)
        after = self.ensemble.snapshot(topic)
        assert before is not None and after is not None
        self.ensemble.watchman.removes(topic, before.partitions - after.partitions, self.writer)
        self.at("after")

    def racks(self, topics: Iterable[str]) -> dict[str, Racks | WireError]:
        self._reach()
        return super().racks(topics)

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        if not transitions:
            return []
        self._before()
        answer, self.answer = self.answer, "comes"
        read_at = self.writer.discovery.catalog.read_at
        if answer == "delayed":
            late = partial(self._write_late, transitions, read_at, self.server._session_id)
            self.ensemble.delayed.append((late, self.writer.world.now))
        else:
            done = self._write(transitions, self.writer, read_at)
        if answer != "comes":
            raise ZooKeeperError("the connection was lost while it was written")
        self.at("after")
        return done

    def _write_late(self, transitions: Sequence[Transition], read_at: int, session: int) -> None:
        """Write what was on its way for long; ZooKeeper refuses it if the session that sent it has ended. One that
        was read in an earlier session than that is not sent at all."""
        if self.server._session_id == session:
            with suppress(ZooKeeperError):
                self._write(transitions, None, read_at)

    def _write(
        self, transitions: Sequence[Transition], writer: CoordinatorProcess | None, read_at: int
    ) -> list[bool]:
        """Write, and show the watchman what was written by `writer`, None if it waits for it no more, which had read
        Consul at the moment `read_at`."""
        before = self.ensemble.zxid
        done = super().apply(transitions)
        written = [transition for transition, fits in zip(transitions, done, strict=True) if fits]
        if not all(done):
            self.writer.world.saw.add(CONFLICTS)
        self.ensemble.watchman.written(written, before, writer, read_at)
        return done

    def remove_topic(self, topic: str, snapshot: TopicSnapshot, reason: str = "") -> bool:
        self._before()
        removed = super().remove_topic(topic, snapshot, reason)
        if removed:
            self.ensemble.watchman.removes_topic(snapshot)
        self.at("after")
        return removed

    def look(self) -> Look:
        self._reach()
        return self.ensemble.look

    def note_look(self, before: Look, after: Look) -> None:
        """No write of those that are counted: nothing is decided by it."""
        self.at("note the look")
        self._reach()
        self.ensemble.look = after

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

    def _reach(self) -> None:
        if self.ensemble.away:
            raise ZooKeeperError("ZooKeeper is out of reach")
        now = self.writer.world.now
        if now - self.heard_at > SESSION:
            self.server._session_id += 1
        self.heard_at = now


class Session(LateClient):
    """A consumer's client. `begun_again` is called when it begins again, after an earlier state was restored."""

    view: int

    def __init__(self, ensemble: Ensemble, view: int, begun_again: Callable[[], None]) -> None:
        super().__init__(ensemble, view)
        self.begun_again = begun_again
        self.away = False
        self.restored = ensemble.restored
        self.watches: dict[str, tuple[Callable[[WatchedEvent], None], int]] = {}

    @property
    def connected(self) -> bool:
        """It is not while its server has to see again what the session has seen: `catch_up` ends that."""
        return not self.away and not self.ensemble.away and self.restored == self.ensemble.restored

    @property
    def last_zxid(self) -> int:
        return self.view

    def sync_async(self, path: str) -> Result:
        self.view = self.ensemble.zxid
        return super().sync_async(path)

    def get_children_async(
        self, path: str, watch: Callable[[WatchedEvent], None] | None = None, include_data: bool = False
    ) -> Result:
        self._watch(path, watch)
        return super().get_children_async(path, watch, include_data)

    def get_async(self, path: str, watch: Callable[[WatchedEvent], None] | None = None) -> Result:
        self._watch(path, watch)
        return super().get_async(path, watch)

    def _watch(self, path: str, watch: Callable[[WatchedEvent], None] | None) -> None:
        if watch is not None and path in self.tree:
            self.watches[path] = (watch, self._stands(path))

    def catch_up(self, writes: int, watches_lost: bool) -> None:
        """The server sees up to so many more writes; watches fire, or are lost."""
        if self.restored != self.ensemble.restored:
            self.restored, self.view = self.ensemble.restored, self.ensemble.zxid
            self.watches.clear()
            self.begun_again()
        self.view = min(self.ensemble.zxid, self.view + writes)
        for path, watch in list(self._changed()):
            del self.watches[path]
            if not watches_lost:
                watch(WatchedEvent("CHANGED", "CONNECTED", path))

    def _changed(self) -> Iterator[tuple[str, Callable[[WatchedEvent], None]]]:
        for path, (watch, zxid) in self.watches.items():
            if zxid != self._stands(path):
                yield path, watch

    def _stands(self, path: str) -> int:
        """Return the write at which what is watched of a node stands: the list of topics, or an assignment."""
        node = self.tree.get(path)
        if node is None:
            return -1
        return node.pzxid if path == ROOT else node.mzxid
