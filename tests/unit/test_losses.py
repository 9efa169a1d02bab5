"""What is lost stands in the history, each loss once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.history import CommandEntry
from muster.core.losses import LONGEST, MOST, QUIET, REPORTED, WHAT, LossLog
from muster.core.model import Loss
from muster.core.wire import parse_status
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import SimulatedCluster

TP = ("t", 1)
KAFKA = Topics(t=7, u=5)
LOST = Loss(30, 70, 40, "retention", 1_000_000.0)


def test_losses_that_follow_one_another_are_one_and_reported_when_no_more_follows() -> None:
    log = LossLog()
    log.note(TP, Loss(30, 50, 20, "retention", 100.0))
    log.note(TP, Loss(60, 70, 10, "retention", 120.0))
    log.note(("t", 2), Loss(95, 100, 5, "truncation", 120.0))
    assert log.whole(120.0 + QUIET - 1) == {}
    found = log.whole(120.0 + QUIET)
    assert found == {
        TP: (Loss(30, 70, 30, "retention", 100.0),),
        ("t", 2): (Loss(95, 100, 5, "truncation", 120.0),),
    }
    assert log.whole(120.0 + REPORTED) == found
    assert log.whole(121.0 + QUIET + REPORTED) == {}


def test_loss_that_goes_on_is_whole_after_a_while_and_another_one_begins() -> None:
    log, now = LossLog(), 0.0
    for _ in range(10):
        log.whole(now)
        log.note(TP, Loss(int(now), int(now) + 10, 10, "retention", now))
        now += LONGEST / 4
    first, second, *_ = log.whole(now + QUIET)[TP]
    assert first.records == second.records
    assert first.end <= second.begin


def test_consumer_reports_a_bounded_number_of_losses() -> None:
    log = LossLog()
    for partition in range(2 * MOST):
        log.note(("t", partition), Loss(0, 1, 1, "retention", 0.0))
    assert sum(len(losses) for losses in log.whole(QUIET).values()) == MOST


@pytest.fixture
def world() -> SimulatedCluster:
    return settled_world()


def lost(world: SimulatedCluster) -> list[CommandEntry]:
    entries = [record.entry for record in world.store.history(limit=100).records]
    return [one for one in entries if isinstance(one, CommandEntry) and one.what == WHAT]


def test_coordinator_writes_each_loss_into_the_history_once(world: SimulatedCluster) -> None:
    assert not coordinator(world, KAFKA).compute_assignment().needed
    world.consumers["a"].losses["t", 1] = (LOST,)
    one = coordinator(world, KAFKA)
    assert one.compute_assignment().needed
    assert lost(world) == [], "it writes nothing"
    one.advance(20)
    (entry,) = lost(world)
    assert (entry.at, entry.who, entry.why) == (LOST.at, "a", "retention")
    assert entry.details == {
        "topic": "t",
        "partition": 1,
        "from": 30,
        "to": 70,
        "records": 40,
        "consumer": "a",
    }
    again = coordinator(world, KAFKA)
    assert not again.compute_assignment().needed
    again.advance(20)
    assert len(lost(world)) == 1
    world.consumers["a"].losses["t", 1] = (LOST, replace(LOST, begin=90, end=95, records=5))
    coordinator(world, KAFKA).advance(20)
    assert [entry.details["from"] for entry in lost(world)] == [90, 30]


def test_left_out_records_stand_in_the_history_once(world: SimulatedCluster) -> None:
    found = Loss(30, 70, 40, "after a seek", 1_000_000.0)
    world.consumers["a"].left_out["t", 1] = (found,)
    world.consumers["a"].losses["t", 1] = (replace(found, why="retention"),)
    for _ in range(2):
        coordinator(world, KAFKA).advance(20)
    entries = [record.entry for record in world.store.history(limit=100).records]
    written = {
        one.what: (one.who, one.why, one.details["from"], one.details["to"], one.details["records"])
        for one in entries
        if isinstance(one, CommandEntry)
    }
    assert written == {
        "left-out-records": ("a", "after a seek", 30, 70, 40),
        "lost-records": ("a", "retention", 30, 70, 40),
    }
    assert len(lost(world)) == 1


def test_losses_of_a_status_are_read_leniently() -> None:
    right = '{"from":30,"to":70,"records":40,"reason":"retention","at":"1970-01-12T13:46:40+00:00"}'
    wrong = (
        '{"from":-1,"to":70,"records":40,"at":"1970-01-12T13:46:40+00:00"},{"from":1,"to":2,"records":1},7'
    )
    losses = f'{{"1":[{right},{wrong}],"2":[{wrong}],"x":[{right}],"3":5}}'
    topic = f'{{"running":[0],"starting":[],"closing":[],"losses":{losses}}}'
    answer = parse_status(f'{{"consumer":"a","incarnation":"1","topics":{{"t":{topic}}}}}'.encode(), "u")
    assert answer.on("t").losses == {1: (LOST,)}
