"""A coordinator run over simulated edges: paused, asked to rebalance, with another assignor, with topics let go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator import coordinator as coordinating
from muster.coordinator.coordinator import Coordinator
from muster.core import wire
from muster.core.assignors import Assignor
from muster.core.deployment import Deployment
from muster.core.model import Consumer, State
from muster.core.overrides import (
    AssignorChoice,
    ConsumptionPause,
    Overrides,
    Pause,
    Pin,
    RebalanceRequest,
    TopicOverride,
)
from muster.edges.consul import ConsulError
from muster.settings.assignor_choice import load_in_force
from muster.settings.cluster_settings import ClusterSettings
from tests.support.runs import (
    Topics,
    coordinator,
    decide,
    run,
    settle,
    settled_world,
    state_of,
    subscribe,
    unsubscribe,
)
from tests.support.simulated import Node, SimulatedCluster

KAFKA = Topics(t=7, u=5)
SAID: dict[str, Any] = {"by": "ann", "at": 1_700_000_000.0, "why": "release"}
PAUSED = "paused by ann since 2023-11-14T22:13:20+00:00: release; resume the cluster to go on"


@pytest.fixture
def world() -> SimulatedCluster:
    world = settled_world()
    world.store.writes = 0
    return world


def decided(world: SimulatedCluster, **what: Any) -> None:
    world.decided = replace(world.decided, **what)


# Pause and resume


def test_paused_nothing_is_planned_or_written_and_every_part_says_why(world: SimulatedCluster) -> None:
    decided(world, paused=Pause(**SAID))
    world.consumers["b"].alive = False
    one = coordinator(world, Topics(t=9, u=5, v=3))
    assert one.fetch_partitions().held == PAUSED
    assert one.compute_assignment(5).woke == "end of the long poll"
    plan = one.compute_assignment()
    assert (plan.needed, plan.held) == (False, PAUSED)
    assert one.advance(60).held == PAUSED
    assert world.store.writes == 0
    decided(world, paused=None)
    run(world, Topics(t=9, u=5))
    assert "b" not in world.owners().values()
    assert world.owners().keys() == set(range(9))


def test_a_pause_takes_effect_in_the_middle_of_a_rebalance_and_a_resume_ends_it(
    world: SimulatedCluster,
) -> None:
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    assert state_of(world, "t") is State.CLOSING
    before = dict(world.store.nodes)
    decided(world, paused=Pause(**SAID))
    world.pause(1)
    assert coordinator(world, KAFKA).advance(60).held == PAUSED
    assert world.store.nodes == before
    decided(world, paused=None)
    settle(world, KAFKA, "sticky")
    assert "d" in world.owners().values()


# Rebalance now


def test_absent_consumer_is_waited_for_until_a_rebalance_is_requested(world: SimulatedCluster) -> None:
    world.consumers["b"].alive = False
    patient = {"rebalance_delay": 600}
    coordinator(world, KAFKA, settings=patient).advance(10)
    assert "b" in world.owners().values()
    decided(world, rebalance=RebalanceRequest(**SAID, modified=7))
    one = coordinator(world, KAFKA, settings=patient)
    assert one.compute_assignment(20).woke == "rebalance asked for by ann: release"
    assert one.compute_assignment().asked == "rebalance asked for by ann: release"
    report = one.advance(60)
    assert report.asked == "rebalance asked for by ann: release"
    assert report.stable
    assert "b" not in world.owners().values()
    assert world.decided.rebalance is None, "a request that was carried out is over"


def test_a_request_that_is_not_carried_out_yet_stands(world: SimulatedCluster) -> None:
    world.join("d")
    world.consumers["a"].answers = False
    decided(world, rebalance=RebalanceRequest(**SAID))
    report = coordinator(world, KAFKA).advance(5)
    assert (report.stable, report.asked) == (False, "")
    assert world.decided.rebalance is not None
    world.consumers["a"].answers = True
    settle(world, KAFKA, "sticky")
    assert world.decided.rebalance is None


def test_request_for_a_rebalance_moves_nothing_where_all_is_balanced_and_is_over(
    world: SimulatedCluster,
) -> None:
    decided(world, rebalance=RebalanceRequest(**SAID))
    one = coordinator(world, KAFKA)
    assert one.compute_assignment().needed
    report = one.advance(60)
    assert (report.changes, report.asked) == ([], "rebalance asked for by ann: release")
    assert world.store.writes == 0
    assert world.decided.rebalance is None
    assert not one.compute_assignment().needed


def test_failover_without_give_back_gives_back_on_request() -> None:
    world, topics = SimulatedCluster(), Topics(t=4)
    world.join("a", "b")
    world.attributes = {"a": Consumer("a", priority=9), "b": Consumer("b", priority=1)}
    settings = {"topics": ["t"], "assignor": {"name": "failover", "options": {"give_back": False}}}

    def go() -> list[str]:
        one = coordinator(world, topics, settings=settings)
        one.assignor = one._assignor(replace(world.decided, assignor=FAILOVER))
        one.fetch_partitions()
        return [move.reason for change in one.advance(60).changes for move in change.moves]

    go()
    world.consumers["a"].alive = False
    go()
    world.consumers["a"].alive = True
    world.pause(1)
    assert go() == []
    assert set(world.owners().values()) == {"b"}
    decided(world, rebalance=RebalanceRequest(**SAID))
    assert set(go()) == {"rebalance asked for by ann: release"}
    assert set(world.owners().values()) == {"a"}
    assert go() == []
    assert set(world.owners().values()) == {"a"}, "it stays when the request is over"


FAILOVER = AssignorChoice(**SAID, name="failover", options={"give_back": False})


# Another assignor


def test_a_chosen_assignor_overrides_the_settings_until_it_is_taken_back(world: SimulatedCluster) -> None:
    sticky = world.owners()
    decided(world, assignor=AssignorChoice(**SAID, name="range"))
    plan = coordinator(world, KAFKA).compute_assignment()
    assert plan.assignor == "assignor range by ann since 2023-11-14T22:13:20+00:00: release"
    coordinator(world, KAFKA).advance(60)
    by_range = world.owners()
    assert by_range != sticky
    world.store.nodes.clear()
    world.store.states.clear()
    decided(world, assignor=None)
    settle(world, KAFKA, "range")
    assert world.owners() == by_range


def test_assignor_chosen_in_mid_run_is_loaded_once(
    world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(cluster: ClusterSettings, overrides: Overrides) -> Assignor:
        loaded.append(overrides.assignor.name if overrides.assignor else "")
        return load_in_force(cluster, overrides)

    monkeypatch.setattr(coordinating, "load_in_force", load)
    one = coordinator(world, KAFKA)
    found = []
    for name in ("range", "round-robin"):
        decided(world, assignor=AssignorChoice(**SAID, name=name), rebalance=RebalanceRequest(**SAID))
        one.advance(60)
        found.append(world.owners())
    assert loaded == ["range", "round-robin"]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("what", "held"),
    [
        ({"assignor": AssignorChoice(**SAID, name="nonsense")}, "assignor 'nonsense' is unknown"),
        ({"assignor": AssignorChoice(**SAID, name="sticky", options={"x": 1})}, "wrong options"),
        ({"assignor": AssignorChoice(**SAID, name="antigravity.fly")}, "may not be chosen by hand"),
        ({"assignor_error": "Consul key k: holds b'x'"}, "Consul key k: holds b'x'"),
    ],
)
def test_a_choice_that_cannot_be_had_leaves_the_topics_as_they_are(
    world: SimulatedCluster, what: dict[str, Any], held: str
) -> None:
    decided(world, **what)
    before = world.owners()
    world.join("d")
    one = coordinator(world, KAFKA)
    assert held in one.compute_assignment().planning_error
    assert held in one.advance(60).planning_error
    assert world.owners() == before


# Topics that nobody subscribes to any more


def test_an_unsubscribed_topic_is_closed_by_its_owners_before_its_nodes_go(world: SimulatedCluster) -> None:
    world.consumers["a"].answers = False
    before = world.owners("t")
    unsubscribe(world, KAFKA)
    one = coordinator(world, KAFKA)
    assert one.compute_assignment(20).woke == "topic u: Stable -> closed and removed: unsubscribed by ann: r"
    assert one.compute_assignment().topics["u"] == "Stable -> Closing: unsubscribed by ann: r"
    report = one.advance(10)
    assert not report.stable
    assert any("no answer in time" in line for line in report.waiting)
    assert state_of(world, "u") is State.CLOSING
    assert set(world.owners("u").values()) == set()
    world.consumers["a"].answers = True
    world.now += 1_000
    steps = [(c.before, c.after, c.reason) for c in coordinator(world, KAFKA).advance(60).changes]
    assert steps == [
        (State.CLOSING, State.STABLE, "unsubscribed by ann: r"),
        (State.STABLE, State.INITIAL, "unsubscribed by ann: r"),
    ]
    assert "u" not in world.store.nodes
    assert not any(topic == "u" for c in world.consumers.values() for topic, _ in c.running)
    assert {p for p, owner in world.owners("t").items() if before[p] == owner} == set(range(7)), (
        "the other topic does not move"
    )


def test_a_topic_whose_epoch_is_ahead_of_the_clock_goes_and_comes_again(world: SimulatedCluster) -> None:
    node = world.store.nodes["u"]
    old = wire.parse_assignment(node.data, "u")
    assert old is not None
    ahead = int(world.now) + 86_400
    world.store.nodes["u"] = Node(wire.format_assignment(replace(old, epoch=ahead)), node.version + 1)
    unsubscribe(world, KAFKA)
    settle(world, KAFKA, "sticky")
    assert "u" not in world.store.nodes
    subscribe(world, KAFKA)
    settle(world, KAFKA, "sticky")


def test_topic_subscribed_again_while_closing_is_assigned_again(world: SimulatedCluster) -> None:
    unsubscribe(world, KAFKA)
    coordinator(world, KAFKA).advance(0)
    assert state_of(world, "u") is State.CLOSING
    subscribe(world, KAFKA)
    settle(world, KAFKA, "sticky")
    assert world.owners("u").keys() == set(range(5))


def test_a_topic_taken_out_of_the_settings_goes_the_same_way(world: SimulatedCluster) -> None:
    changes = coordinator(world, KAFKA, settings={"topics": ["t"]}).advance(60).changes
    assert {change.reason for change in changes} == {"no longer subscribed by name or pattern"}
    assert set(world.store.nodes) == {"t"}


def test_a_subscribed_topic_that_kafka_is_silent_about_stands(world: SimulatedCluster) -> None:
    by_pattern = {"topics": {"names": ["t"], "patterns": ["u.*"]}}
    report = coordinator(world, Topics(t=7), settings=by_pattern).fetch_partitions()
    [warning] = report.warnings
    assert "topic u is not in Kafka at k:9092" in warning
    assert "its last known partitions stand until cluster c is unsubscribed from it" in warning
    coordinator(world, Topics(t=7), settings=by_pattern).advance(60)
    assert world.owners("u").keys() == set(range(5))
    unsubscribe(world, KAFKA)
    gone = coordinator(world, Topics(t=7), settings=by_pattern)
    gone.advance(60)
    assert "u" not in world.store.nodes
    assert gone.fetch_partitions().warnings == []


def test_a_pattern_picks_up_new_topics_and_what_is_unsubscribed_is_not_taken_up(
    world: SimulatedCluster,
) -> None:
    pattern = TopicOverride(by="ann", at=1.0, why="r", selector="x-.*", pattern=True, subscribed=True)
    decided(world, subscriptions=(pattern,))
    decide(world, "x-3", subscribed=False)
    report = coordinator(world, Topics(t=7, u=5, **{"x-1": 2, "x-3": 2, "y": 1})).fetch_partitions()
    assert report.new_topics == ["x-1"]
    again = coordinator(world, Topics(t=7, u=5, **{"x-1": 3, "x-2": 1, "x-3": 2})).fetch_partitions()
    assert (again.new_topics, again.added) == (["x-2"], {"x-1": [2], "x-2": [0]})


def test_the_long_poll_ends_when_topics_are_subscribed(world: SimulatedCluster) -> None:
    one = coordinator(world, KAFKA)
    waits = iter(range(3))

    def wait(index: Any, timeout: float) -> Any:
        if timeout and next(waits) == 1:
            decide(world, "x", subscribed=True)
        world.now += min(timeout, 1.0)
        return index

    world.wait = wait  # type: ignore[method-assign]
    assert one.compute_assignment(20).woke == "topics were subscribed or unsubscribed"


def test_a_decision_on_topics_that_cannot_be_read_leaves_them_as_they_are(world: SimulatedCluster) -> None:
    decided(world, topics_in_doubt=True, errors=("Consul key k: rubbish",))
    one = coordinator(world, Topics(t=8, u=5, v=3), settings={"topics": {"patterns": ["t", "v"]}})
    report = one.fetch_partitions()
    assert (report.new_topics, report.added) == ([], {"t": [7]})
    after = one.advance(60)
    assert "u" in world.store.nodes
    assert "Consul key k: rubbish" in after.warnings


def test_topics_stay_while_no_consumer_is_live(world: SimulatedCluster) -> None:
    unsubscribe(world, KAFKA)
    for consumer in world.consumers.values():
        consumer.alive = False
    assert "no consumer is live" in coordinator(world, KAFKA).advance(60).held
    assert "u" in world.store.nodes


@pytest.mark.parametrize(("budget", "written"), [(0, ["t"]), (1, ["t", "u"])])
def test_held_run_goes_on_within_its_budget(
    world: SimulatedCluster, budget: float, written: list[str]
) -> None:
    for consumer in world.consumers.values():
        consumer.alive = False

    def pause(*topics: str) -> None:
        decided(world, consumption=tuple(ConsumptionPause(**SAID, topic=topic) for topic in topics))

    pause("t")
    report = coordinator(world, KAFKA).advance(budget, lambda _: pause("t", "u"))
    assert "no consumer is live" in report.held
    assert [change.topic for change in report.changes] == written


def test_a_pin_on_a_topic_that_leaves_is_no_impossible_one(world: SimulatedCluster) -> None:
    decided(world, pins={("u", 0): Pin("u", 0, "a", by="ann", at=1.0, why="r")})
    unsubscribe(world, KAFKA)
    assert coordinator(world, KAFKA).compute_assignment().warnings == []


def test_a_pin_to_a_consumer_that_is_leaving_is_a_warning_of_the_run(world: SimulatedCluster) -> None:
    pinned = next(p for p, owner in world.owners().items() if owner == "b")
    decided(world, pins={("t", pinned): Pin("t", pinned, "b", by="ann", at=1.0, why="r")})
    assert coordinator(world, KAFKA).compute_assignment().warnings == []
    world.attributes["b"] = Consumer("b", leaving=True)
    report = coordinator(world, KAFKA).compute_assignment()
    assert report.moves == sum(owner == "b" for topic in "tu" for owner in world.owners(topic).values())
    assert report.warnings == [
        f"topic 't', partition {pinned}: the pin to consumer 'b' cannot be obeyed: the consumer is leaving"
    ]


# Two deployments with the same keys in Consul


def at(world: SimulatedCluster, zookeeper: str) -> Coordinator:
    return replace(coordinator(world, KAFKA), deployment=Deployment.of(zookeeper, "c"))


def test_deployment_is_noted_once_a_minute_and_by_another_list_of_its_hosts(world: SimulatedCluster) -> None:
    at(world, "zk1:2181,zk2:2181").fetch_partitions()
    first = world.decided.deployment
    assert first == Deployment("zk1:2181,zk2:2181", "/consumers/c", at=world.now)
    world.now += 59
    at(world, "zk2,zk3").fetch_partitions()
    assert world.decided.deployment == first
    world.now += 1
    at(world, "zk2,zk3").fetch_partitions()
    assert world.decided.deployment == Deployment("zk2,zk3", "/consumers/c", at=world.now)


@pytest.mark.parametrize("other", ["zk1:2181/dev", "zk9:2181"])
def test_run_fails_naming_both_while_another_deployment_coordinates_the_cluster(
    world: SimulatedCluster, other: str
) -> None:
    at(world, "zk1:2181").fetch_partitions()
    world.store.writes = 0
    world.consumers["b"].alive = False
    one = at(world, other)
    for part in (one.fetch_partitions, one.compute_assignment, lambda: one.advance(60)):
        with pytest.raises(
            ConsulError, match=r"cluster c: .*ZooKeeper zk1:2181, /consumers/c,.*this one"
        ) as found:
            part()
        assert str(one.deployment) in str(found.value)
    assert world.store.writes == 0
    world.now += 300
    one.fetch_partitions()
    assert world.decided.deployment == replace(Deployment.of(other, "c"), at=world.now)
    with pytest.raises(ConsulError, match="another deployment"):
        at(world, "zk1:2181").compute_assignment()


def test_note_from_the_far_future_does_not_hold_a_deployment_up(world: SimulatedCluster) -> None:
    decided(world, deployment=Deployment("zk9:2181", "/consumers/c", at=world.now + 10_000))
    assert not at(world, "zk1:2181").fetch_partitions().held
