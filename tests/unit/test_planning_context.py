"""A coordinator run over simulated edges: what people decided and what was measured comes into the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.planning_context import LOADS_LAST
from muster.core.assignors import load_assignor
from muster.core.model import Assignment, Consumer, State
from muster.core.overrides import Drain, Exclusion, Overrides, Pin
from muster.edges.kafka import KafkaError
from tests.support.runs import Topics, coordinator, run, settled_world, state_of
from tests.support.simulated import Node, SimulatedCluster

KAFKA = Topics(t=7, u=5)


class Obedient:
    """Leaves everything where it is but what a person decided. Keeps what it was given."""

    name = "obedient"
    measure = "rate"

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        *,
        pins: Mapping[str, Mapping[int, str]],
        exclusions: Mapping[str, frozenset[str]],
        racks: Mapping[str, Mapping[int, str]],
        loads: Mapping[str, Mapping[int, float]],
    ) -> Assignment:
        self.told = {"pins": pins, "exclusions": exclusions, "racks": racks, "loads": loads}
        assignment: dict[str, dict[int, str]] = {}
        for topic, partitions in topics.items():
            takers = [
                c
                for c in sorted(consumers)
                if topic not in exclusions.get(c, ()) and consumers[c].subscribes(topic)
            ]
            if not takers:
                continue
            assignment[topic] = {}
            for partition in partitions:
                wanted = pins.get(topic, {}).get(partition) or previous.get(topic, {}).get(partition, "")
                assignment[topic][partition] = wanted if wanted in takers else takers[partition % len(takers)]
        return assignment


@pytest.fixture
def world() -> SimulatedCluster:
    return settled_world()


@pytest.fixture
def assignor() -> Obedient:
    return Obedient()


@pytest.fixture
def one(world: SimulatedCluster, assignor: Obedient) -> Coordinator:
    made = coordinator(world, KAFKA)
    made.assignor = assignor
    return made


def elsewhere(world: SimulatedCluster, topic: str, partition: int) -> str:
    """A live consumer that does not have this partition."""
    return next(c for c in sorted(world.consumers) if c != world.owners(topic)[partition])


def pinned(consumer: str, topic: str = "t", partition: int = 0) -> Overrides:
    return Overrides(
        pins={(topic, partition): Pin(topic, partition, consumer, by="ann", at=1.0, why="has the cache")}
    )


def excluded(consumer: str, topic: str) -> Overrides:
    return Overrides(
        exclusions={(consumer, topic): Exclusion(consumer, topic, by="bob", at=1.0, why="no GPU")}
    )


def drained(*consumers: str) -> Overrides:
    return Overrides(drained={c: Drain(c, by="ann", at=1.0, why="new kernel") for c in consumers})


def test_a_pin_is_planned_carried_out_and_named_as_the_reason(
    world: SimulatedCluster, one: Coordinator, assignor: Obedient
) -> None:
    target = elsewhere(world, "t", 0)
    before = world.owners("t")
    world.decided = pinned(target)
    assert one.compute_assignment(30).woke == f"topic t: pinned to {target} by ann: has the cache"
    plan = one.compute_assignment()
    assert (plan.needed, plan.moves, plan.warnings) == (True, 1, [])
    assert plan.reasons == [f"pinned to {target} by ann: has the cache"]
    assert assignor.told["pins"] == {"t": {0: target}}
    report = one.advance(60)
    assert report.stable
    assert report.changes[0].moves[0].reason == f"pinned to {target} by ann: has the cache"
    assert world.owners("t") == before | {0: target}
    world.decided = Overrides()
    assert not one.compute_assignment().needed, "what was pinned stays where it is"


def test_an_exclusion_moves_what_it_is_about_and_says_so(world: SimulatedCluster, one: Coordinator) -> None:
    consumer = world.owners("t")[0]
    others = world.owners("u")
    world.decided = excluded(consumer, "t")
    plan = one.compute_assignment()
    assert plan.reasons == [f"{consumer} excluded from topic t by bob: no GPU"]
    assert one.advance(60).stable
    assert consumer not in world.owners("t").values()
    assert world.owners("u") == others


def test_a_drained_consumer_hands_over_in_order_and_gets_nothing(
    world: SimulatedCluster, one: Coordinator
) -> None:
    consumer = world.owners("t")[0]
    kept = {topic: {p: c for p, c in world.owners(topic).items() if c != consumer} for topic in ("t", "u")}
    mine = {p for p, c in world.owners("t").items() if c == consumer}
    world.decided = drained(consumer)
    plan = one.compute_assignment()
    assert (plan.reasons, plan.warnings) == ([f"{consumer} drained by ann: new kernel"], [])
    world.consumers[consumer].stuck = True
    one.advance(0)
    assert state_of(world, "t") is State.CLOSING
    assert world.owners("t").keys().isdisjoint(mine), "what is not closed yet goes to no other consumer"
    world.consumers[consumer].stuck = False
    assert one.advance(60).stable
    for topic in ("t", "u"):
        assert consumer not in world.owners(topic).values()
        assert kept[topic].items() <= world.owners(topic).items(), "what stays is not touched"
    membership = world.members().membership
    assert membership is not None
    assert consumer in membership.live
    assert not one.compute_assignment().needed
    world.decided = Overrides()
    one.assignor = load_assignor("sticky", {})
    assert one.advance(60).stable
    assert consumer in world.owners("t").values(), "it has its share again"


def test_a_drain_where_no_other_consumer_takes_over_is_a_warning(
    world: SimulatedCluster, one: Coordinator
) -> None:
    owners = world.owners("t")
    world.decided = drained(*world.consumers)
    plan = one.compute_assignment()
    assert not plan.needed
    assert any("drained by ann: new kernel, but keeps" in warning for warning in plan.warnings)
    assert one.advance(5).changes == []
    assert world.owners("t") == owners


def test_a_pin_to_a_drained_consumer_waits(world: SimulatedCluster, one: Coordinator) -> None:
    target = elsewhere(world, "t", 0)
    world.decided = Overrides(pinned(target).pins, drained=drained(target).drained)
    plan = one.compute_assignment()
    assert any("cannot be obeyed: the consumer is drained" in warning for warning in plan.warnings)
    assert one.advance(60).stable
    assert world.owners("t")[0] != target
    world.decided = pinned(target)
    assert one.advance(60).stable
    assert world.owners("t")[0] == target


def test_decisions_wait_while_the_topic_is_in_the_middle_of_a_rebalance(
    world: SimulatedCluster, one: Coordinator
) -> None:
    first, second = world.owners("t")[0], elsewhere(world, "t", 0)
    world.decided = pinned(second)
    world.consumers[first].stuck = True
    one.advance(0)
    assert state_of(world, "t") is State.CLOSING
    world.decided = pinned(first)
    one.advance(1)
    assert state_of(world, "t") is State.CLOSING
    world.consumers[first].stuck = False
    one.advance(60)
    assert world.owners("t")[0] == first


def test_pins_that_cannot_be_obeyed_and_keys_that_cannot_be_read_are_warnings(
    world: SimulatedCluster, one: Coordinator
) -> None:
    world.decided = Overrides(
        pins={
            ("t", 0): Pin("t", 0, "nobody", by="ann", at=1.0, why="typo"),
            ("t", 99): Pin("t", 99, "a", by="ann", at=1.0, why="typo"),
        },
        errors=("Consul key muster/c/pinned/t/x: partition 'x'",),
    )
    plan = one.compute_assignment()
    assert not plan.needed
    assert plan.errors == {}
    key, consumer, partition = plan.warnings
    assert key == "Consul key muster/c/pinned/t/x: partition 'x'"
    assert "the pin to consumer 'nobody' cannot be obeyed: the consumer is not live" in consumer
    assert "topic 't', partition 99" in partition
    assert "there is no such partition" in partition
    assert one.advance(0).warnings == plan.warnings == one.advance(0).as_dict()["warnings"]


def test_exclusion_without_a_replacement_is_a_warning(world: SimulatedCluster, one: Coordinator) -> None:
    for consumer in world.consumers:
        world.attributes[consumer] = Consumer(consumer, topics=frozenset({"u"}))
    world.decided = excluded("a", "t")
    owners = world.owners("t")
    plan = one.compute_assignment()
    assert not plan.needed
    [warning] = plan.warnings
    assert "consumer a excluded from topic t by bob: no GPU, but keeps" in warning
    assert one.advance(5).changes == []
    assert world.owners("t") == owners


def test_loads_are_asked_of_all_consumers_once_and_used_again_for_a_while(
    world: SimulatedCluster, one: Coordinator, assignor: Obedient
) -> None:
    asked: list[list[str]] = []
    poll = world.poll

    def counting(consumers: Any, timeout: float) -> Any:
        found = list(consumers)
        asked.append([c.id for c in found])
        return poll(found, timeout)

    one.contexts._poll = counting
    for consumer in world.consumers.values():
        consumer.rates = dict.fromkeys(consumer.running, 1.5)
    one.compute_assignment()
    assert asked == [["a", "b", "c"]]
    assert assignor.told["loads"] == {"t": dict.fromkeys(range(7), 1.5), "u": dict.fromkeys(range(5), 1.5)}
    world.now += LOADS_LAST - 1
    one.compute_assignment()
    assert len(asked) == 1
    world.now += 1
    one.compute_assignment()
    assert len(asked) == 2


def test_an_unknown_load_stays_unknown(world: SimulatedCluster, one: Coordinator, assignor: Obedient) -> None:
    owner = world.owners("t")[0]
    for consumer in world.consumers.values():
        consumer.rates = dict.fromkeys(consumer.running, 1.0)
    world.consumers[owner].answers = False
    plan = one.compute_assignment()
    assert plan.warnings == [f"the load of consumer {owner} is unknown: no answer in time"]
    assert 0 not in assignor.told["loads"]["t"]
    assert assignor.told["loads"]["t"].keys() == {p for p, c in world.owners("t").items() if c != owner}


def test_the_measure_that_the_assignor_names_counts(
    world: SimulatedCluster, one: Coordinator, assignor: Obedient
) -> None:
    for consumer in world.consumers.values():
        consumer.rates = dict.fromkeys(consumer.running, 1.0)
    assignor.measure = "lag"  # type: ignore[misc]
    one.compute_assignment()
    assert assignor.told["loads"] == {}, "nobody reports any lag"


def test_no_consumer_is_asked_for_loads_that_no_assignor_wants(world: SimulatedCluster) -> None:
    sticky = coordinator(world, KAFKA)
    sticky.contexts._poll = lambda consumers, timeout: pytest.fail("asked")
    assert not sticky.compute_assignment().needed


def test_loads_that_differ_between_two_looks_do_no_harm(world: SimulatedCluster, one: Coordinator) -> None:
    """`compute_assignment` sees a need, `advance` measures again and finds none: nothing is written."""

    class ByLoad(Obedient):
        def assign(self, topics, consumers, previous, *, loads):  # type: ignore[no-untyped-def,override]
            moved = {("t", 0): "c"} if loads.get("t", {}).get(0, 0) > 10 else {}
            return {t: {p: moved.get((t, p), previous[t][p]) for p in ps} for t, ps in topics.items()}

    owner = world.consumers[world.owners("t")[0]]
    if owner.id == "c":
        pytest.fail("the test wants a partition that is not at c")
    owner.rates = {("t", 0): 11.0}
    first = coordinator(world, KAFKA)
    first.assignor = ByLoad()
    assert first.compute_assignment().moves == 1
    owner.rates = {("t", 0): 9.0}
    second = coordinator(world, KAFKA)
    second.assignor = ByLoad()
    world.store.writes = 0
    report = second.advance(5)
    assert (report.changes, report.stable, report.stuck) == ([], True, [])
    assert world.store.writes == 0


def test_racks_go_from_kafka_through_zookeeper_into_the_plan(
    world: SimulatedCluster, one: Coordinator, assignor: Obedient
) -> None:
    topics = Topics(t=7, u=5)
    topics.racks = {"t": {0: "r1", 1: "r2"}, "other": {0: "r1"}}
    one.lister = topics
    world.store.touched = 0
    report = one.fetch_partitions()
    assert (report.racks, report.warnings, world.store.touched) == (["t"], [], 1)
    assert world.store.rack_nodes == {"t": Node(b'{"racks":{"r1":[0],"r2":[1]}}')}
    assert one.fetch_partitions().racks == []
    assert world.store.rack_nodes["t"].version == 0, "only written when changed"
    one.compute_assignment()
    assert assignor.told["racks"] == {}, "no consumer says its zone"
    world.attributes["a"] = Consumer("a", zone="r1")
    one.compute_assignment()
    assert assignor.told["racks"] == {"t": {0: "r1", 1: "r2"}}
    topics.racks = {}
    assert one.fetch_partitions().racks == ["t"]
    assert world.store.rack_nodes == {}


def test_malformed_racks_node_is_a_warning_and_written_over(
    world: SimulatedCluster, one: Coordinator, assignor: Obedient
) -> None:
    world.attributes["a"] = Consumer("a", zone="r1")
    world.store.rack_nodes.update(t=Node(b"rubbish"), u=Node(b'{"racks":{"r1":[0]}}'))
    world.decided = pinned(elsewhere(world, "t", 0))
    plan = one.compute_assignment()
    [warning] = plan.warnings
    assert "does not tell racks" in warning
    assert assignor.told["racks"] == {"u": {0: "r1"}}
    assert plan.moves == 1, "the topic goes on"
    topics = Topics(t=7, u=5)
    topics.racks = {"u": {0: "r1"}}
    one.lister = topics
    assert one.fetch_partitions().racks == ["t"]
    racks = {topic: node.data for topic, node in world.store.rack_nodes.items()}
    assert racks == {"u": b'{"racks":{"r1":[0]}}'}


def test_racks_that_cannot_be_had_leave_the_last_known_ones(
    world: SimulatedCluster, one: Coordinator
) -> None:
    class Reluctant(Topics):
        def leader_racks(self) -> dict[str, dict[int, str]]:
            raise KafkaError("Kafka at k:9092: no")

    world.store.rack_nodes["t"] = Node(b'{"racks":{"r1":[0]}}')
    one.lister = Reluctant(t=7, u=5)
    report = one.fetch_partitions()
    assert (report.errors, report.kafka_error) == ({}, None)
    assert report.warnings == ["Kafka at k:9092: no; the last known racks of the partitions' leaders stand"]
    assert world.store.rack_nodes


def test_a_run_with_everything_known_settles(world: SimulatedCluster) -> None:
    world.decided = pinned("a", "u", 3)
    for _ in range(3):
        run(world, KAFKA)
    assert state_of(world, "u") is State.STABLE
