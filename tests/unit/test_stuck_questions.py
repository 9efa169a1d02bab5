"""Which consumers a person is asked about, and what the question says would happen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.coordinator.stuck import questions
from muster.core.model import FailingRecord, Restore, ShardState
from muster.core.overrides import Pause
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import SimulatedCluster

KAFKA = Topics(t=7, u=5)
PATIENCE = {"stuck_after": 10}


@pytest.fixture
def world() -> SimulatedCluster:
    return settled_world()


def stuck(world: SimulatedCluster) -> SimulatedCluster:
    """Consumer a does not let go of what d is to have, and its status page is silent."""
    world.join("d")
    world.consumers["a"].stuck = True
    world.consumers["a"].answers = False
    coordinator(world, KAFKA, settings=PATIENCE).advance(30)
    return world


def test_question_is_about_the_consumer_that_holds_things_up(world: SimulatedCluster) -> None:
    one = coordinator(stuck(world), KAFKA, settings=PATIENCE)
    [question] = questions(one)
    assert question.consumer == "a"
    assert question.subject == "Isolate a of cluster c?"
    assert "| t | Closing | close " in question.body
    assert "no answer in time" in question.body
    moved = [line for line in question.body.splitlines() if line.startswith("| t | ") and "| a |" in line]
    assert moved, "what a has goes to others"
    assert "partition(s) would move" in question.body
    assert "after another 10 s" in question.body
    assert one.compute_assignment().stuck


def test_no_question_is_asked_before_the_time_or_when_all_is_well(world: SimulatedCluster) -> None:
    assert not questions(coordinator(world, KAFKA, settings=PATIENCE))
    stuck(world)
    patient = coordinator(world, KAFKA, settings={"stuck_after": 1000})
    assert not questions(patient)
    assert not patient.compute_assignment().stuck
    world.doubt = "Consul says there are none"
    assert not questions(coordinator(world, KAFKA, settings=PATIENCE))


def test_paused_cluster_in_mid_rebalance_asks_no_question(world: SimulatedCluster) -> None:
    stuck(world)
    world.decided = replace(world.decided, paused=Pause(by="ann", at=1.0, why="a release"))
    one = coordinator(world, KAFKA, settings=PATIENCE)
    assert not questions(one)
    assert one.compute_assignment().stuck == []
    assert not one.stands_still("t")


def test_a_question_is_obsolete_once_its_consumer_holds_up_nothing(world: SimulatedCluster) -> None:
    def held_up_by(consumer: str) -> bool:
        return coordinator(world, KAFKA).waits_for(consumer)

    assert not held_up_by("a")
    stuck(world)
    assert held_up_by("a")
    assert not held_up_by("b")
    world.isolated.add("a")
    coordinator(world, KAFKA, settings=PATIENCE).advance(60)
    assert not held_up_by("a")


def test_parked_record_is_asked_about_at_once_and_its_consumer_is_not_to_be_isolated(
    world: SimulatedCluster,
) -> None:
    owner, partition = next((c.id, p) for c in world.consumers.values() for t, p in c.running if t == "t")
    failing = world.consumers[owner].failing
    failing["t", partition] = FailingRecord(17, "ValueError: no date", 8, parked=True)
    world.stands(("t", partition), 900.0)
    one = coordinator(world, KAFKA, settings=PATIENCE)
    [question] = questions(one)
    assert question.records == (("t", partition, 17),)
    assert question.commands == ("retry-record", "skip-record", "dead-letter-record")
    assert question.subject == f"Is it the record or the sink? t [{partition}], offset 17"
    assert "the record failed 8 times alone: ValueError: no date" in question.body
    assert "`__muster.dead-letters.c`" in question.body
    assert "**Look at the handler's sink first.**" in question.body
    [stuck_] = one.compute_assignment().stuck
    assert f"does not get past offset 17 of partition {partition}" in stuck_
    assert "isolate" not in stuck_
    assert not one.waits_for(owner)
    assert one.fails_with("t", partition, 17)
    assert not one.fails_with("t", partition, 18)
    failing["t", partition] = replace(failing["t", partition], answer="skip")
    again = coordinator(world, KAFKA, settings=PATIENCE)
    assert questions(again) == []
    assert not again.fails_with("t", partition, 17)


def test_question_about_a_record_stays_while_its_owner_is_unknown(world: SimulatedCluster) -> None:
    one = coordinator(world, KAFKA, settings=PATIENCE)
    owner = world.owners()[0]
    assert not one.fails_with("t", 0, 17)
    assert not one.fails_with("t", 99, 17), "no consumer owns it"
    assert not one.fails_with("unknown", 0, 17)
    world.doubt = "Consul says there are none"
    assert one.fails_with("t", 0, 17)
    world.doubt = ""
    world.consumers[owner].answers = False
    assert one.fails_with("t", 0, 17), "it is live"


def test_loss_that_parks_a_partition_is_asked_about_and_cannot_be_dead_lettered(
    world: SimulatedCluster,
) -> None:
    owner, partition = next((c.id, p) for c in world.consumers.values() for t, p in c.running if t == "t")
    why = "40 records from offset 30 on were deleted by retention"
    world.consumers[owner].failing["t", partition] = FailingRecord(30, why, parked=True, lost=40)
    one = coordinator(world, KAFKA, settings=PATIENCE)
    [question] = questions(one)
    assert question.records == (("t", partition, 30),)
    assert question.commands == ("retry-record", "skip-record")
    assert f"does not get past t [{partition}], offset 30: the partition is parked, {why}" in question.body
    assert "the partition goes on behind the 40 records that are lost" in question.body
    [stuck_] = one.compute_assignment().stuck
    assert stuck_.startswith("topic t is held up by records that Kafka has no more: ")
    assert "have the partition go on behind what is lost, or look again" in stuck_
    assert "dead-lettered" not in stuck_


def test_failing_timer_is_asked_about_by_itself(world: SimulatedCluster) -> None:
    owner, partition = next((c.id, p) for c in world.consumers.values() for t, p in c.running if t == "t")
    why = "the timer of key ('a',) at 2026-01-01T00:00:00.000+00:00 failed: OSError: no"
    world.consumers[owner].failing["t", partition] = FailingRecord(30, why, parked=True, timer=True)
    one = coordinator(world, KAFKA, settings=PATIENCE)
    [question] = questions(one)
    assert question.commands == ("retry-record", "skip-record")
    assert why in question.body
    assert "drops the timer, and skips no record" in question.body
    [stuck_] = one.compute_assignment().stuck
    assert stuck_.startswith("topic t is held up by timers of its state that fail: ")
    assert "have the timer tried again, or dropped" in stuck_
    assert "dead-letter" not in stuck_


def test_state_that_does_not_fit_is_a_question_about_its_topic(world: SimulatedCluster) -> None:
    """No consumer is to be isolated for it, and a restore that goes on raises no question."""
    (owner,) = (c for c in world.consumers.values() if ("t", 3) in c.running)
    owner.shards["t", 3] = ShardState(restore=Restore(5, 20, 1.0, 9.0))
    one = coordinator(world, KAFKA, settings=PATIENCE)
    assert questions(one) == []
    owner.shards["t", 3] = ShardState(differs="its changelog (end 9) has no position; the group has none")
    [question] = questions(one)
    assert (question.consumer, question.subject) == ("", "Topic t of cluster c stands still")
    assert "its changelog (end 9) has no position" in question.body
    assert "'muster seek" in question.body
    assert "isolate" not in question.body
    assert one.stands_still("t")
    owner.shards["t", 3] = ShardState(restore=Restore(5, 20, 1.0, 11.0))
    [question] = questions(one)
    assert question.subject == f"Isolate {owner.id} of cluster c?"
    assert "restore the state of 3 | 25 % of 20 offsets of its changelog" in question.body


def test_records_that_fail_alike_are_one_question(world: SimulatedCluster) -> None:
    held = [(c, tp) for c in world.consumers.values() for tp in sorted(c.running)]
    errors = {"t": "OSError: no sink", "u": "OSError: no table"}
    for consumer, (topic, partition) in held:
        consumer.failing[topic, partition] = FailingRecord(17, errors[topic], 3, parked=True)
    first, (topic, partition) = held[0]
    first.failing[topic, partition] = FailingRecord(18, "ValueError: no date", 3, parked=True)
    one = coordinator(world, KAFKA, settings=PATIENCE | {"fencing": False})
    asked = {question.subject: question for question in questions(one)}
    assert len(asked) == 3
    several = asked["Is it the records or the sink? u, 5 partitions fail with OSError"]
    assert several.records == tuple(sorted(several.records, key=lambda record: record.partition))
    assert all(f"| u [{p}] | 17 |" in several.body for p in range(5))
    assert "The records cannot be dead-lettered" in several.body
    assert asked[f"Is it the record or the sink? {topic} [{partition}], offset 18"].records == (
        (topic, partition, 18),
    )
    [stuck_, _] = one.compute_assignment().stuck
    assert "What to do: look first at whether the handler's sink works; have the record retried" in stuck_


def test_record_is_not_asked_about_before_its_owner_says_so(world: SimulatedCluster) -> None:
    owner, partition = next((c.id, p) for c in world.consumers.values() for t, p in c.running if t == "t")
    world.consumers[owner].failing["t", partition] = FailingRecord(17, "OSError: no sink", 3)
    assert questions(coordinator(world, KAFKA, settings=PATIENCE)) == []
    world.stands(("t", partition), 11.0)
    assert questions(coordinator(world, KAFKA, settings=PATIENCE)) == []


def test_batch_beyond_max_batch_time_is_asked_about_at_once_and_its_question_says_so(
    world: SimulatedCluster,
) -> None:
    owner, partition = next((c.id, p) for c in world.consumers.values() for t, p in c.running if t == "t")
    world.consumers[owner].batch_seconds["t", partition] = 421.0
    world.consumers[owner].max_batch_time = 300.0
    one = coordinator(world, KAFKA, settings={"stuck_after": 10_000})
    [question] = questions(one)
    assert question.records == ()
    assert question.subject == f"Isolate {owner} of cluster c?"
    assert (
        f"| t | Stable | finish its batch with {partition} | its handler has worked on this batch for 421 s"
        in (question.body)
    )
    [stuck_] = one.compute_assignment().stuck
    assert stuck_.startswith(
        f"topic t is held up by a batch that takes longer than max_batch_time: consumer {owner} does not finish its "
        f"batch with partition {partition} (its handler has worked on this batch for 421 s"
    )
    assert one.waits_for(owner)
    world.consumers[owner].batch_seconds.clear()
    again = coordinator(world, KAFKA, settings={"stuck_after": 10_000})
    assert questions(again) == []
    assert not again.waits_for(owner)


def test_batch_beyond_max_batch_time_is_asked_about_while_its_partition_is_to_be_closed(
    world: SimulatedCluster,
) -> None:
    world.join("d")
    world.consumers["a"].stuck = True
    world.consumers["a"].max_batch_time = 300.0
    world.consumers["a"].batch_seconds = {tp: 400.0 for tp in world.consumers["a"].running if tp[0] == "t"}
    one = coordinator(world, KAFKA, settings={"stuck_after": 10_000})
    one.advance(5)
    [question] = questions(one)
    assert question.consumer == "a"
    assert "| t | Closing | finish its batch with " in question.body
