"""A coordinator run over simulated edges: what it holds still for, what it reports, what it writes."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.coordinator import FIRST_POLL, LAST_POLL, POLL_GROWTH, Coordinator, _some
from muster.coordinator.reports import ConsumersReport
from muster.coordinator.stuck import questions
from muster.core import wire
from muster.core.epochs import Noted
from muster.core.model import Consumer, State
from muster.core.moments import to_iso
from muster.core.offsets import TopicOffsets
from muster.core.overrides import Pause
from muster.core.subscription import TopicOverride
from muster.edges.consul import ConsulTooLargeError, Members, WaitIndex
from muster.edges.kafka import KafkaError
from muster.edges.status import StatusResult
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.connections import KafkaSettings
from tests.support.runs import Topics, coordinator, run, settle, settled_world, state_of
from tests.support.simulated import Node, SimulatedCluster, SimulatedOffsets


@pytest.fixture
def world() -> SimulatedCluster:
    world = settled_world()
    world.store.writes = 0
    return world


KAFKA = Topics(t=7, u=5)


def test_quiet_run_writes_nothing(world: SimulatedCluster) -> None:
    run(world, KAFKA)
    assert world.store.writes == 0
    assert coordinator(world, KAFKA).compute_assignment().needed is False


def test_rebalance_is_reported_step_by_step(world: SimulatedCluster) -> None:
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


def test_zookeeper_out_of_reach_writes_nothing(world: SimulatedCluster) -> None:
    world.consumers["b"].alive = False
    world.store.unreachable = True
    with pytest.raises(ZooKeeperError):
        coordinator(world, KAFKA).advance(60)
    world.store.unreachable = False
    assert world.store.writes == 0


def test_zookeeper_lost_in_mid_rebalance_what_is_closed_waits(world: SimulatedCluster) -> None:
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    world.store.unreachable = True
    world.now += 1
    with pytest.raises(ZooKeeperError):
        coordinator(world, KAFKA).advance(60)
    world.store.unreachable = False
    assert state_of(world, "t") is State.CLOSING
    settle(world, KAFKA, "sticky")


def test_doubtful_membership_is_the_status_quo(world: SimulatedCluster) -> None:
    world.consumers["b"].alive = False
    world.doubt = "Consul says there are none"
    one = coordinator(world, KAFKA)
    assert one.compute_assignment().held == "Consul says there are none"
    assert one.compute_assignment().needed is False
    assert one.advance(60).changes == []
    assert ConsumersReport.of(one.catalog.members()).trusted is False
    assert world.store.writes == 0


def test_assignment_stays_when_all_consumers_are_gone(world: SimulatedCluster) -> None:
    before = world.owners()
    for consumer in world.consumers.values():
        consumer.alive = False
    assert "no consumer is live" in coordinator(world, KAFKA).advance(60).held
    assert world.owners() == before


def test_kafka_out_of_reach_keeps_the_last_known_partitions(world: SimulatedCluster) -> None:
    class Away:
        def list_partitions(self) -> dict[str, frozenset[int]]:
            raise KafkaError("Kafka at k:9092 does not answer")

    one = coordinator(world, Topics())
    one.lister = Away()
    report = one.fetch_partitions()
    assert "last known partitions stand" in (report.kafka_error or "")
    assert world.store.partitions["t"] == set(range(7))
    assert world.store.writes == 0


def test_topic_gone_from_kafka_is_named_and_stands(world: SimulatedCluster) -> None:
    report = coordinator(world, Topics(t=7)).fetch_partitions()
    assert "topic u is not in Kafka at k:9092" in report.errors["u"]
    assert world.store.partitions["u"] == set(range(5))


def test_new_topic_waits_until_kafka_says_its_id(world: SimulatedCluster) -> None:
    kafka = Topics(t=7, u=5, v=3)
    kafka.ids["v"] = ""
    one = coordinator(world, kafka, settings={"topics": ["t", "u", "v"]})
    report = one.fetch_partitions()
    assert "topic v is not taken up, because Kafka at k:9092 does not say its id" in report.errors["v"]
    assert "v" not in world.store.nodes
    kafka.ids["v"] = "an-id"
    assert one.fetch_partitions().new_topics == ["v"]


def test_new_partitions_wake_the_long_poll(world: SimulatedCluster) -> None:
    report = coordinator(world, Topics(t=9, u=5)).fetch_partitions()
    assert report.added == {"t": [7, 8]}
    assert world.store.touched == 2, "once for the first topics, once for the new partitions"


def test_exception_of_the_wait_for_consul_is_raised(
    world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = coordinator(world, KAFKA)
    real = one.catalog.wait

    def wait(index: WaitIndex, timeout: float) -> WaitIndex:
        if timeout > 0:
            raise ValueError("anything that is no ConsulError")
        return real(index, timeout)

    monkeypatch.setattr(one.catalog, "wait", wait)
    with pytest.raises(ValueError, match="anything that is no ConsulError"):
        one.compute_assignment(20.0)


def test_topics_by_pattern_leave_out_internal_ones() -> None:
    world = SimulatedCluster()
    topics = Topics(flights=2, trains=2, __consumer_offsets=50)
    one = coordinator(world, topics, settings={"topics": {"patterns": [".*s"]}})
    assert one.fetch_partitions().new_topics == ["flights", "trains"]


def test_malformed_node_leaves_that_topic_alone(world: SimulatedCluster) -> None:
    world.store.nodes["t"] = Node(b"{not json", 99)
    world.consumers["b"].alive = False
    report = coordinator(world, KAFKA).advance(60)
    assert "ZooKeeper node /consumers/c/assignments/t is not an assignment" in report.errors["t"]
    assert {change.topic for change in report.changes} == {"u"}
    assert world.store.nodes["t"].data == b"{not json"


def test_unreachable_status_is_asked_again_and_never_given_away(world: SimulatedCluster) -> None:
    world.join("d")
    world.consumers["a"].answers = False
    report = coordinator(world, KAFKA, settings={"stuck_after": 10}).advance(60)
    assert not report.stable
    assert any("no answer in time" in line for line in report.waiting)
    (stuck,) = [message for message in report.stuck if "topic t" in message]
    assert "is Closing" in stuck
    assert "consumer a does not close partition" in stuck
    assert "isolate it ('muster isolate'" in stuck
    world.consumers["a"].answers = True
    settle(world, KAFKA, "sticky")


def test_touch_in_zookeeper_ends_the_wait(world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    over, watches = threading.Event(), list[threading.Event]()
    monkeypatch.setattr(world.store, "watch_changes", watches.append)

    def wait(index: WaitIndex, timeout: float) -> WaitIndex:
        if timeout:
            world.consumers["c"].alive = False
            watches[-1].set()
            assert over.wait(30)
        return index

    catalog: Any = SimpleNamespace(wait=wait, members=world.members)
    plan = replace(coordinator(world, KAFKA), catalog=catalog).compute_assignment(20)
    over.set()
    assert "consumer c left" in plan.woke


@pytest.mark.parametrize(("changes", "looks"), [(False, 1), (True, 2)])
def test_change_at_the_end_of_a_long_poll_is_looked_at(
    world: SimulatedCluster, changes: bool, looks: int
) -> None:
    looked = 0

    def wait(index: WaitIndex, timeout: float) -> WaitIndex:
        world.now += timeout
        if not (timeout and changes):
            return index
        world.consumers["c"].alive = False
        return replace(index, seen_health="another")

    def members() -> Members:
        nonlocal looked
        looked += 1
        return world.members()

    catalog: Any = SimpleNamespace(wait=wait, members=members)
    plan = replace(coordinator(world, KAFKA), catalog=catalog).compute_assignment(20)
    assert ("consumer c left" in plan.woke, plan.needed) == (changes, changes)
    assert (looked, plan.waited) == (looks, 20.0)


def test_changes_of_a_run_tell_the_steps_of_each_topic(world: SimulatedCluster) -> None:
    began, told = world.now, []
    lost = {p for p, owner in world.owners().items() if owner == "c"}
    world.consumers["c"].alive = False
    report = coordinator(world, KAFKA).advance(60, told.append)
    assert told == report.changes
    first, *between, last = [change for change in told if change.topic == "t"]
    assert (first.before, last.after) == (State.STABLE, State.STABLE)
    assert [each.before for each in (*between, last)] == [each.after for each in (first, *between)]
    assert first.reason == last.reason == "consumer c left"
    assert {move.partition for move in first.moves} == lost
    assert (first.lasted, last.lasted) == (0.0, pytest.approx(last.at - first.at, abs=0.001))
    assert began <= first.at < last.at <= world.now
    node = wire.parse_assignment(world.store.nodes["t"].data, "t")
    assert node is not None
    assert last.epoch == node.epoch > first.epoch - 1


def test_consumer_that_reported_is_not_asked_again_in_a_run(world: SimulatedCluster) -> None:
    world.consumers["a"].stuck = True
    world.consumers["c"].alive = False
    asked: Counter[str] = Counter()

    def poll(consumers: Iterable[Consumer], timeout: float, **more: Any) -> Mapping[str, StatusResult]:
        consumers = list(consumers)
        asked.update(consumer.id for consumer in consumers)
        return world.poll(consumers, timeout, **more)

    replace(coordinator(world, KAFKA), poll=poll).advance(60)
    assert asked["a"] > 10
    assert asked["b"] < 10


def test_answer_of_an_older_process_is_none(world: SimulatedCluster) -> None:
    world.join("d")
    world.attributes["a"] = Consumer("a", incarnation="two")
    before = {p for p, owner in world.owners().items() if owner == "a"}
    report = coordinator(world, KAFKA).advance(30)
    assert not report.stable
    assert any("incarnation one answers, which is not the registered one" in line for line in report.waiting)
    assert not {p for p, owner in world.owners().items() if owner == "d"} & before
    world.attributes["a"] = Consumer("a", incarnation="one")
    settle(world, KAFKA, "sticky")


def test_stuck_consumer_holds_up_only_its_own_partitions(world: SimulatedCluster) -> None:
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


def test_long_poll_ends_when_a_delay_runs_out(world: SimulatedCluster) -> None:
    world.consumers["b"].alive = False
    one = coordinator(world, KAFKA, settings={"rebalance_delay": 8})
    one.advance(1)
    began = world.now
    report = one.compute_assignment(20)
    assert "consumer b left" in report.woke
    assert world.now - began <= 8


class Bad:
    name = "my.bad.Assignor"

    def assign(self, topics: object, consumers: object, previous: object) -> dict[str, dict[int, str]]:
        return {"t": {0: "unknown"}}


def bad_coordinator(world: SimulatedCluster) -> Coordinator:
    one = coordinator(world, KAFKA, settings={"planning_error_delay": 60})
    one.assignor = Bad()  # type: ignore[assignment]
    return one


def test_bad_assignor_fails_the_run_and_moves_nothing(world: SimulatedCluster) -> None:
    before = world.owners()
    world.join("d")
    plan = bad_coordinator(world).compute_assignment()
    assert "my.bad.Assignor" in plan.planning_error
    assert any("my.bad.Assignor" in line for line in plan.trouble)
    assert not plan.needed
    report = bad_coordinator(world).advance(10)
    assert (report.changes, world.owners()) == ([], before)
    assert any("my.bad.Assignor" in line for line in report.trouble)


def test_bad_assignor_keeps_no_hand_over_from_ending(world: SimulatedCluster) -> None:
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    assert state_of(world, "t") is State.CLOSING
    bad_coordinator(world).advance(60)
    assert state_of(world, "t") is State.STABLE
    assert "d" in world.owners("t").values()


def test_bad_assignor_gives_a_leaving_consumer_nothing_that_is_on_its_way(world: SimulatedCluster) -> None:
    before = world.owners()
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    assert state_of(world, "t") is State.CLOSING
    world.attributes["d"] = Consumer("d", leaving=True)
    bad_coordinator(world).advance(60)
    assert state_of(world, "t") is State.STABLE
    after = world.owners()
    assert after.keys() == before.keys()
    assert "d" not in after.values()


def test_bad_assignor_leaves_a_leaving_consumer_what_it_runs(world: SimulatedCluster) -> None:
    before = world.owners()
    world.attributes["b"] = Consumer("b", leaving=True)
    bad_coordinator(world).advance(60)
    world.pause(61)
    bad_coordinator(world).advance(60)
    assert world.owners() == before


def test_bad_assignor_has_the_dead_replaced_after_a_delay(world: SimulatedCluster) -> None:
    before = world.owners()
    world.consumers["b"].alive = False
    bad_coordinator(world).advance(10)
    assert world.owners() == before
    world.pause(60)
    bad_coordinator(world).advance(60)
    after = world.owners()
    assert "b" not in after.values()
    assert {p: c for p, c in after.items() if before[p] != "b"} == {
        tp: c for tp, c in before.items() if c != "b"
    }


def test_advance_ends_at_its_budget_though_each_round_writes(world: SimulatedCluster) -> None:
    """A topic whose consumers never come to rest must not hold up the other topics' runs."""
    began = world.now
    one = coordinator(world, KAFKA)
    flips = itertools.cycle([["a"], []])

    def flip(seconds: float) -> None:
        world.now += max(seconds, 0.1)
        world.consumers["b"].alive = not next(flips)

    one.pause = flip
    one.advance(10)
    assert world.now - began < 12


