"""Seeks in the coordinator's runs: who carries them out, and when their requests end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.coordinator import Coordinator
from muster.core import wire
from muster.core.model import Seek, TopicAssignment, TopicPartition
from muster.core.overrides import Pause, SeekRequest
from muster.edges.kafka import KafkaError
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import SimulatedCluster

KAFKA = Topics(t=7, u=5)
TP = ("t", 3)
ASKED = SeekRequest(
    by="ann", at=999_990.0, why="again", topic="t", partition=3, topic_id="id-of-t", id="s1", offset=40
)


class Seeker:
    """`muster.coordinator.seeker.Seeker`: what is `done`, and what fails."""

    def __init__(self) -> None:
        self.done: set[TopicPartition] = set()
        self.asked: list[Mapping[TopicPartition, Seek]] = []
        self.fails: set[TopicPartition] = set()
        self.away = False

    def carried_out(
        self, seeks: Mapping[TopicPartition, Seek], assignments: Mapping[str, TopicAssignment]
    ) -> frozenset[TopicPartition]:
        assert {topic for topic, _ in seeks} <= assignments.keys()
        self._reach()
        return frozenset(seeks.keys() & self.done)

    def carry_out(
        self, seeks: Mapping[TopicPartition, Seek], assignments: Mapping[str, TopicAssignment]
    ) -> dict[TopicPartition, str]:
        assert {topic for topic, _ in seeks} <= assignments.keys()
        self.asked.append(seeks)
        self._reach()
        self.done |= seeks.keys() - self.fails
        return dict.fromkeys(seeks.keys() & self.fails, "not allowed")

    def _reach(self) -> None:
        if self.away:
            raise KafkaError("Kafka at k:9092: no answer")


@pytest.fixture
def world() -> SimulatedCluster:
    made = settled_world()
    made.decided = replace(made.decided, seeks={TP: ASKED})
    return made


@pytest.fixture
def seeker() -> Seeker:
    return Seeker()


@pytest.fixture
def one(world: SimulatedCluster, seeker: Any) -> Coordinator:
    return replace(coordinator(world, KAFKA, settings={"advance_budget": 5}), seeker=seeker)


def written(world: SimulatedCluster) -> Mapping[int, Seek]:
    """The seeks in the assignment node, for the owner."""
    found = wire.parse_assignment(world.store.nodes["t"].data, "t")
    assert found is not None
    return found.seeks


def leave(world: SimulatedCluster) -> None:
    for consumer in world.consumers.values():
        consumer.alive = False


def test_seek_is_written_for_the_owner_and_ends_when_carried_out(
    world: SimulatedCluster, seeker: Seeker, one: Coordinator
) -> None:
    assert one.compute_assignment().needed
    one.advance(5)
    assert written(world) == {3: Seek("s1", 40)}
    assert seeker.asked == [], "which is the owner's business"
    assert world.decided.seeks == {TP: ASKED}
    seeker.done.add(TP)
    plan = one.compute_assignment()
    assert plan.needed
    assert plan.woke == f"carried out, or overtaken by a later one: {ASKED}"
    report = one.advance(5)
    assert (world.decided.seeks, written(world)) == ({}, {})
    assert report.stable
    assert not one.compute_assignment().needed


def test_seek_without_an_owner_is_carried_out_by_the_coordinator(
    world: SimulatedCluster, seeker: Seeker, one: Coordinator
) -> None:
    leave(world)
    one.advance(5)
    assert seeker.asked == [{TP: Seek("s1", 40)}]
    assert (world.decided.seeks, written(world)) == ({}, {})
    assert not one.compute_assignment().needed


@pytest.mark.parametrize("owned", [True, False])
def test_seek_of_a_topic_made_again_is_dropped(
    world: SimulatedCluster, seeker: Seeker, one: Coordinator, owned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world.decided = replace(world.decided, seeks={TP: replace(ASKED, topic_id="former")})
    if not owned:
        leave(world)
    assert one.compute_assignment().woke.endswith("topic t was created again since, seek it again if need be")
    one.advance(5)
    assert (world.decided.seeks, written(world), seeker.asked) == ({}, {}, [])
    assert "not carried out: seek of partition(s) 3 of topic t" in caplog.text
    assert not one.compute_assignment().needed


def test_topic_made_again_takes_no_seek_along(world: SimulatedCluster, one: Coordinator) -> None:
    one.advance(5)
    assert written(world) == {3: Seek("s1", 40)}
    kafka = Topics(t=7, u=5)
    kafka.ids["t"] = "another"
    coordinator(world, kafka).fetch_partitions()
    assert written(world) == {}


def test_seek_without_an_owner_is_a_reason_to_act(
    world: SimulatedCluster, seeker: Seeker, one: Coordinator
) -> None:
    leave(world)
    assert one.compute_assignment().topics.keys() == {"t"}, "the seek is written for the next owner"
    replace(one, seeker=None).advance(5)
    assert written(world) == {3: Seek("s1", 40)}
    plan = one.compute_assignment(20)
    assert plan.needed
    assert plan.woke == "topic t, partition 3: a seek, and no consumer has it"


@pytest.mark.parametrize("why", ["Kafka is away", "Kafka refuses"])
def test_seek_that_fails_stays_asked_for(
    world: SimulatedCluster, seeker: Seeker, one: Coordinator, why: str
) -> None:
    leave(world)
    seeker.away, seeker.fails = why == "Kafka is away", {TP}
    report = one.advance(5)
    assert seeker.asked
    assert world.decided.seeks == {TP: ASKED}
    known = "whether seeks were carried out is unknown" in " ".join(report.warnings)
    assert known == seeker.away
    seeker.away, seeker.fails = False, set()
    one.advance(5)
    assert world.decided.seeks == {}


def test_failed_seek_holds_up_no_other(world: SimulatedCluster, seeker: Seeker, one: Coordinator) -> None:
    other = replace(ASKED, topic="u", partition=1, id="s2")
    world.decided = replace(world.decided, seeks={TP: ASKED, ("u", 1): other})
    leave(world)
    seeker.fails = {TP}
    one.advance(5)
    assert world.decided.seeks == {TP: ASKED}


def test_paused_cluster_carries_out_no_seek(
    world: SimulatedCluster, seeker: Seeker, one: Coordinator
) -> None:
    one.advance(5)
    leave(world)
    world.decided = replace(world.decided, paused=Pause(by="ann", at=1.0, why="a release"))
    seeker.done.add(TP)
    assert not one.compute_assignment().needed
    one.advance(5)
    assert seeker.asked == []
    assert world.decided.seeks == {TP: ASKED}


@pytest.mark.parametrize(("age", "wait"), [(1, 1.0), (50, 5.0), (10_000, 20.0)])
def test_seek_is_looked_for_more_rarely_as_it_ages(
    world: SimulatedCluster, one: Coordinator, age: float, wait: float
) -> None:
    one.advance(5)
    newest = replace(ASKED, at=world.now - age)
    older = replace(newest, topic="u", partition=1, at=newest.at - age)
    world.decided = replace(world.decided, seeks={TP: newest, ("u", 1): older})
    assert one.next_change() == pytest.approx(wait)
    world.decided = replace(world.decided, paused=Pause(by="ann", at=1.0, why="a release"))
    assert one.next_change() is None
