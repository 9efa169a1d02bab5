"""A store on a real ZooKeeper that dies at a write."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from muster.core import wire
from muster.core.model import TopicSnapshot, Transition
from muster.core.wire import WireError
from muster.edges.zookeeper import TopicStore
from tests.support.simulated import Node, SimulatedStore


class DyingStore(SimulatedStore):
    """The real store; the coordinator dies before or after its n-th write."""

    def __init__(self, store: TopicStore) -> None:
        super().__init__()
        self._store = store
        self.results: list[bool] = []
        del self.nodes, self.states, self.partitions  # from here on they come from ZooKeeper

    def __getattr__(self, name: str) -> Any:
        if name == "partitions":
            return {topic: set(read.partitions) for topic, read in self._read().items()}
        if name not in {"nodes", "states"}:
            raise AttributeError(name)
        found: dict[str, Node] = {}
        for topic, read in self._read().items():
            if name == "nodes" and read.assignment is not None:
                found[topic] = Node(wire.format_assignment(read.assignment), read.assignment_version)
            elif name == "states" and read.state is not None:
                found[topic] = Node(wire.format_state(read.state), read.state_version)
        return found

    def _read(self) -> dict[str, TopicSnapshot]:
        found = self._store.snapshots()
        assert all(isinstance(read, TopicSnapshot) for read in found.values())
        return {topic: read for topic, read in found.items() if isinstance(read, TopicSnapshot)}

    def snapshots(self) -> dict[str, TopicSnapshot | WireError]:
        return self._store.snapshots()

    def create_topic(
        self, topic: str, bootstrap_servers: str, group_id: str, epoch: int = 0, topic_id: str = ""
    ) -> bool:
        self._write(lambda: self._store.create_topic(topic, bootstrap_servers, group_id, epoch, topic_id))
        return True

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None = None
    ) -> None:
        self._write(lambda: self._store.set_partitions(topic, partitions, known))

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        if not transitions:
            return []
        self._write(lambda: setattr(self, "results", self._store.apply(transitions)))
        return self.results

    def remove_topic(self, topic: str, snapshot: TopicSnapshot, reason: str = "") -> bool:
        removed: list[bool] = []
        self._write(lambda: removed.append(self._store.remove_topic(topic, snapshot, reason)))
        return removed[0]

    def touch(self) -> None:
        self._store.touch()

    def watch_changes(self, event: threading.Event) -> None:
        self._store.watch_changes(event)

    def now(self) -> float:
        return self._store.now()