def test_other_order_of_the_same_brokers_is_no_difference(world: SimulatedCluster) -> None:
    topics = Topics(t=7, u=5, new=1)
    settings = {"topics": ["t", "u", "new"]}
    for servers in ("k1:9092,k2:9092", "k2:9092, k1:9092,"):
        kafka = KafkaSettings(config={"bootstrap.servers": servers})
        one = replace(coordinator(world, topics, settings=settings), kafka_settings=kafka)
        assert "new" not in one.fetch_partitions().errors
    kafka = KafkaSettings(config={"bootstrap.servers": "k1:9092"})
    one = replace(coordinator(world, topics, settings=settings), kafka_settings=kafka)
    assert "is read at k1:9092,k2:9092 for group 'g'" in one.fetch_partitions().errors["new"]


@pytest.mark.parametrize("difference", [{"group_id": "other"}, {"kafka": "other:9092"}])
def test_changed_source_in_settings_is_named_and_changes_nothing(
    world: SimulatedCluster, difference: dict[str, str]
) -> None:
    before = dict(world.store.nodes)
    one = coordinator(
        world, Topics(t=9, u=5), settings={k: v for k, v in difference.items() if k == "group_id"}
    )
    if "kafka" in difference:
        one.kafka_settings = KafkaSettings(config={"bootstrap.servers": difference["kafka"]})
    report = one.fetch_partitions()
    for topic in ("t", "u"):
        assert "other" in report.errors[topic]
        assert "k:9092" in report.errors[topic]
        assert "unsubscribe" in report.errors[topic]
    assert world.store.nodes == before
    assert report.added == {}, "the partitions there are another Kafka's"


