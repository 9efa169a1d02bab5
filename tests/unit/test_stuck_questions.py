"""Whom a person is asked about, and what the question says would happen."""

from __future__ import annotations

import pytest

from muster.coordinator.stuck import questions
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import World

KAFKA = Topics(t=7, u=5)
PATIENCE = {"stuck_after": 10}


@pytest.fixture
def world() -> World:
    return settled_world()


def stuck(world: World) -> World:
    """Consumer a does not let go of what d is to have, and its status page is silent."""
    world.join("d")
    world.consumers["a"].stuck = True
    world.consumers["a"].answers = False
    coordinator(world, KAFKA, settings=PATIENCE).advance(30)
    return world


def test_one_question_about_the_consumer_that_holds_things_up(world: World) -> None:
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


def test_no_question_is_asked_before_the_time_or_when_all_is_well(world: World) -> None:
    assert not questions(coordinator(world, KAFKA, settings=PATIENCE))
    stuck(world)
    patient = coordinator(world, KAFKA, settings={"stuck_after": 1000})
    assert not questions(patient)
    assert not patient.compute_assignment().stuck
    world.doubt = "Consul says there are none"
    assert not questions(coordinator(world, KAFKA, settings=PATIENCE))


def test_a_question_is_obsolete_once_its_consumer_holds_up_nothing(world: World) -> None:
    def held_up_by(consumer: str) -> bool:
        return coordinator(world, KAFKA).waits_for(consumer)

    assert not held_up_by("a")
    stuck(world)
    assert held_up_by("a")
    assert not held_up_by("b")
    world.isolated.add("a")
    coordinator(world, KAFKA, settings=PATIENCE).advance(60)
    assert not held_up_by("a")
