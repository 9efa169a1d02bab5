"""When coordinators look at warm-ups again, and which requests wait for them."""

from __future__ import annotations

from dataclasses import replace

from muster.core.assignors.sticky import Sticky
from muster.core.overrides import RebalanceRequest
from tests.support.runs import Topics
from tests.support.warming_cluster import ROUND, WarmingCluster, coordinator


def joined(partitions: int = 4) -> tuple[WarmingCluster, Topics]:
    """Consumer a has all of topic t, and b has just joined and warms up."""
    world, topics = WarmingCluster(), Topics(t=partitions)
    world.join("a")
    for _ in range(6):
        step(world, topics)
    world.join("b")
    step(world, topics)
    assert set(world.node("t").warm_ups.values()) == {"b"}
    return world, topics


def step(world: WarmingCluster, topics: Topics) -> None:
    one = coordinator(world, topics, Sticky())
    one.fetch_partitions()
    if one.compute_assignment().needed:
        one.advance(0.0)
    world.pause(ROUND)


def test_warm_up_is_looked_at_within_ten_seconds() -> None:
    world, topics = joined()
    one = coordinator(world, topics, Sticky())
    due = one.next_change()
    assert due is not None
    assert due < 10, "a coordinator that waits in the triggerer is begun again by then"
    for consumer in world.consumers:
        world.consumer(consumer).disk |= {("t", p): 100_000 for p in range(4)}
    began = world.now
    report = one.compute_assignment(60.0)
    assert report.needed
    assert world.now - began < 10, "one that waits in its task looks by then"
    one.advance(0.0)
    assert world.state("t").to_start.keys() == {"b"}


def test_coordinator_rests_without_warm_ups() -> None:
    world, topics = joined()
    for _ in range(20):
        step(world, topics)
    assert sorted(world.owners("t").values()) == ["a", "a", "b", "b"]
    assert coordinator(world, topics, Sticky()).next_change() is None


def test_rebalance_request_stands_until_warm_ups_have_ended() -> None:
    world, topics = joined()
    world.decided = replace(world.decided, rebalance=RebalanceRequest(by="ann", at=1.0, why="r"))
    coordinator(world, topics, Sticky()).advance(1.0)
    assert world.decided.rebalance is not None
    for _ in range(20):
        step(world, topics)
    coordinator(world, topics, Sticky()).advance(1.0)
    assert world.decided.rebalance is None
    assert sorted(world.owners("t").values()) == ["a", "a", "b", "b"]


def test_rebalance_request_does_not_spin_during_warm_ups() -> None:
    world, topics = joined()
    world.consumer("b").stuck = True
    world.decided = replace(world.decided, rebalance=RebalanceRequest(by="ann", at=1.0, why="r"))
    began = world.now
    report = coordinator(world, topics, Sticky()).compute_assignment(60.0)
    assert not report.needed
    assert world.now - began >= 60.0, "it waits, and looks at the warm-ups now and then"
    assert "ann" in report.asked
    world.consumer("b").stuck = False
    for _ in range(20):
        step(world, topics)
    assert world.decided.rebalance is None
    assert sorted(world.owners("t").values()) == ["a", "a", "b", "b"]


def test_run_names_a_warm_up_without_progress() -> None:
    world, topics = joined(8)
    stalled = set(world.node("t").warm_ups)
    assert len(stalled) == 2
    b = world.consumer("b")
    b.stuck, b.disk, b.still = True, {("t", p): 7 for p in stalled}, 61.0
    step(world, topics)
    assert stalled < set(world.node("t").warm_ups), "others begin beside them"
    report = coordinator(world, topics, Sticky()).compute_assignment()
    for p in stalled:
        assert any(f"partition {p}: consumer b warms up" in warning for warning in report.warnings)
    assert set(world.owners("t").values()) == {"a"}
    b.stuck, b.still = False, 0.0
    for _ in range(20):
        step(world, topics)
    assert sorted(world.owners("t").values()) == [*"aaaabbbb"], "they go on once they can"