def test_recreated_topic_is_started_again_by_the_same_owners(world: SimulatedCluster) -> None:
    owners = world.owners("t")
    again = Topics(t=4, u=5)
    again.ids = {"t": "second", "u": "first"}
    first = coordinator(world, Topics(t=7, u=5))
    first.lister.ids = {"t": "first", "u": "first"}  # type: ignore[attr-defined]
    first.fetch_partitions()
    report = coordinator(world, again).fetch_partitions()
    assert report.recreated == ["t"]
    assert state_of(world, "t") is State.STARTING
    settle(world, again, "sticky")
    assignment = wire.parse_assignment(world.store.nodes["t"].data, "t")
    assert assignment is not None
    assert assignment.topic_id == "second"
    assert {p: owners[p] for p in range(4)} == world.owners("t")


def test_owner_that_fails_its_check_and_answers_keeps_its_partitions(world: SimulatedCluster) -> None:
    """An agent that restarts reports all its consumers as failing at first."""
    before = world.owners()
    world.failing = {"b", "c"}
    coordinator(world, KAFKA).advance(1)
    world.failing = {"c"}
    coordinator(world, KAFKA).advance(1)
    world.failing = set()
    settle(world, KAFKA, "sticky")
    assert world.owners() == before


def test_owner_that_refuses_connections_is_replaced_at_once(world: SimulatedCluster) -> None:
    world.consumers["b"].alive = False
    world.failing = {"b"}
    began = world.now
    coordinator(world, KAFKA).advance(60)
    assert "b" not in world.owners().values()
    assert world.now - began < 5


