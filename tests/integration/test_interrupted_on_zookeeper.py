"""The interrupted writes once more, with a real ZooKeeper holding what the dead coordinator left behind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ZooKeeperSettings
from tests.support.dying_store import DyingStore
from tests.support.runs import CHANGES, play


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
