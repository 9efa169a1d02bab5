"""A coordinator run over simulated edges: what it holds still for, what it reports, what it writes."""

from __future__ import annotations

import pytest

from muster.core.model import Consumer, State
from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from tests.unit.simulated import Node, World
from tests.unit.test_interrupted_writes import Topics, begin, coordinator, run, settle, state_of


@pytest.fixture
def world() -> World:
    world, topics = World(), Topics()
    begin(world, topics)
    settle(world, topics, "sticky")
    world.store.writes = 0
    return world


KAFKA = Topics(t=7, u=5)


def test_quiet_run_writes_nothing(world: World) -> None:
    run(world, KAFKA)
    assert world.store.writes == 0
    assert coordinator(world, KAFKA).compute_assignment().needed is False


def test_rebalance_is_reported_step_by_step(world: World) -> None:
    world.consumers["b"].alive = False
    one = coordinator(world, KAFKA)
    plan = one.compute_assignment()
    assert plan.needed
    assert plan.reasons == ["consumer b left"]
    assert plan.moves == 4
    seen = []
    report = one.advance(60, seen.append)
    assert report.stable
    assert report.changes == seen
    assert [(c.topic, c.before, c.after) for c in seen if c.topic == "t"] == [
        ("t", State.STABLE, State.CLOSING),
        ("t", State.CLOSING, State.STARTING),
        ("t", State.STARTING, State.STABLE),
    ]
    first = seen[0].as_dict()
    assert first["reason"] == "consumer b left"
    assert all(move["from"] == "b" and move["to"] in {"a", "c"} for move in first["moves"])


def test_zookeeper_out_of_reach_writes_nothing(world: World) -> None:
    world.consumers["b"].alive = False
    world.store.unreachable = True
    with pytest.raises(ZooKeeperError):
        coordinator(world, KAFKA).advance(60)
    world.store.unreachable = False
    assert world.store.writes == 0


def test_zookeeper_lost_in_mid_rebalance_what_is_closed_waits(world: World) -> None:
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    world.store.unreachable = True
    world.now += 1
    with pytest.raises(ZooKeeperError):
        coordinator(world, KAFKA).advance(60)
    world.store.unreachable = False
    assert state_of(world, "t") is State.CLOSING
    settle(world, KAFKA, "sticky")


def test_doubtful_membership_is_the_status_quo(world: World) -> None:
    world.consumers["b"].alive = False
    world.doubt = "Consul says there are none"
    one = coordinator(world, KAFKA)
    assert one.compute_assignment().held == "Consul says there are none"
    assert one.compute_assignment().needed is False
    assert one.advance(60).changes == []
    assert one.fetch_consumers().trusted is False
    assert world.store.writes == 0


def test_all_gone_is_the_status_quo(world: World) -> None:
    before = world.owners()
    for consumer in world.consumers.values():
        consumer.alive = False
    assert "no consumer is live" in coordinator(world, KAFKA).advance(60).held
    assert world.owners() == before


def test_kafka_out_of_reach_keeps_the_last_known_partitions(world: World) -> None:
    class Away:
        def list_partitions(self) -> dict[str, frozenset[int]]:
            raise KafkaError("Kafka at k:9092 does not answer")

    one = coordinator(world, Topics())
    one.lister = Away()
    report = one.fetch_partitions()
    assert "last known partitions stand" in (report.kafka_error or "")
    assert world.store.partitions["t"] == set(range(7))
    assert world.store.writes == 0


def test_topic_gone_from_kafka_is_named_and_stands(world: World) -> None:
    report = coordinator(world, Topics(t=7)).fetch_partitions()
    assert "topic u is not in Kafka at k:9092" in report.errors["u"]
    assert world.store.partitions["u"] == set(range(5))


def test_new_partitions_wake_the_long_poll(world: World) -> None:
    report = coordinator(world, Topics(t=9, u=5)).fetch_partitions()
    assert report.added == {"t": [7, 8]}
    assert world.store.touched == 2, "once for the first topics, once for the new partitions"


def test_topics_by_pattern_leave_out_internal_ones() -> None:
    world = World()
    topics = Topics(flights=2, trains=2, __consumer_offsets=50)
    one = coordinator(world, topics, settings={"topics": {"patterns": [".*s"]}})
    assert one.fetch_partitions().new_topics == ["flights", "trains"]


def test_rubbish_in_a_node_leaves_that_topic_alone(world: World) -> None:
    world.store.nodes["t"] = Node(b"{not json", 99)
    world.consumers["b"].alive = False
    report = coordinator(world, KAFKA).advance(60)
    assert "ZooKeeper node t is not an assignment" in report.errors["t"]
    assert {change.topic for change in report.changes} == {"u"}
    assert world.store.nodes["t"].data == b"{not json"


def test_unreachable_status_is_asked_again_and_never_given_away(world: World) -> None:
    world.join("d")
    world.consumers["a"].answers = False
    report = coordinator(world, KAFKA, settings={"stuck_after": 10}).advance(60)
    assert not report.stable
    assert any("connection refused" in line for line in report.waiting)
    (stuck,) = [message for message in report.stuck if "topic t" in message]
    assert "is Closing" in stuck
    assert "consumer a does not close partition" in stuck
    assert "muster_isolate" in stuck
    world.consumers["a"].answers = True
    settle(world, KAFKA, "sticky")


def test_answer_of_an_older_process_is_none(world: World) -> None:
    world.join("d")
    world.attributes["a"] = Consumer("a", incarnation="two")
    before = {p for p, owner in world.owners().items() if owner == "a"}
    report = coordinator(world, KAFKA).advance(30)
    assert not report.stable
    assert any("incarnation one answers, which is not the registered one" in line for line in report.waiting)
    assert not {p for p, owner in world.owners().items() if owner == "d"} & before
    world.attributes["a"] = Consumer("a", incarnation="one")
    settle(world, KAFKA, "sticky")


def test_one_stuck_consumer_holds_up_only_its_own_partitions(world: World) -> None:
    world.join("d", "e", "f")
    world.consumers["a"].stuck = True
    mine = {p for p, owner in world.owners().items() if owner == "a"}
    coordinator(world, KAFKA).advance(30)
    moved = {p for p, owner in world.owners().items() if owner in {"d", "e", "f"}}
    assert moved
    assert not moved & mine
    world.isolated.add("a")
    world.consumers["a"].alive = False
    settle(world, KAFKA, "sticky")


def test_long_poll_ends_when_a_delay_runs_out(world: World) -> None:
    world.consumers["b"].alive = False
    one = coordinator(world, KAFKA, settings={"rebalance_delay": 8})
    one.advance(1)
    began = world.now
    report = one.compute_assignment(20)
    assert "consumer b left" in report.woke
    assert world.now - began <= 8


def test_bad_assignor_leaves_the_topics_as_they_are(world: World) -> None:
    class Bad:
        name = "my.bad.Assignor"

        def assign(self, topics: object, consumers: object, previous: object) -> dict[str, dict[int, str]]:
            return {"t": {0: "nobody"}}

    before = world.owners()
    world.consumers["b"].alive = False
    one = coordinator(world, KAFKA)
    one.assignor = Bad()  # type: ignore[assignment]
    assert "my.bad.Assignor" in one.compute_assignment().held
    assert one.advance(10).changes == []
    assert world.owners() == before


def test_subscriptions_are_honoured(world: World) -> None:
    world.attributes["a"] = Consumer("a", topics=frozenset({"u"}))
    settle(world, KAFKA, "sticky")
    assert "a" not in world.owners("t").values()
    assert "a" in world.owners("u").values()