def test_most_owners_away_without_a_sign_are_doubted(world: SimulatedCluster) -> None:
    before = world.owners()
    for consumer in ("b", "c"):
        world.consumers[consumer].alive = False  # and Consul does not list them
    one = coordinator(world, KAFKA)
    one.advance(1)
    assert world.owners() == before
    world.pause(10)
    one.advance(60)
    assert set(world.owners().values()) == {"a"}


def test_isolated_consumer_that_answers_closes_before_others_start(world: SimulatedCluster) -> None:
    world.consumers["b"].stuck = True
    held = {p for p, owner in world.owners().items() if owner == "b"}
    world.isolated = {"b"}
    coordinator(world, KAFKA).advance(10)
    assert not held & world.owners().keys()
    world.consumers["b"].stuck = False
    coordinator(world, KAFKA).advance(60)
    assert "b" not in world.owners().values()
    assert held <= world.owners().keys()


def test_deleted_nodes_lead_to_no_double_owner(world: SimulatedCluster) -> None:
    for nodes in (world.store.nodes, world.store.states, world.store.partitions):
        nodes.pop("t")
    slow = world.consumers["a"]
    slow.stuck = True
    held = {p for topic, p in slow.running if topic == "t"}
    run(world, KAFKA)
    assert {world.owners().get(p, "a") for p in held} == {"a"}
    slow.stuck = False
    settle(world, KAFKA, "sticky")


