"""What commands refuse of topics that share their state, against a real Consul and ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import httpx
import pytest

from muster.commands.actions.consumers import exclude
from muster.commands.actions.pins import pin
from muster.commands.actions.topics import unsubscribe
from muster.commands.command import Actor, CommandError
from muster.commands.target import Target
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, ZooKeeperSettings

ANN = Actor("ann", "a test", 1700000000.0)
Live = Callable[..., None]


@pytest.fixture
def cluster() -> ClusterSettings:
    name = f"c{uuid4().hex[:12]}"
    return ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": f"{name}-service",
            "group_id": "g",
            "topics": ["orders", "payments", "clicks"],
            "assignor": {"name": "co-partitioned", "options": {"groups": [["orders", "payments"]]}},
            "consumers": {"handler": "a.b", "count": 3, "state": [["orders", "payments"]]},
        }
    )


@pytest.fixture
def target(
    cluster: ClusterSettings, consul: ConsulSettings, zookeeper: ZooKeeperSettings
) -> Iterator[Target]:
    discovery = ConsulCluster(consul, cluster.name, cluster.consul_service)
    with TopicStore(zookeeper, cluster.name) as store:
        for topic in ("orders", "payments", "clicks"):
            store.create_topic(topic, "k:9092", "g")
            store.set_partitions(topic, frozenset(range(3)))
        yield Target(cluster, discovery, lambda: TopicStore(zookeeper, cluster.name, read_only=True))


@contextmanager
def registered(
    consul: ConsulSettings, cluster: ClusterSettings, consumer: str, topics: str
) -> Iterator[None]:
    """A consumer is live that subscribes to these topics ('': all)."""
    agent = f"http://{consul.host}:{consul.port}/v1/agent/service"
    meta = {"topics": topics} if topics else {}
    entry = {"ID": consumer, "Name": cluster.consul_service, "Address": "127.0.0.1", "Port": 1, "Meta": meta}
    httpx.put(f"{agent}/register", json=entry, trust_env=False).raise_for_status()
    try:
        yield
    finally:
        httpx.put(f"{agent}/deregister/{consumer}", trust_env=False)


@pytest.fixture
def live(consul: ConsulSettings, cluster: ClusterSettings) -> Iterator[Live]:
    with ExitStack() as stack:
        yield lambda number, topics="": stack.enter_context(
            registered(consul, cluster, f"{cluster.name}-{number}", topics)
        )


def refused(said: str) -> pytest.RaisesExc[CommandError]:
    return pytest.raises(CommandError, match=said)


def test_pin_that_would_split_a_shard_is_refused(target: Target, live: Live) -> None:
    one, two = f"{target.cluster.name}-1", f"{target.cluster.name}-2"
    live(1)
    live(2, "orders")
    with refused(f"shares its state with payments, to which consumer {two} does not subscribe"):
        pin(target, ANN, "orders", frozenset({0}), two)
    pin(target, ANN, "orders", frozenset({0}), one)
    with refused(
        f"'payments' shares its state with 'orders', of which partition 0 is pinned to {one} by ann"
    ):
        pin(target, ANN, "payments", frozenset({0}), f"{target.cluster.name}-3")
    pin(target, ANN, "payments", frozenset({0}), one)
    pin(target, ANN, "clicks", frozenset({0}), two)
    assert len(target.consul.overrides.read().pins) == 3


def test_exclusion_of_the_last_reader_is_refused(target: Target, live: Live) -> None:
    one, two = f"{target.cluster.name}-1", f"{target.cluster.name}-2"
    live(1)
    live(2)
    exclude(target, ANN, two, "orders")
    with refused(f"shares its state with orders, and without consumer {one} no live one takes all of them"):
        exclude(target, ANN, one, "payments")
    with refused(f"'payments' shares its state with 'orders', and consumer {two} excluded from topic orders"):
        pin(target, ANN, "payments", frozenset({1}), two)
    exclude(target, ANN, one, "clicks")


def test_one_of_the_topics_is_not_unsubscribed(target: Target) -> None:
    with refused("topic 'orders' shares its state with payments, of which nothing could be read without it"):
        unsubscribe(target, ANN, "orders", pattern=False)
    assert target.consul.overrides.read().subscriptions == ()
    unsubscribe(target, ANN, "clicks", pattern=False)
    unsubscribe(target, ANN, "orders|payments", pattern=True)
