"""The watcher of real standstills finds one that has no name, and takes what is out of reach for a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.cluster.reading import InConsul, Reading, SourceReading
from muster.cluster.state import ClusterState
from muster.core.model import Consumer, Membership, State, TopicAssignment, TopicSnapshot, TopicState
from muster.core.progress import Look, Mark
from muster.edges.consul import ConsulError, Members
from tests.support.runs import cluster
from tests.support.standstills import Standstills

SNAPSHOT = TopicSnapshot(
    "t", frozenset({0, 1}), TopicAssignment("k:9092", "g", {0: "a", 1: "a"}), 1, TopicState(State.STABLE), 1
)
READING = Reading(
    zookeeper=SourceReading({"t": SNAPSHOT}),
    consul=SourceReading(InConsul(Members(Membership({"a": Consumer("a")}), {}))),
    progress=SourceReading(Look(1_000.0, {("t", 0): Mark(5, 100)})),
)


@pytest.mark.parametrize(
    ("reading", "ends", "unnamed", "seen"),
    [
        (READING, {0: 9}, 0, 1),
        (READING, {0: 9, 1: 9}, 1, 2),
        (READING, {0: 5, 1: 5}, 0, 0),
        (replace(READING, progress=SourceReading(Look(1_000.0))), {0: 9}, 1, 1),
        (replace(READING, consul=SourceReading(error=ConsulError("away"))), {0: 9}, 0, 1),
        (replace(READING, progress=SourceReading(Look(100.0))), {0: 9}, 0, 1),
    ],
    ids=["named", "one is not", "read to the end", "no mark", "Consul away", "no look for long"],
)
def test_standstill_without_a_name_is_counted(
    reading: Reading, ends: dict[int, int], unnamed: int, seen: int
) -> None:
    state = ClusterState(cluster({"stuck_after": 300}), reading, 1_000.0)
    watched = Standstills("t", lambda: {0: 5, 1: 5}, lambda: ends, lambda: state, 80.0)
    for now in (900.0, 979.0, 981.0, 999.0):
        watched.look(now)
    assert (len(watched.unnamed), watched.seen) == (unnamed, seen)
