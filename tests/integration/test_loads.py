"""Loads from real status pages: what they say comes into the planning context, and a frozen one costs a second."""

from __future__ import annotations

import json
import socket
import time

from muster.coordinator.planning_context import LONGEST_ASKING, ContextReader
from muster.core.model import Consumer, TopicAssignment, TopicSnapshot
from muster.core.overrides import Overrides
from muster.edges.status import poll_statuses
from tests.support.http_pages import Page, Pages
from tests.support.simulated import SimulatedCluster


class ByLag:
    name = "by-lag"
    measure = "lag"

    def assign(self, topics, consumers, previous, *, loads=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError


def status(consumer: str, running: list[int], lags: dict[str, float]) -> bytes:
    topic = {
        "running": running,
        "starting": [],
        "closing": [],
        "offsets": {partition: {"lag": lag, "rate": 1.0} for partition, lag in lags.items()},
    }
    return json.dumps({"consumer": consumer, "incarnation": "i", "topics": {"t": topic, "u": topic}}).encode()


def snapshot(**owners: str) -> dict[str, TopicSnapshot]:
    held = {int(partition[1:]): owner for partition, owner in owners.items()}
    return {"t": TopicSnapshot("t", frozenset(held), TopicAssignment("k:9092", "g", held), 0)}


def test_loads_come_from_answering_consumers_with_a_warning_for_the_others() -> None:
    world = SimulatedCluster()
    reader = ContextReader(world.store, poll_statuses, world.clock, timeout=30.0)
    # Both tell of partition 1, as while it changes hands: the owner's word counts.
    one = Pages(lambda _: Page(status("one", [0], {"0": 7, "1": 99})))
    two = Pages(lambda _: Page(status("two", [1], {"1": 8, "2": 0})))
    with one, two, socket.create_server(("127.0.0.1", 0)) as frozen:
        live = {
            "one": Consumer("one", "127.0.0.1", one.port),
            "two": Consumer("two", "127.0.0.1", two.port),
            "ice": Consumer("ice", "127.0.0.1", frozen.getsockname()[1]),
        }
        began = time.monotonic()
        owned = snapshot(p0="one", p1="two", p2="one", p3="ice")
        context, warnings = reader.read(owned, live, ByLag(), Overrides())
        assert time.monotonic() - began < LONGEST_ASKING + 5
    assert context.loads == {"t": {0: 7.0, 1: 8.0, 2: 0.0}}, "only the topics that are planned"
    [warning] = warnings
    assert warning.startswith("the load of consumer ice is unknown: its status page")
