"""The interrupted writes once more, with a real ZooKeeper holding what the dead coordinator left behind."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from muster.core import wire
from muster.core.model import TopicSnapshot, Transition
from muster.core.wire import WireError
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ZooKeeperSettings
from tests.unit.simulated import Node, SimulatedStore
from tests.unit.test_interrupted_writes import CHANGES, play


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


@pytest.fixture
def fresh(zookeeper: ZooKeeperSettings) -> Iterator[list[TopicStore]]:
    """A stack of stores, closed at the end."""
    stores: list[TopicStore] = []
    yield stores
    for store in stores:
        store.__exit__(None, None, None)


def open_store(zookeeper: ZooKeeperSettings, stores: list[TopicStore]) -> DyingStore:
    store = TopicStore(zookeeper, f"c-{uuid.uuid4().hex}")
    store.__enter__()
    stores.append(store)
    return DyingStore(store)


@pytest.mark.parametrize("name", ["a consumer leaves", "one leaves, two join", "a topic is unsubscribed"])
def test_same_end_from_every_interrupted_write(
    name: str, zookeeper: ZooKeeperSettings, fresh: list[TopicStore]
) -> None:
    changes = CHANGES[name]
    expected, writes, _ = play(changes, "sticky", None, open_store(zookeeper, fresh))
    assert writes > 1
    for number in range(1, writes + 1):
        for moment in ("kill_before", "kill_after"):
            owners, _, died = play(
                changes,
                "sticky",
                lambda world, m=moment, n=number: setattr(world.store, m, n),
                open_store(zookeeper, fresh),
            )
            assert died == 1, f"the coordinator was to die at write {number}"
            assert owners == expected, f"{moment} {number} of {writes}"
