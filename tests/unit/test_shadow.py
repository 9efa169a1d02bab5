"""The shadow assignor: what it would do is reported, and nothing it does can harm the plan that counts."""

from __future__ import annotations

import json
import sys
import threading
import time

import pytest

from muster.coordinator.shadow import shadow_report
from muster.core.assignors import EMPTY_CONTEXT, Assignor, PlanningContext
from muster.core.model import Consumer
from muster.settings.cluster_settings import AssignorSettings
from tests.support.plans import topic
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import SimulatedCluster

KAFKA = Topics(t=7, u=5)


@pytest.fixture
def world() -> SimulatedCluster:
    return settled_world()


class Everything:
    """Gives everything to one consumer."""

    name = "everything"

    def __init__(self, to: str = "a") -> None:
        self.to = to

    def assign(self, topics, consumers, previous):
        return {t: dict.fromkeys(partitions, self.to) for t, partitions in topics.items()}


class Raising(Everything):
    def assign(self, topics, consumers, previous):
        raise RuntimeError("not finished yet")


class Exiting(Everything):
    def assign(self, topics, consumers, previous):
        sys.exit("enough")


class Wrecking(Everything):
    """Empties whatever it gets."""

    def assign(self, topics, consumers, previous):
        result = super().assign(topics, consumers, previous)
        topics.clear()
        consumers.clear()
        previous.clear()
        return result


class Hanging(Everything):
    released = threading.Event()

    def assign(self, topics, consumers, previous):
        self.released.wait(60)
        return super().assign(topics, consumers, previous)


def named(kind: type, **options: object) -> dict[str, object]:
    return {"name": f"{kind.__module__}.{kind.__qualname__}", "options": options}


def settings(kind: type, **options: object) -> AssignorSettings:
    return AssignorSettings.model_validate(named(kind, **options))


CONSUMERS = {"a": Consumer("a"), "b": Consumer("b")}
LIVE = {"t": {0: "a", 1: "b", 2: "b"}}


def report(kind: type, **more: float):
    return shadow_report(
        settings(kind), [topic({0: "a", 1: "b"}, 3)], CONSUMERS, LIVE, lambda _: EMPTY_CONTEXT, **more
    )


def test_difference_is_reported_in_numbers_and_a_few_examples() -> None:
    found = report(Everything)
    assert (found.moves, found.live_moves, found.different, found.error) == (2, 1, 2, "")
    assert found.balance is not None
    assert (found.balance.least, found.balance.most) == (0, 3)
    assert [(e.topic, e.partition, e.first, e.second) for e in found.examples] == [
        ("t", 1, "b", "a"),
        ("t", 2, "b", "a"),
    ]
    assert str(found).startswith(
        "shadow: everything: 2 move(s), 0 to 3 partitions a consumer; live: 1 move(s), 1 to 2 partitions a consumer; "
        "2 partition(s) placed differently (t 1 with a instead of b; t 2 with a instead of b); planned in "
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Raising, "not finished yet"), (Exiting, "SystemExit: enough"), (int, "needs a text attribute 'name'")],
)
def test_failure_of_the_shadow_assignor_is_only_reported(kind: type, message: str) -> None:
    assert message in report(kind).error
    assert "no plan to compare with" in str(report(kind))


def test_unknown_assignor_and_invalid_plan_are_reported() -> None:
    unknown = AssignorSettings(name="no.such.thing")
    found = shadow_report(unknown, [], CONSUMERS, {}, lambda _: EMPTY_CONTEXT)
    assert "'no.such.thing'" in found.error
    invalid = shadow_report(
        settings(Everything, to="nobody"), [topic({0: "a"})], CONSUMERS, LIVE, lambda _: EMPTY_CONTEXT
    )
    assert "'nobody', which is not a live consumer" in invalid.error


def test_hanging_assignor_is_left_alone() -> None:
    began = time.monotonic()
    try:
        found = report(Hanging, time_limit=0.1)
    finally:
        Hanging.released.set()
    assert found.error == "it was not ready after 0.1 s and was left alone"
    assert time.monotonic() - began < 5


def test_unreadable_planning_context_is_reported() -> None:
    def fail(_: Assignor) -> PlanningContext:
        raise RuntimeError("Consul is away")

    found = shadow_report(settings(Everything), [topic({0: "a"})], CONSUMERS, LIVE, fail)
    assert "Consul is away" in found.error


@pytest.mark.parametrize("kind", [Raising, Exiting, Wrecking, Everything])
def test_the_live_plan_is_the_same_with_and_without_it(world: SimulatedCluster, kind: type) -> None:
    world.consumers["b"].alive = False
    alone = coordinator(world, KAFKA).compute_assignment()
    beside = coordinator(world, KAFKA, settings={"shadow_assignor": named(kind)}).compute_assignment()
    assert alone.shadow is None
    assert beside.shadow is not None
    assert {**beside.as_dict(), "shadow": None} == alone.as_dict()


def test_shadow_plan_is_recorded_in_every_planning_tick_and_never_applied(world: SimulatedCluster) -> None:
    before, writes = (world.owners("t"), world.owners("u")), world.store.writes
    one = coordinator(world, KAFKA, settings={"shadow_assignor": named(Everything)})
    quiet = one.compute_assignment()
    assert not quiet.needed
    recorded = json.loads(json.dumps(quiet.as_dict()))["shadow"]
    assert recorded["assignor"] == "everything"
    assert recorded["moves"] == 8
    assert recorded["live_moves"] == 0
    assert recorded["balance"]["most"] == 12
    assert recorded["live_balance"]["most"] == 4
    assert len(recorded["examples"]) == 5
    assert one.advance(10).changes == []
    assert (world.owners("t"), world.owners("u")) == before
    assert world.store.writes == writes


def test_a_name_of_nothing_leaves_the_run_as_it_is(world: SimulatedCluster) -> None:
    world.consumers["b"].alive = False
    one = coordinator(world, KAFKA, settings={"shadow_assignor": "nope"})
    found = one.compute_assignment()
    assert found.needed
    assert found.shadow is not None
    assert "'nope' is unknown" in found.shadow.error
    assert one.advance(60).stable
