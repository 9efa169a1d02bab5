"""The commands against real Consul and ZooKeeper: what they write, and what they refuse with what there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from uuid import uuid4

import httpx
import pytest

from muster.commands.actions.consumers import drain, exclude, include, isolate, restore, undrain
from muster.commands.actions.consumption import pause_consumption, resume_consumption
from muster.commands.actions.pins import pin, unpin
from muster.commands.audit import carry_out, foreseen
from muster.commands.command import Actor, CommandError, parse_partitions
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore, make_client, start_client, stop_client
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, ZooKeeperSettings

ANN = Actor("ann", "has the cache", 1700000000.0)


@pytest.fixture
def cluster() -> ClusterSettings:
    name = f"c{uuid4().hex[:12]}"
    return ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": f"{name}-service",
            "group_id": "g",
            "topics": ["flights", "planned"],
            "consumers": {"handler": "a.b", "count": 2},
        }
    )


@pytest.fixture
def discovery(consul: ConsulSettings, cluster: ClusterSettings) -> ConsulCluster:
    return ConsulCluster(consul, cluster.name, cluster.consul_service)


@pytest.fixture
def store(zookeeper: ZooKeeperSettings, cluster: ClusterSettings) -> Iterator[TopicStore]:
    with TopicStore(zookeeper, cluster.name) as opened:
        opened.create_topic("flights", "k:9092", "g")
        opened.set_partitions("flights", frozenset(range(4)))
        yield opened


@pytest.fixture
def target(discovery: ConsulCluster, cluster: ClusterSettings, zookeeper: ZooKeeperSettings) -> Target:
    return Target(cluster, discovery, lambda: TopicStore(zookeeper, cluster.name, read_only=True))


@pytest.fixture
def one(cluster: ClusterSettings) -> str:
    return f"{cluster.name}-1"


def refused(said: str) -> AbstractContextManager[object]:
    return pytest.raises(CommandError, match=said)


def test_partitions_are_pinned_and_unpinned(
    target: Target, discovery: ConsulCluster, store: TopicStore, cluster: ClusterSettings, one: str
) -> None:
    given = {"topic": "flights", "partitions": "0-1,3", "consumer": one}
    outcome = carry_out(COMMANDS["pin"], target, ANN, given, "test")
    assert outcome.values == {
        "cluster": cluster.name,
        "topic": "flights",
        "partitions": "0-1,3",
        "consumer": one,
        "reason": "has the cache",
        "who": "ann",
        "at": 1700000000.0,
    }
    assert outcome.lines == (
        f"partition(s) 0-1,3 of topic flights are pinned to consumer {one} of cluster {cluster.name}: has the cache "
        "(by ann)",
        f"consumer {one} is not live now; the pin waits for it",
        "unpin takes it back",
    )
    pins = discovery.overrides.read().pins
    assert {key: (pin.consumer, pin.by, pin.why, pin.at) for key, pin in pins.items()} == {
        ("flights", p): (one, "ann", "has the cache", 1700000000.0) for p in (0, 1, 3)
    }
    other = pin(target, ANN, "flights", frozenset({3}), f"{cluster.name}-2")
    assert f"partition 3 was pinned to {one} by ann: has the cache before" in other.lines

    with refused(rf"partition\(s\) 2 of topic 'flights' .* pinned are: 0-1 to {one}; 3 to {cluster.name}-2"):
        unpin(target, ANN, "flights", parse_partitions("0-3"))
    assert len(discovery.overrides.read().pins) == 3, "nothing was written"
    unpin(target, ANN, "flights", parse_partitions("0-1,3"))
    assert discovery.overrides.read().pins == {}
    with refused("pinned are: none"):
        unpin(target, ANN, "nonsense", frozenset({0}))


def test_a_consumer_is_excluded_and_included(
    target: Target, discovery: ConsulCluster, store: TopicStore, cluster: ClusterSettings, one: str
) -> None:
    pin(target, ANN, "flights", frozenset({2}), one)
    outcome = exclude(target, Actor("bob", "no GPU", 5.0), one, "flights")
    assert (
        outcome.lines[0]
        == f"consumer {one} of cluster {cluster.name} is excluded from topic flights: no GPU (by bob)"
    )
    assert outcome.lines[1] == "its pins of partition(s) 2 cannot be obeyed meanwhile"
    entry = discovery.overrides.read().exclusions[one, "flights"]
    assert (entry.by, entry.why, entry.at) == ("bob", "no GPU", 5.0)
    with refused("already by bob: no GPU; include it first"):
        exclude(target, ANN, one, "flights")
    with refused(f"consumer {one} excluded from topic flights by bob: no GPU; include it first"):
        pin(target, ANN, "flights", frozenset({0}), one)
    with refused(f"is not excluded from topic 'planned'; excluded are: {one} from flights"):
        include(target, ANN, one, "planned")
    include(target, ANN, one, "flights")
    assert discovery.overrides.read().exclusions == {}
    exclude(target, ANN, one, "planned")
    assert discovery.overrides.read().excluded() == {one: {"planned"}}, (
        "configured, though not in ZooKeeper yet"
    )


def test_consumption_is_paused_and_resumed(
    target: Target, discovery: ConsulCluster, store: TopicStore, cluster: ClusterSettings
) -> None:
    given = {"topic": "flights", "partitions": "0-1"}
    outcome = carry_out(COMMANDS["pause-consumption"], target, ANN, given, "test")
    assert {key: outcome.values[key] for key in given} == given
    what = f"partition(s) 0-1 of topic flights of cluster {cluster.name}"
    assert outcome.lines[0] == f"consumption of {what} is paused: has the cache (by ann)"
    with refused("consumption of partition.s. 0 of topic flights paused by ann since 2023-11-14T22:13:20"):
        pause_consumption(target, ANN, "flights", frozenset({0}))
    pause_consumption(target, ANN, "flights", frozenset({1, 2}))
    pause_consumption(target, ANN, "flights", frozenset())
    assert pause_consumption(target, ANN, "", frozenset()).values == {}, (
        "the history has it under every topic"
    )
    found = discovery.overrides.read()
    assert {(each.topic, each.partition) for each in found.consumption} == {
        ("flights", 0),
        ("flights", 1),
        ("flights", 2),
        ("flights", None),
        ("", None),
    }
    assert (found.paused, found.errors) == (None, ()), "coordination goes on"
    still = resume_consumption(target, ANN, "", frozenset()).lines
    assert any("still paused: consumption of topic flights paused by ann" in line for line in still)
    with refused(
        r"of partition\(s\) 3 of topic flights is not paused by itself .*: partition\(s\) 0 of topic"
    ):
        resume_consumption(target, ANN, "flights", frozenset({2, 3}))
    resume_consumption(target, ANN, "flights", frozenset({0, 1, 2}))
    resume_consumption(target, ANN, "flights", frozenset())
    assert discovery.overrides.read().consumption == ()
    with refused("paused is that of: none"):
        resume_consumption(target, ANN, "", frozenset())
    with refused("name the topic as well"):
        pause_consumption(target, ANN, "", frozenset({1}))
    with refused(r"has no partition\(s\) 9"):
        pause_consumption(target, ANN, "flights", frozenset({9}))
    with refused("has no topic 'trains'"):
        pause_consumption(target, ANN, "trains", frozenset())


def test_preview_of_a_pause_needs_no_kafka(
    target: Target, discovery: ConsulCluster, store: TopicStore
) -> None:
    given = {"topic": "flights", "partitions": "1,3"}
    assert foreseen(COMMANDS["pause-consumption"], target, ANN, given).lines() == (
        "topic flights, partition 1: is paused",
        "topic flights, partition 3: is paused",
        "together 2 partition(s) are paused, 0 stay paused",
        f"how many records wait is unknown: cluster {target.cluster.name!r} has no connection to Kafka here",
    )
    discovery.overrides.pause(by="ann", why="r", at=0)
    seen = foreseen(COMMANDS["pause-consumption"], target, ANN, {"topic": "planned"})
    assert seen.lines() == (
        "together 0 partition(s) are paused, 0 stay paused",
        "coordination is paused by ann: r; this waits until it is resumed",
    )
    assert discovery.overrides.read().consumption == ()


def test_names_that_mean_nothing_are_refused_with_what_there_is(
    target: Target, discovery: ConsulCluster, store: TopicStore, cluster: ClusterSettings, one: str
) -> None:
    some = frozenset({0})
    with refused(r"no topic 'fligths' yet; its topics are: flights\. A topic is known once"):
        pin(target, ANN, "fligths", some, one)
    with refused(r"topic 'flights' has no partition\(s\) 4-5; it has 0-3"):
        pin(target, ANN, "flights", parse_partitions("3-5"), one)
    with refused(
        f"no consumer 'absent'; live are: none; registered in Consul are: none; configured are: {one}, "
        f"{cluster.name}-2"
    ):
        pin(target, ANN, "flights", some, "absent")
    with refused("no topic 'fligths'; its topics are: flights, planned"):
        exclude(target, ANN, one, "fligths")
    with refused("no consumer 'absent'"):
        exclude(target, ANN, "absent", "flights")
    with refused("no consumer 'absent'"):
        isolate(target, ANN, "absent")
    found = discovery.overrides.read()
    assert (found.pins, found.exclusions, discovery.overrides.isolated()) == ({}, {}, {})


def test_pin_refuses_topic_with_malformed_node(
    target: Target,
    discovery: ConsulCluster,
    store: TopicStore,
    cluster: ClusterSettings,
    one: str,
    zookeeper: ZooKeeperSettings,
) -> None:
    client = make_client(zookeeper)
    start_client(client, zookeeper)
    client.set(f"/consumers/{cluster.name}/assignments/flights", b"rubbish")
    stop_client(client, 5.0)
    with refused("the partitions of topic 'flights' are unknown: "):
        pin(target, ANN, "flights", frozenset({0}), one)


def test_pin_warns_of_live_consumer_without_subscription(
    target: Target,
    discovery: ConsulCluster,
    store: TopicStore,
    cluster: ClusterSettings,
    one: str,
    consul: ConsulSettings,
) -> None:
    httpx.put(
        f"http://{consul.host}:{consul.port}/v1/agent/service/register",
        json={"ID": one, "Name": cluster.consul_service, "Meta": {"topics": "planned"}},
        trust_env=False,
    ).raise_for_status()
    try:
        outcome = pin(target, ANN, "flights", frozenset({0}), one)
        assert (
            f"consumer {one} does not subscribe to topic flights; the pin waits until it does"
            in outcome.lines
        )
        discovery.overrides.isolate(one, "ann", "r", 1.0)
        outcome = pin(target, ANN, "flights", frozenset({0}), one)
        assert f"consumer {one} is isolated now; the pin waits for it" in outcome.lines
    finally:
        discovery.catalog.deregister(one)


def test_a_consumer_is_isolated_and_restored(
    target: Target, discovery: ConsulCluster, cluster: ClusterSettings, one: str
) -> None:
    outcome = carry_out(COMMANDS["isolate"], target, ANN, {"consumer": one}, "test")
    assert outcome.values == {
        "cluster": cluster.name,
        "consumer": one,
        "reason": "has the cache",
        "who": "ann",
        "at": 1700000000.0,
    }
    with refused("is isolated already by ann: has the cache; restore it first"):
        isolate(target, ANN, one)
    restore(target, ANN, one)
    assert discovery.overrides.isolated() == {}
    with refused("is not isolated; isolated are: none"):
        restore(target, ANN, one)


def test_a_consumer_is_drained_and_undrained(
    target: Target, discovery: ConsulCluster, store: TopicStore, cluster: ClusterSettings, one: str
) -> None:
    outcome = carry_out(COMMANDS["drain"], target, ANN, {"consumer": one}, "test")
    assert outcome.values == {
        "cluster": cluster.name,
        "consumer": one,
        "reason": "has the cache",
        "who": "ann",
        "at": 1700000000.0,
    }
    assert outcome.lines[0] == f"consumer {one} of cluster {cluster.name} is drained: has the cache (by ann)"
    assert outcome.lines[-1].startswith("no other consumer is live that is not drained")
    entry = discovery.overrides.read().drained[one]
    assert (entry.by, entry.why, entry.at) == ("ann", "has the cache", 1700000000.0)
    assert discovery.overrides.isolated() == {}
    with refused("is drained already by ann: has the cache; undrain it first"):
        drain(target, ANN, one)
    with refused("has no consumer 'absent'"):
        drain(target, ANN, "absent")
    undrain(target, ANN, one)
    assert discovery.overrides.read().drained == {}
    with refused("is not drained; drained are: none"):
        undrain(target, ANN, one)
