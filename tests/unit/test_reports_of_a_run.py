"""The whole reports of runs over simulated edges, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.coordinator import LONG_POLL_OVER
from muster.coordinator.reports import AdvanceReport, Change, PartitionsReport, PlanReport
from muster.core.history import Transitions
from muster.core.model import Consumer, ConsumerStatus, Loss, Move, Seek, State, TopicPartition
from muster.core.moments import to_iso
from muster.core.overrides import AssignorChoice, Pause, Pin, RebalanceRequest, SeekRequest
from muster.core.patience import Policy
from muster.edges.consul import WaitIndex
from muster.edges.status import StatusResult
from tests.support.runs import Topics, coordinator, settled_world, unsubscribe
from tests.support.simulated import SimulatedCluster

KAFKA = Topics(t=7, u=5)
SAID: dict[str, Any] = {"by": "ann", "at": 1_700_000_000.0, "why": "release"}
PAUSED = "paused by ann since 2023-11-14T22:13:20+00:00: release"
ASKED = "rebalance asked for by ann: release"
CHOSEN = "assignor range by ann since 2023-11-14T22:13:20+00:00: release"
STRANGERS = {"x-1": "consumer x-1 is registered as one of cluster 'x'"}
SEEK = SeekRequest(**SAID, topic="t", partition=0, topic_id="id-of-t", id="s", offset=4)
UNREAD = "Consul key k: malformed"


@pytest.fixture
def world() -> SimulatedCluster:
    """Consumers a, b and c at rest, something to warn of, and something wrong."""
    world = settled_world()
    world.strangers = STRANGERS
    world.decided = replace(world.decided, errors=(UNREAD,), large=("key e is large",))
    world.offsets = None
    return world


class Bad:
    """Plans nothing that is valid."""

    name = "bad"

    def assign(self, topics: object, consumers: object, previous: object) -> dict[str, dict[int, str]]:
        return {"t": {0: "unknown"}}


class Done:
    """Says of each seek that it was carried out."""

    def carried_out(self, seeks: Mapping[TopicPartition, Seek], _: object) -> frozenset[TopicPartition]:
        return frozenset(seeks)


WARNINGS = ["key e is large", UNREAD]


def test_plan_of_a_quiet_run_is_reported_whole(world: SimulatedCluster) -> None:
    assert coordinator(world, KAFKA).compute_assignment(20) == PlanReport(
        errors=STRANGERS, warnings=WARNINGS, states={"Stable": 2}, woke=LONG_POLL_OVER, waited=20.0
    )


def test_plan_of_a_rebalance_is_reported_whole(world: SimulatedCluster) -> None:
    world.join("d")
    world.decided = replace(
        world.decided,
        rebalance=RebalanceRequest(**SAID),
        assignor=AssignorChoice(**SAID, name="range"),
    )
    assert coordinator(world, KAFKA).compute_assignment(20) == PlanReport(
        needed=True,
        topics={"t": f"Stable -> Closing: {ASKED}", "u": f"Stable -> Closing: {ASKED}"},
        moves=10,
        reasons=[ASKED],
        errors=STRANGERS,
        warnings=WARNINGS,
        assignor=CHOSEN,
        asked=ASKED,
        states={"Stable": 2},
        woke=ASKED,
    )


def test_plan_without_an_assignor_is_reported_whole(world: SimulatedCluster) -> None:
    one = coordinator(world, KAFKA, settings={"planning_error_delay": 60})
    one.assignor = Bad()  # type: ignore[assignment]
    plan, report = one.compute_assignment(20), one.advance(5)
    assert plan.planning_error.startswith("assignor 'bad' returned no valid assignment")
    assert plan == PlanReport(
        errors=STRANGERS,
        warnings=WARNINGS,
        states={"Stable": 2},
        woke=LONG_POLL_OVER,
        waited=20.0,
        planning_error=plan.planning_error,
    )
    assert report == AdvanceReport(errors=STRANGERS, warnings=WARNINGS, planning_error=plan.planning_error)


@pytest.mark.parametrize("rebalancing", [False, True])
def test_reports_of_a_paused_cluster_are_whole(world: SimulatedCluster, rebalancing: bool) -> None:
    if rebalancing:
        world.join("d")
        coordinator(world, KAFKA).advance(0)
    world.stands(("t", 0), 400.0)
    since = world.store.look().marks["t", 0].since
    world.now += 400
    world.decided = replace(world.decided, paused=Pause(**SAID))
    held = f"{PAUSED}; resume the cluster to go on"
    stands = f"topic t: partition(s) 0: {PAUSED}, not moved since {to_iso(since)}"
    one = coordinator(world, KAFKA)
    assert one.fetch_partitions() == PartitionsReport(held=held)
    assert one.advance(20) == AdvanceReport(
        stable=not rebalancing, waiting=[stands], held=held, errors=STRANGERS, warnings=WARNINGS
    )
    assert one.compute_assignment(20) == PlanReport(
        held=held,
        errors=STRANGERS,
        warnings=[*WARNINGS, stands],
        states={"Closing" if rebalancing else "Stable": 2},
        behind={"lag_seconds": 0.0, "topics_over_max_lag": 0, "topics_near_deletion": 0},
        woke=LONG_POLL_OVER,
        waited=20.0,
    )


def test_reports_in_doubt_of_consul_are_whole(world: SimulatedCluster) -> None:
    world.stands(("t", 0), 400.0)
    since = world.store.look().marks["t", 0].since
    world.doubt = "Consul lists no consumer"
    stuck = (
        f"topic t makes no progress in partition(s) 0 since {to_iso(since)}, for longer than stuck_after (300 s): "
        "partition(s) 0: Consul lists no consumer. What to do: look at Consul and its agents."
    )
    one = coordinator(world, KAFKA)
    assert one.compute_assignment(20) == PlanReport(
        needed=True,
        held=world.doubt,
        warnings=WARNINGS,
        stuck=[stuck],
        states={"Stable": 2},
        woke=LONG_POLL_OVER,
        waited=20.0,
    )
    assert one.advance(20) == AdvanceReport(stuck=[stuck], held=world.doubt, warnings=WARNINGS)


def test_rebalance_that_ends_is_reported_whole(world: SimulatedCluster) -> None:
    world.join("d")
    world.decided = replace(world.decided, rebalance=RebalanceRequest(**SAID))
    began, epoch = world.now, int(world.now)
    report = coordinator(world, KAFKA).advance(60)
    assert report == AdvanceReport(report.changes, errors=STRANGERS, warnings=WARNINGS, asked=ASKED)
    steps = [each for each in report.changes if each.topic == "t"]
    closing, starting, stable = (State.CLOSING, State.STARTING, State.STABLE)
    assert steps == [
        Change("t", stable, closing, ASKED, (Move("t", 6, "a", "d", ASKED),), epoch + 1, began, 0.0),
        Change("t", closing, starting, ASKED, (), epoch + 2, steps[1].at, round(steps[1].at - began, 3)),
        Change("t", starting, stable, ASKED, (), epoch + 2, steps[2].at, round(steps[2].at - began, 3)),
    ]
    assert began < steps[1].at < steps[2].at <= world.now


def test_removal_of_a_topic_is_reported_whole(world: SimulatedCluster) -> None:
    unsubscribe(world, KAFKA)
    epoch = int(world.now)
    report = coordinator(world, KAFKA).advance(60)
    assert report == AdvanceReport(report.changes, errors=STRANGERS, warnings=WARNINGS)
    *_, stable, removed = report.changes
    why = "unsubscribed by ann: r"
    assert removed == Change("u", State.STABLE, State.INITIAL, why, (), epoch + 1, removed.at, 0.0)
    assert (stable.topic, stable.before, stable.after) == ("u", State.CLOSING, State.STABLE)
    assert removed.at == stable.at <= world.now
    newest, *_ = world.store.history().records
    assert isinstance(newest.entry, Transitions)
    assert [(step.topic, step.reason) for step in newest.entry.steps] == [("u", why)]


def test_note_of_a_topic_goes_with_its_nodes(world: SimulatedCluster) -> None:
    assert world.decided.epochs.keys() == {"t", "u"}
    unsubscribe(world, KAFKA)
    while "u" in world.store.nodes:
        coordinator(world, KAFKA).advance(0)
        world.pause(0.1)
    assert world.decided.epochs.keys() == {"t"}, "in the run that removes it"


def test_plan_takes_into_account_all_that_stays(
    world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsubscribe(world, KAFKA)
    one = coordinator(world, KAFKA)
    read, asked = one.contexts.read, []

    def noting(*given: Any) -> Any:
        asked.append(given)
        return read(*given)

    monkeypatch.setattr(one.contexts, "read", noting)
    one.compute_assignment(0)
    topics, live, assignor, decided = asked[-1]
    assert (topics.keys(), live.keys()) == ({"t"}, {"a", "b", "c"})
    assert (assignor, decided) == (one.assignor, world.decided)


def test_rebalance_that_hangs_is_reported_whole(world: SimulatedCluster) -> None:
    began = world.now
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    world.consumers["a"].answers = False
    world.decided = replace(world.decided, rebalance=RebalanceRequest(**SAID))
    one = coordinator(world, KAFKA, settings={"stuck_after": 10})
    one.assignor = Bad()  # type: ignore[assignment]
    report = one.advance(60)
    assert began + 60 < world.now < began + 70
    assert report == AdvanceReport(
        report.changes,
        stable=False,
        waiting=report.waiting,
        stuck=report.stuck,
        errors=STRANGERS,
        warnings=WARNINGS,
        planning_error=report.planning_error,
    )
    assert [each.topic for each in report.changes] == ["u", "u"]
    why = "its status is unavailable: no answer in time"
    (waiting,), (stuck,) = report.waiting, report.stuck
    assert waiting.startswith("topic t: ") and why in waiting
    assert stuck.startswith("topic t is Closing for 61 s, longer than stuck_after (10 s): ") and why in stuck


@pytest.mark.parametrize(
    "cause", ["nothing", "request", "loss", "seek", "removal", "Closing", "move", "standing"]
)
def test_each_cause_alone_makes_a_run_needed(world: SimulatedCluster, cause: str) -> None:
    one, named = coordinator(world, KAFKA), {}
    if cause == "request":
        world.decided = replace(world.decided, rebalance=RebalanceRequest(**SAID))
    elif cause == "loss":
        world.consumers["a"].losses["t", 0] = (Loss(1, 2, 1, "retention", world.now),)
    elif cause == "seek":
        world.decided = replace(world.decided, seeks={("t", 0): SEEK})
        one = replace(one, seeker=Done())
    elif cause == "removal":
        world.consumers["a"].stuck = True
        unsubscribe(world, KAFKA)
        one.advance(0)
        named = {"u": "Closing -> ..."}
    elif cause == "Closing":
        world.consumers["a"].stuck = True
        world.join("d")
        one.advance(0)
        named = {"t": "Closing -> ...", "u": "Closing -> ..."}
    elif cause == "move":
        world.consumers["c"].alive = False
        named = dict.fromkeys(("t", "u"), "Stable -> Closing: consumer c left")
    elif cause == "standing":
        world.stands(("t", 0), 400.0)
    plan = one.compute_assignment()
    assert (plan.needed, plan.topics, plan.waited) == (cause != "nothing", named, 0.0)


def test_last_look_of_a_run_asks_no_settled_consumer_again(world: SimulatedCluster) -> None:
    world.consumers["a"].stuck = True
    world.join("d")
    coordinator(world, KAFKA).advance(0)
    world.pause(0.1)
    world.pause(0.1)
    world.stands(("t", next(p for p, owner in world.owners().items() if owner == "b")), 400.0)
    asked: list[tuple[str, set[str]]] = []

    def poll(consumers: Iterable[Consumer], timeout: float, topics: Any = None) -> Mapping[str, StatusResult]:
        """Answers only what is asked."""
        asked.extend(sorted(topics.items()))
        return {
            consumer: replace(
                found, topics={t: found.topics[t] for t in topics[consumer] & found.topics.keys()}
            )
            for consumer, found in world.poll(consumers, timeout, topics).items()
            if isinstance(found, ConsumerStatus)
        }

    replace(coordinator(world, KAFKA), poll=poll).advance(0)
    assert asked == [
        ("a", {"t"}),
        ("b", {"u"}),
        ("c", {"u"}),
        ("d", {"t", "u"}),
        ("a", {"t"}),
        ("b", {"t"}),
        ("d", {"t", "u"}),
    ]


@pytest.mark.parametrize(("requested", "asked"), [(False, {"a", "b", "c"}), (True, set())])
def test_owners_are_asked_only_at_the_end_of_a_quiet_wait(
    world: SimulatedCluster, requested: bool, asked: set[str]
) -> None:
    found: set[str] = set()

    def poll(consumers: Iterable[Consumer], timeout: float, topics: Any = None) -> Mapping[str, StatusResult]:
        found.update(topics)
        return world.poll(consumers, timeout, topics)

    if requested:
        world.decided = replace(world.decided, rebalance=RebalanceRequest(**SAID))
    replace(coordinator(world, KAFKA), poll=poll).compute_assignment(20)
    assert found == asked


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        ("nothing", {"a", "b", "c"}),
        ("a rebalance requested", set()),
        ("two partitions of a topic pinned", set()),
    ],
)
def test_run_asks_all_owners_where_nothing_else_called_it(
    world: SimulatedCluster, what: str, asked: set[str]
) -> None:
    owners = world.owners()
    other = next(p for p in owners if owners[p] != owners[0])
    if what == "a rebalance requested":
        world.decided = replace(world.decided, rebalance=RebalanceRequest(**SAID))
    if what == "two partitions of a topic pinned":
        pins = {
            ("t", p): Pin(**SAID, topic="t", partition=p, consumer=owners[q])
            for p, q in ((0, other), (other, 0))
        }
        world.decided = replace(world.decided, pins=pins)
    found: set[str] = set()

    def poll(consumers: Iterable[Consumer], timeout: float, topics: Any = None) -> Mapping[str, StatusResult]:
        found.update(consumer for consumer, of in topics.items() if "u" in of)
        return world.poll(consumers, timeout, topics)

    assert replace(coordinator(world, KAFKA), poll=poll).advance(60).stable
    assert found == asked
    assert (world.owners() == owners) is (what != "two partitions of a topic pinned")


def test_coordinator_waits_as_its_settings_say() -> None:
    settings = {"rebalance_delay": "7s", "closing_timeout": "11s"}
    assert coordinator(settled_world(), Topics(t=2), settings=settings).policy == Policy(7.0, 11.0)


def test_wait_begins_with_an_index_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world, waits = settled_world(), []

    def wait(index: WaitIndex, timeout: float) -> WaitIndex:
        waits.append(timeout)
        return SimulatedCluster.wait(world, index, timeout)

    monkeypatch.setattr(world, "wait", wait)
    coordinator(world, KAFKA).compute_assignment(20.0)
    assert waits == [0, 20.0]
