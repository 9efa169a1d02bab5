"""The interrupted writes once more, with a real ZooKeeper holding what the dead coordinator left behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from muster.settings.connections import ZooKeeperSettings
from tests.support.runs import CHANGES, play
from tests.support.simulated import SimulatedStore


@pytest.fixture
def fresh(zookeeper: ZooKeeperSettings) -> Iterator[Callable[[], SimulatedStore]]:
    """Opens the store of a new cluster, which is closed at the end."""
    with ExitStack() as stores:
        yield lambda: stores.enter_context(SimulatedStore(zookeeper, f"c-{uuid.uuid4().hex}"))


@pytest.mark.parametrize("name", ["a consumer leaves", "one leaves, two join", "a topic is unsubscribed"])
def test_interrupted_write_leads_to_the_same_end(name: str, fresh: Callable[[], SimulatedStore]) -> None:
    changes = CHANGES[name]
    expected, writes, _ = play(changes, "sticky", None, fresh())
    assert writes > 1
    for number in range(1, writes + 1):
        for moment in ("kill_before", "kill_after"):
            owners, _, died = play(
                changes,
                "sticky",
                lambda world, m=moment, n=number: setattr(world.store, m, n),
                fresh(),
            )
            assert died == 1, f"the coordinator was to die at write {number}"
            assert owners == expected, f"{moment} {number} of {writes}"
