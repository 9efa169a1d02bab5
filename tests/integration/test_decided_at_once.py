"""A pin ends the coordinator's long poll: real Consul and ZooKeeper, no consumer to carry it out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from uuid import uuid4

import httpx
import pytest

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.opening import open_coordinator
from muster.core.model import Assignment, Consumer, State, TopicSnapshot, TopicState, Transition
from muster.edges.consul import ConsulCluster
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings


class Still:
    """Moves nothing but what is pinned, and what an exclusion takes from its owner."""

    name = "still"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        *,
        pins: Mapping[str, Mapping[int, str]] = MappingProxyType({}),
        exclusions: Mapping[str, frozenset[str]] = MappingProxyType({}),
    ) -> Assignment:
        assignment: dict[str, dict[int, str]] = {}
        for topic, partitions in topics.items():
            takers = [c for c in sorted(consumers) if topic not in exclusions.get(c, ())]
            assignment[topic] = {}
            for partition in partitions:
                owner = pins.get(topic, {}).get(partition) or previous[topic][partition]
                assignment[topic][partition] = owner if owner in takers else takers[0]
        return assignment


@pytest.fixture
def cluster() -> ClusterSettings:
    name = f"c{uuid4().hex[:12]}"
    return ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": f"{name}-service",
            "group_id": "g",
            "topics": ["t"],
            "consumers": {"handler": "a.b"},
            "assignor": f"{__name__}.Still",
        }
    )


@pytest.fixture
def coordinator(
    cluster: ClusterSettings, zookeeper: ZooKeeperSettings, consul: ConsulSettings
) -> Iterator[Coordinator]:
    """Topic `t` is Stable with consumer `one`; `two` has nothing."""
    url = f"http://{consul.host}:{consul.port}/v1/agent/service"
    for consumer in ("one", "two"):
        body = {"ID": f"{cluster.name}-{consumer}", "Name": cluster.consul_service}
        httpx.put(f"{url}/register", json=body, trust_env=False).raise_for_status()
    nowhere = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:9"}, operation_timeout=1.0)
    with open_coordinator(cluster, zookeeper, consul, nowhere) as opened:
        opened.store.create_topic("t", "k:9092", "g")
        opened.store.set_partitions("t", frozenset({0, 1}))
        before = opened.store.snapshots()["t"]
        assert isinstance(before, TopicSnapshot)
        assert before.assignment is not None
        owners = dict.fromkeys((0, 1), f"{cluster.name}-one")
        stable = Transition(
            before, replace(before.assignment, owners=owners), TopicState(State.STABLE, since=1.0)
        )
        assert opened.store.apply([stable]) == [True]
        yield opened
    for consumer in ("one", "two"):
        httpx.put(f"{url}/deregister/{cluster.name}-{consumer}", trust_env=False).raise_for_status()


Decide = Callable[[ConsulCluster, str], object]


@pytest.mark.parametrize(
    ("decide", "reason"),
    [
        (
            lambda discovery, name: discovery.overrides.pin(
                "t", 0, f"{name}-two", by="ann", why="cache", at=1.0
            ),
            "pinned to {name}-two by ann: cache",
        ),
        (
            lambda discovery, name: discovery.overrides.exclude(
                f"{name}-one", "t", by="ann", why="no GPU", at=1.0
            ),
            "{name}-one excluded from topic t by ann: no GPU",
        ),
        (
            lambda discovery, name: discovery.overrides.drain(
                f"{name}-one", by="ann", why="new kernel", at=1.0
            ),
            "{name}-one drained by ann: new kernel",
        ),
    ],
    ids=["pin", "exclusion", "drain"],
)
def test_a_decision_ends_the_long_poll_with_its_reason(
    coordinator: Coordinator, consul: ConsulSettings, decide: Decide, reason: str
) -> None:
    name = coordinator.cluster.name
    discovery = ConsulCluster(consul, name, coordinator.cluster.consul_service)
    timer = threading.Timer(1.0, decide, (discovery, name))
    began = time.monotonic()
    timer.start()
    report = coordinator.compute_assignment(60.0)
    took = time.monotonic() - began
    timer.join()
    assert report.woke == f"topic t: {reason.format(name=name)}"
    assert report.reasons == [reason.format(name=name)]
    assert 1.0 <= took < 30.0, "the long poll is a minute"