def test_owner_that_stops_running_is_seen_in_stable(world: SimulatedCluster) -> None:
    stopped = ("t", next(p for p, owner in world.owners().items() if owner == "a"))
    world.consumers["a"].stuck = True
    world.consumers["a"].running.discard(stopped)
    world.consumers["a"].starting.add(stopped)
    plan = coordinator(world, KAFKA).compute_assignment(20)
    assert plan.needed
    coordinator(world, KAFKA).advance(1)
    assert state_of(world, stopped[0]) is State.STARTING
    world.consumers["a"].stuck = False
    settle(world, KAFKA, "sticky")


@pytest.mark.parametrize("ahead", [-3_600, 3_600])
def test_stuck_after_and_since_go_by_the_clock_of_zookeeper(world: SimulatedCluster, ahead: float) -> None:
    def other_worker() -> Coordinator:
        one = coordinator(world, KAFKA, settings={"stuck_after": 300, "advance_budget": 1})
        return replace(one, clock=lambda: world.now + ahead)

    world.join("d")
    world.consumers["a"].stuck = True
    other_worker().advance(1)
    state = wire.parse_state(world.store.states["t"].data, "t")
    assert state.state is not State.STABLE
    assert abs(state.since - world.now) < 10
    assert other_worker().compute_assignment().stuck == []
    world.pause(301)
    assert "longer than stuck_after" in " ".join(other_worker().compute_assignment().stuck)
    assert "longer than stuck_after" in " ".join(other_worker().advance(1).stuck)


def test_first_epoch_of_a_topic_is_by_the_clock_of_zookeeper(world: SimulatedCluster) -> None:
    one = coordinator(world, Topics(t=7, u=5, new=1), settings={"topics": ["t", "u", "new"]})
    replace(one, clock=lambda: 0.0).fetch_partitions()
    assert wire.parse_assignment(world.store.nodes["new"].data, "new").epoch == int(world.now)


def test_stalled_owner_is_stuck_with_its_own_errors(world: SimulatedCluster) -> None:
    partition = next(p for p, owner in world.owners().items() if owner == "a")
    world.stands(("t", partition), 400.0)
    world.consumers["a"].errors = ("query: partition 3 has no leader",)
    one = coordinator(world, KAFKA, settings={"stuck_after": 300})
    plan = one.compute_assignment(20)
    (message,) = plan.stuck
    assert plan.needed, "so that the run fails with it"
    assert "does not make progress" in message
    assert "no leader" in message
    assert one.advance(1).trouble == [message]
    assert [each.consumer for each in one.stuck()] == ["a"]


def test_run_warns_of_offsets_that_another_program_has_changed(world: SimulatedCluster) -> None:
    settle(world, KAFKA, "sticky")
    said = "offset t [3]: its committed offset was deleted from group 'g'"
    world.consumers["a"].errors = ("query: no", said)
    one = coordinator(world, KAFKA)
    assert one.compute_assignment(20).warnings == [f"consumer a: {said}"]
    report = one.advance(1)
    assert report.warnings == [f"consumer a: {said}"]
    assert report.trouble == []


def test_subscriptions_are_honoured(world: SimulatedCluster) -> None:
    world.attributes["a"] = Consumer("a", topics=frozenset({"u"}))
    settle(world, KAFKA, "sticky")
    assert "a" not in world.owners("t").values()
    assert "a" in world.owners("u").values()


def test_partition_stands_still_over_runs_and_is_named(world: SimulatedCluster) -> None:
    world.offsets = SimulatedOffsets({("t", 3): 7})
    one = partial(coordinator, world, KAFKA, settings={"stuck_after": 300})
    assert one().compute_assignment().stuck == []
    world.consumers[world.owners()[3]].errors = ("query: no leader",)
    world.pause(301)
    plan = one().compute_assignment()
    [message] = plan.stuck
    assert plan.needed, "so that the run fails with it"
    assert f"in partition(s) 3 since {to_iso(1_000_000)[:10]}" in message
    assert "query: no leader" in message
    assert one().advance(1).trouble == [message]
    world.offsets.records.clear()
    assert [one().compute_assignment().stuck for _ in (1, 2) if not world.pause(60)] == [[], []]


