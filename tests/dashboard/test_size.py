"""A large cluster, 1,000 topics x 100 partitions x 1,000 consumers: how much is read, and how much each answer holds.

Bytes and reads, not seconds: those are the machine's.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from muster.core.model import (
    Consumer,
    ConsumerDetails,
    ConsumerStatus,
    Membership,
    PartitionLoad,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
)
from muster.core.offsets import TopicOffsets
from muster.edges.consul import Members, Registration
from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import Dashboard, SimulatedSources

TOPICS, PARTITIONS, CONSUMERS = 1000, 100, 1000
NAMES = [f"topic-of-some-length-{n:04d}" for n in range(TOPICS)]
IDS = [f"consumer-of-the-cluster-{n:04d}" for n in range(CONSUMERS)]


def owner(topic: int, partition: int) -> str:
    """Dealt out in turn, which is the hardest to write down: neighbours never have the same owner."""
    return IDS[(topic * PARTITIONS + partition) % CONSUMERS]


class Large(SimulatedSources):
    """The readings of the large cluster, made once; everything runs, and every partition has lag and rate."""

    def __init__(self) -> None:
        super().__init__(SimulatedCluster())
        self.topics = {
            name: TopicSnapshot(
                name,
                frozenset(range(PARTITIONS)),
                TopicAssignment(
                    "kafka-1.example:9092", "group", {p: owner(t, p) for p in range(PARTITIONS)}, 7
                ),
                1,
                TopicState(State.STABLE, epoch=7, since=1000.0 + t, reason="consumer x left"),
                1,
            )
            for t, name in enumerate(NAMES)
        }
        held: dict[str, dict[str, set[int]]] = {c: {} for c in IDS}
        for t, name in enumerate(NAMES):
            for p in range(PARTITIONS):
                held[owner(t, p)].setdefault(name, set()).add(p)
        details = ConsumerDetails("host-1.example.com", "0.1.0", "running", 100.0, (), 12345678, 1234, 900.0)
        load = PartitionLoad(123456, 1234.5)
        self.statuses = {
            c: ConsumerStatus(
                c,
                "0f8fad5b-d9cb-469f-a165-70867728950e",
                {t: TopicStatus(frozenset(p), epoch=7, loads=dict.fromkeys(p, load)) for t, p in of.items()},
                epochs=True,
                details=details,
            )
            for c, of in held.items()
        }

    def snapshots(self) -> Mapping[str, TopicSnapshot]:
        self.reads["snapshots"] += 1
        return self.topics

    def members(self) -> Members:
        self.reads["members"] += 1
        registered = {c: Registration(c, "10.0.0.1", 8080, passing=True) for c in IDS}
        return Members(Membership({c: Consumer(c, "10.0.0.1", 8080, zone="eu-1a") for c in IDS}), registered)

    def poll(
        self,
        consumers: Iterable[Consumer],
        timeout: float,
        *,
        topics: Mapping[str, Collection[str]] | None = None,
    ) -> Mapping[str, Any]:
        self.reads["poll"] += 1
        return self.statuses

    def offsets(self, reads: Callable[[str], bool], groups: Mapping[str, str]) -> TopicOffsets:
        self.reads["offsets"] += 1
        assert all(map(reads, NAMES))
        assert len(groups) == TOPICS
        tps = [(topic, partition) for topic in NAMES for partition in range(PARTITIONS)]
        return TopicOffsets(
            dict.fromkeys(NAMES, frozenset(range(PARTITIONS))),
            ends=dict.fromkeys(tps, 1_234_567_890),
            beginnings=dict.fromkeys(tps, 0),
            committed=dict.fromkeys(tps, 1_234_444_434),
        )


READ_LATER = 503
"""Status while the very first reading is under way; each answer waits for it for some seconds."""


@pytest.fixture(scope="module")
def large() -> Dashboard:
    dashboard = Dashboard(SimulatedCluster(), {"topics": NAMES, "consumers": {"handler": "a.b", "count": 0}})
    dashboard.sources = Large()
    deadline = time.monotonic() + 120
    while dashboard.http.get("/api/clusters/c", headers={"X-User": "viewer"}).status_code == READ_LATER:
        assert time.monotonic() < deadline, "the first reading does not end"
    return dashboard


@pytest.mark.parametrize(
    ("path", "most", "most_zipped"),
    [
        ("", 2_000, 1_000),
        ("/c", 5_000, 2_000),
        ("/c/topics?limit=50&sort=lag&order=desc", 25_000, 4_000),
        (f"/c/topics/{NAMES[3]}", 10_000, 3_000),
        ("/c/consumers?limit=50&sort=state", 35_000, 4_000),
        (f"/c/consumers/{IDS[3]}", 25_000, 4_000),
    ],
)
def test_the_bytes_of_each_answer(large: Dashboard, path: str, most: int, most_zipped: int) -> None:
    answer = large.http.get(f"/api/clusters{path}", headers={"X-User": "viewer"})
    assert answer.status_code == 200
    zipped = len(gzip.compress(answer.content, 5))  # as Airflow's API server does it
    print(f"{path}: {len(answer.content)} bytes, {zipped} zipped")
    assert len(answer.content) < most
    assert zipped < most_zipped


def test_the_summary_is_of_everything_and_each_server_is_asked_once(large: Dashboard) -> None:
    (seen,) = large.get("")["clusters"]
    assert (seen["topics"], seen["partitions"]) == ({"Stable": TOPICS}, TOPICS * PARTITIONS)
    assert seen["partition_states"] == {"R": TOPICS * PARTITIONS}
    assert seen["consumers"]["live"] == CONSUMERS
    assert seen["lag"] == TOPICS * PARTITIONS * 123_456
    assert seen["health"] == "ok"
    rows = large.get("/c/consumers", offset=990, limit=50)
    assert (rows["total"], len(rows["consumers"]), rows["consumers"][0]["running"]) == (CONSUMERS, 10, 100)
    once = dict.fromkeys(("snapshots", "members", "overrides", "poll", "offsets", "history"), 1)
    assert large.sources.reads == once


def test_a_preview_is_cut_and_counts_everything(large: Dashboard) -> None:
    found = large.http.post(
        "/api/clusters/c/what-if",
        content=f'{{"without": ["{IDS[0]}"]}}',
        headers={"X-User": "viewer", "X-Muster-Request": "1", "Content-Type": "application/json"},
    )
    answer = found.json()
    assert answer["moved"] == 100
    assert len(found.content) < 40_000
    assert answer["share_count"] <= 101
