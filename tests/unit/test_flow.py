"""Pauses of consumption on their way: overrides, the assignment node, the coordinator's steps, the diagnosis."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from muster.core.diagnosis import Situation, held_up
from muster.core.flow import with_flow
from muster.core.model import (
    Consumer,
    ConsumerStatus,
    FailingRecord,
    Membership,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
)
from muster.core.overrides import ConsumptionPause, Overrides, Pause
from muster.core.patience import Replies
from muster.core.progress import Look, Mark
from muster.core.stuck import named, stuck
from muster.core.wire import WireError, format_assignment, parse_assignment, parse_status
from tests.support.runs import Topics, coordinator, run, settled_world
from tests.support.simulated import SimulatedCluster

KAFKA = Topics(t=7, u=5)
SAID: dict[str, Any] = {"by": "ann", "at": 1_700_000_000.0, "why": "release"}
NODE = TopicAssignment("k:9092", "g", {0: "a", 1: "b"}, epoch=7)


def snapshot(assignment: TopicAssignment = NODE) -> TopicSnapshot:
    state = TopicState(State.STABLE, epoch=assignment.epoch)
    return TopicSnapshot("t", frozenset({0, 1}), assignment, 3, state, 4)


# Overrides and nodes


def test_pause_of_a_topic_and_of_all_covers_every_partition() -> None:
    some = frozenset(range(4))
    pause = ConsumptionPause(**SAID, topic="t", partition=2)
    gone = ConsumptionPause(**SAID, topic="t", partition=9)
    assert Overrides(consumption=(pause, gone)).not_consumed("t", some) == {2}
    assert Overrides(consumption=(pause,)).not_consumed("u", some) == frozenset()
    assert Overrides(consumption=(ConsumptionPause(**SAID, topic="t"),)).not_consumed("t", some) == some
    assert Overrides(consumption=(ConsumptionPause(**SAID),)).not_consumed("u", some) == some


def test_paused_partitions_stand_in_the_assignment_node_only_where_there_are_some() -> None:
    paused = replace(NODE, paused=frozenset({1, 0}))
    assert b'"paused":[0,1]' in format_assignment(paused)
    assert parse_assignment(format_assignment(paused), "p") == paused
    assert b"paused" not in format_assignment(NODE)
    with pytest.raises(WireError, match="paused"):
        parse_assignment(b'{"bootstrap.servers":"k","group.id":"g","assignments":{},"paused":[-1]}', "p")


@pytest.mark.parametrize(
    ("said", "found"), [([1, 0], {0, 1}), ("all", set()), ([1, "x", -1, True], {1}), (None, set())]
)
def test_status_of_paused_partitions_is_read_leniently(said: object, found: set[int]) -> None:
    text = json.dumps({"consumer": "a", "incarnation": "i", "topics": {"t": {"paused": said}}})
    assert parse_status(text.encode(), "u").on("t").paused == found


# Steps


def test_flow_alone_changes_neither_state_nor_epoch() -> None:
    step = with_flow(snapshot(), None, frozenset({1}), {})
    assert step is not None
    assert step.assignment == replace(NODE, paused=frozenset({1}))
    assert step.state == snapshot().state
    assert step.reason == "consumption paused: partition(s) 1"
    back = with_flow(snapshot(step.assignment), None, frozenset(), {})
    assert back is not None
    assert back.reason == "consumption resumed: partition(s) 1"


def test_flow_that_stands_already_needs_no_step() -> None:
    assert with_flow(snapshot(), None, frozenset(), {}) is None
    initial = replace(snapshot(), state=None, state_version=-1)
    assert with_flow(initial, None, frozenset({0}), {}) is None, "no consumer has it yet"


# Runs of the coordinator


def paused(world: SimulatedCluster, *pauses: ConsumptionPause) -> None:
    world.decided = replace(world.decided, consumption=pauses)


def nodes(world: SimulatedCluster) -> dict[str, set[int]]:
    found = {t: parse_assignment(node.data, t) for t, node in world.store.nodes.items()}
    return {topic: set(node.paused) for topic, node in found.items() if node is not None}


def test_run_writes_a_pause_and_takes_it_back_and_moves_nothing() -> None:
    world = settled_world()
    owners, epochs = world.owners(), [node.data for node in world.store.states.values()]
    paused(world, ConsumptionPause(**SAID, topic="t", partition=3))
    plan = coordinator(world, KAFKA).compute_assignment(5)
    assert (plan.needed, plan.woke) == (True, "topic t: consumption paused: partition(s) 3")
    run(world, KAFKA)
    assert nodes(world) == {"t": {3}, "u": set()}
    assert (world.owners(), [node.data for node in world.store.states.values()]) == (owners, epochs)
    assert coordinator(world, KAFKA).compute_assignment().needed is False
    paused(world)
    run(world, KAFKA)
    assert nodes(world) == {"t": set(), "u": set()}


def test_pause_stays_with_a_partition_that_moves_and_covers_one_that_is_added() -> None:
    world = settled_world()
    paused(world, ConsumptionPause(**SAID, topic="t"))
    run(world, KAFKA)
    world.consumers["b"].alive = False
    run(world, Topics(t=9, u=5))
    assert "b" not in world.owners().values()
    assert nodes(world) == {"t": set(range(9)), "u": set()}


@pytest.mark.parametrize("doubt", ["", "Consul says there are none"])
def test_pause_is_written_while_no_consumer_is_known_to_be_live(doubt: str) -> None:
    world = settled_world()
    for consumer in world.consumers.values():
        consumer.alive = False
    world.doubt = doubt
    paused(world, ConsumptionPause(**SAID))
    before = world.owners()
    plan = coordinator(world, KAFKA).compute_assignment()
    assert plan.needed
    assert plan.held
    assert len(coordinator(world, KAFKA).advance(20).changes) == 2
    assert nodes(world) == {"t": set(range(7)), "u": set(range(5))}
    assert world.owners() == before


def test_pause_waits_while_coordination_is_paused() -> None:
    world = settled_world()
    paused(world, ConsumptionPause(**SAID))
    world.decided = replace(world.decided, paused=Pause(**SAID))
    assert coordinator(world, KAFKA).compute_assignment().needed is False
    assert coordinator(world, KAFKA).advance(20).changes == []
    assert nodes(world) == {"t": set(), "u": set()}


# Diagnosis


@pytest.fixture
def standing() -> Situation:
    """Partition 0 of a Stable topic, which consumer a runs, has not moved for 500 s."""
    status = ConsumerStatus("a", "i", {"t": TopicStatus(running=frozenset({0}), epoch=7)})
    look = Look(1_000.0, {("t", 0): Mark(5, 500)})
    consumers = Membership({"a": Consumer("a")})
    return Situation({"t": snapshot()}, consumers, Replies({"a": status}), 1_000.0, 300.0, look=look)


def failing(situation: Situation, record: FailingRecord) -> Situation:
    status = situation.replies.statuses["a"]
    said = replace(status, topics={"t": replace(status.on("t"), failing={0: record})})
    return replace(situation, replies=Replies({"a": said}))


def test_record_is_named_until_its_owner_asks(standing: Situation) -> None:
    found = held_up(failing(standing, FailingRecord(17, "OSError: no sink", 3)))
    assert stuck(standing, found) == {}
    [said] = named(found)
    assert "the record failed 3 times alone: OSError: no sink" in said
    asked = failing(standing, FailingRecord(17, "OSError: no sink", 3, parked=True))
    assert stuck(asked, held_up(asked)).keys() == {"t"}


def test_paused_partition_is_named_without_a_question(standing: Situation) -> None:
    assert stuck(standing, held_up(standing)).keys() == {"t"}
    still = replace(standing, overrides=Overrides(consumption=(ConsumptionPause(**SAID, topic="t"),)))
    assert stuck(still, held_up(still)) == {}
    [said] = named(held_up(still))
    assert said.startswith("topic t: partition(s) 0: consumption of topic t paused by ann")


def test_paused_partition_that_is_parked_waits_for_a_person_all_along(standing: Situation) -> None:
    record = FailingRecord(30, "40 records from offset 30 on were deleted by retention", parked=True, lost=40)
    paused = replace(
        failing(standing, record), overrides=Overrides(consumption=(ConsumptionPause(**SAID, topic="t"),))
    )
    [waiting, _] = held_up(paused)["t"]
    assert (waiting.partitions, waiting.offset, waiting.lost) == ((0,), 30, 40)