@pytest.mark.parametrize("why", ["no consumer is live", "doubt of the servers"])
def test_standstill_without_consumers_fails_the_run(world: SimulatedCluster, why: str) -> None:
    world.offsets = SimulatedOffsets({("t", 3): 7})
    one = partial(coordinator, world, KAFKA, settings={"stuck_after": 300})
    one().compute_assignment()
    if why.startswith("doubt"):
        world.doubt = why
    else:
        for consumer in world.consumers.values():
            consumer.alive = False
    assert one().compute_assignment().needed is False
    world.pause(301)
    assert one().compute_assignment().needed
    [message] = one().advance(1).trouble
    assert why in message
    [question] = questions(one())
    assert (question.consumer, question.topic, question.records) == ("", "t", ())
    assert why in question.body
    assert one().stands_still("t")
    assert not one().stands_still("u")


def test_paused_cluster_stands_still_without_failing_the_run(world: SimulatedCluster) -> None:
    world.stands(("t", 3), 400.0)
    world.decided = replace(world.decided, paused=Pause(by="ann", at=1.0, why="a release"))
    plan = coordinator(world, KAFKA, settings={"stuck_after": 300}).compute_assignment()
    assert (plan.needed, plan.stuck) == (False, [])
    assert any("partition(s) 3: paused by ann" in line for line in plan.warnings)


def test_partition_with_nothing_readable_left_is_not_named(world: SimulatedCluster) -> None:
    world.offsets = SimulatedOffsets({("t", 3): 7, ("t", 4): 7}, unreadable={("t", 3)})
    one = partial(coordinator, world, KAFKA, settings={"stuck_after": 300})
    messages: list[str] = []
    for _ in range(40):
        world.pause(20)
        messages += one().compute_assignment().stuck
    assert messages
    assert all("in partition(s) 4 since" in message for message in messages)


def test_kafka_out_of_reach_for_too_long_fails_the_run(world: SimulatedCluster) -> None:
    world.offsets = SimulatedOffsets({("t", 3): 7})
    one = partial(coordinator, world, KAFKA, settings={"stuck_after": 300})
    one().compute_assignment()
    world.offsets.away = True
    world.pause(299)
    assert one().compute_assignment().stuck == []
    world.pause(2)
    assert any("Kafka's offsets were not read since" in line for line in one().compute_assignment().stuck)
    world.offsets.away = False
    [message] = one().compute_assignment().stuck
    assert message.startswith("topic t makes no progress"), "what was unknown has not moved"


def test_offsets_that_were_never_read_are_named(world: SimulatedCluster) -> None:
    """As where Kafka lists its topics, and the brokers that lead them are out of reach."""
    world.offsets = SimulatedOffsets({("t", 3): 7}, away=True)
    one = partial(coordinator, world, KAFKA, settings={"stuck_after": 300})
    assert one().compute_assignment().stuck == []
    world.pause(301)
    [message] = one().compute_assignment().stuck
    assert message.startswith("Kafka's offsets were not read since ")


def too_small_for_u(world: SimulatedCluster) -> int:
    """Limit what ZooKeeper takes, so that a step of topic t fits and one of topic u does not; return the limit."""
    limit = 20_000
    session = world.store._session
    session.settings = session.settings.model_copy(update={"jute_maxbuffer": limit})
    return limit


def test_oversized_topic_is_named_and_others_go_on() -> None:
    world = SimulatedCluster()
    world.join(*(f"consumer-{n}-of-the-billing-department-eu-west-1" for n in range(3)))
    limit = too_small_for_u(world)
    topics = Topics(t=5, u=600)
    one = coordinator(world, topics)
    one.fetch_partitions()
    report = one.advance(60)
    assert report.errors.keys() == {"u"}
    for part in ("topic u with 600 partitions", f"{limit:,}", "Give the topic fewer partitions"):
        assert part in report.errors["u"]
    assert state_of(world, "t") is State.STABLE
    assert state_of(world, "u") is State.INITIAL
    assert world.decided.epochs.keys() == {"t", "u"}
    written = wire.parse_assignment(world.store.nodes["u"].data, "u")
    assert written is not None
    assert world.decided.epochs["u"].epoch == written.epoch, "no note is ahead of what was written"
    assert report.trouble


