"""A standby is promoted through coordinator runs, with a real ZooKeeper holding what every run goes by."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from muster.coordinator.reports import Change
from muster.core.wire import assignment_path, state_path
from muster.settings.connections import ZooKeeperSettings
from tests.support.runs import Topics, begin, coordinator, settle
from tests.support.simulated import SimulatedCluster, SimulatedStore
from tests.support.standing_by import ONE_STANDBY


class Cluster:
    """A cluster whose nodes are read past all of Muster's code."""

    def __init__(self, store: SimulatedStore, raw: KazooClient, name: str) -> None:
        self.world = SimulatedCluster(store)
        self.topics = Topics()
        self.raw = raw
        self.name = name

    def node(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw.get(assignment_path(self.name, topic))[0])
        return found

    def versions(self, topic: str) -> tuple[int, int]:
        paths = assignment_path(self.name, topic), state_path(self.name, topic)
        assignment, state = (self.raw.get(path)[1].version for path in paths)
        return assignment, state


@pytest.fixture
def cluster(zookeeper: ZooKeeperSettings) -> Iterator[Cluster]:
    name = f"c-{uuid.uuid4().hex}"
    raw = KazooClient(hosts=zookeeper.hosts)
    raw.start()
    try:
        with SimulatedStore(zookeeper, name) as store:
            yield Cluster(store, raw, name)
    finally:
        raw.stop()
        raw.close()


def test_first_standby_is_promoted_when_the_owner_leaves(cluster: Cluster) -> None:
    begin(cluster.world, cluster.topics)
    settle(cluster.world, cluster.topics, ONE_STANDBY)
    before = {topic: cluster.node(topic) for topic in "tu"}
    assert before["t"].keys() == {
        *("bootstrap.servers", "group.id", "assignments", "epoch", "standbys", "topic.id", "protocol")
    }
    assert all(len(standbys) == 1 for standbys in before["t"]["standbys"].values())

    cluster.world.consumers["b"].alive = False
    promoted: dict[str, dict[str, str]] = {}

    def look(change: Change) -> None:
        """As soon as every partition of a topic is given again, before anything is balanced."""
        owners = cluster.node(change.topic)["assignments"]
        if owners.keys() == before[change.topic]["assignments"].keys():
            promoted.setdefault(change.topic, owners)

    one = coordinator(cluster.world, cluster.topics, ONE_STANDBY)
    report = one.advance(120, look)
    assert report.stable
    assert report.changes[0].reason == "consumer b left, a standby takes over"
    for topic in "tu":
        assert promoted[topic] == {
            partition: before[topic]["standbys"][partition][0] if owner == "b" else owner
            for partition, owner in before[topic]["assignments"].items()
        }
    settle(cluster.world, cluster.topics, ONE_STANDBY)
    after = cluster.node("t")
    for partition, standbys in after["standbys"].items():
        assert {after["assignments"][partition], *standbys} == {"a", "c"}


def test_a_change_of_standbys_alone_leaves_the_state_node_alone(cluster: Cluster) -> None:
    """The one that leaves owns nothing, so nothing moves, and the state node wakes no consumer."""
    cluster.world.join("a", "b", "c")
    cluster.topics.topics = {"t": 1}
    settle(cluster.world, cluster.topics, ONE_STANDBY)
    before, versions = cluster.node("t"), cluster.versions("t")
    assert (before["assignments"], before["standbys"]) == ({"0": "a"}, {"0": ["b"]})

    cluster.world.consumers["b"].alive = False
    report = coordinator(cluster.world, cluster.topics, ONE_STANDBY).advance(120)
    assert [change.reason for change in report.changes] == ["standbys changed"]
    assert cluster.node("t") == {**before, "standbys": {"0": ["c"]}}
    assert cluster.versions("t") == (versions[0] + 1, versions[1])