def test_stranger_is_named_and_topics_go_on(world: SimulatedCluster) -> None:
    world.strangers = {"running-1": "consumer running-1 is registered as one of cluster 'running'"}
    world.join("d")
    plan, report = coordinator(world, KAFKA).compute_assignment(), coordinator(world, KAFKA).advance(60)
    assert plan.errors == report.errors == world.strangers
    assert report.trouble == list(world.strangers.values())
    assert "d" in world.owners("t").values()


def test_unsubscribed_topic_leaves_the_noted_epochs(world: SimulatedCluster) -> None:
    world.decided = replace(
        world.decided,
        epochs={**world.decided.epochs, "never-removed-from-it": Noted(7)},
        subscriptions=(
            TopicOverride(by="ann", at=1.0, why="", selector="u", pattern=False, subscribed=False),
        ),
    )
    coordinator(world, KAFKA).advance(60)
    assert set(world.store.nodes) == {"t"}
    assert world.decided.epochs.keys() == {"t"}


def test_topics_with_notes_go_on_when_full(world: SimulatedCluster) -> None:
    known = dict(world.decided.epochs)
    take = world.note_epochs

    def note_epochs(epochs: Mapping[str, Noted]) -> None:
        if epochs.keys() - known.keys():
            raise ConsulTooLargeError("key muster/c/coordination/epochs was to hold 600,000 bytes")
        take(epochs)

    world.note_epochs = note_epochs  # type: ignore[method-assign]
    topics = Topics(t=7, u=5, v=2)
    one = coordinator(world, topics, settings={"topics": ["t", "u", "v"]})
    world.consumers["b"].alive = False
    one.fetch_partitions()
    report = one.advance(60)
    assert report.errors == {"v": "topic v: key muster/c/coordination/epochs was to hold 600,000 bytes"}
    assert set(world.owners("t").values()) == {"a", "c"}, "the others go on"
    assert state_of(world, "v") is State.INITIAL


@pytest.mark.parametrize(
    ("owners", "long_poll", "asked"), [(50, 1.0, 50), (600, 12.0, 60), (600, 6.0, 50), (600, 300.0, 600)]
)
def test_owners_of_a_large_cluster_are_asked_in_turns(owners: int, long_poll: float, asked: int) -> None:
    owned = {f"c{number}": {"t"} for number in range(owners)}
    found = _some(owned, long_poll)
    assert len(found) == asked
    assert found.items() <= owned.items()
    assert len(_some(owned, long_poll) | found) > asked or asked == owners, "others each time"


@pytest.mark.parametrize("takes", [0.0, 5.0])
def test_pauses_of_a_run_grow_until_something_changes(world: SimulatedCluster, takes: float) -> None:
    world.consumers["a"].stuck = True
    world.consumers["c"].alive = False
    pauses: list[float] = []

    def poll(*asked: Any, **more: Any) -> Mapping[str, StatusResult]:
        world.now += takes
        return world.poll(*asked, **more)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        world.consumers["b"].alive = len(pauses) < 20
        world.pause(seconds)

    replace(coordinator(world, KAFKA), poll=poll, pause=pause).advance(100)
    if takes:
        assert min(pauses) == takes, "a look that takes long is not made more often than every other moment"
        return
    assert (pauses[0], pauses[-1]) == (FIRST_POLL, LAST_POLL)
    for before, after in itertools.pairwise(pauses):
        assert after in (FIRST_POLL, pytest.approx(min(before * POLL_GROWTH, LAST_POLL)))
    assert pauses.count(FIRST_POLL) > 1, "after a change"


def test_offsets_are_read_again_once_the_last_look_is_old(world: SimulatedCluster) -> None:
    reads = 0

    class Counted(SimulatedOffsets):
        def read(self, *asked: Any) -> TopicOffsets:
            nonlocal reads
            reads += 1
            return super().read(*asked)

    world.offsets = Counted()
    one = coordinator(world, KAFKA, settings={"stuck_after": 50})
    found: list[int] = []
    for seconds in (0.0, 0.0, 9.5, 0.5, -3_600.0):
        world.now += seconds
        one.stands_still("t")
        found.append(reads)
    assert found == [1, 1, 1, 2, 3], "every fifth of stuck_after, and where the clock went back"
