"""How far a consumer has come that was submitted, and how long its next stage may take."""

from __future__ import annotations

import pytest

from muster.cluster.condition import Condition
from muster.cluster.problems import Problem
from muster.cluster.reading import InConsul, Reading, SourceReading
from muster.cluster.state import ClusterState
from muster.core.model import Membership
from muster.core.starting import Stage, Starting
from muster.edges.consul_members import Members, Registration
from tests.support.runs import cluster

NOW = 1_000.0
SETTINGS = cluster({"name": "flights", "consumers": {"count": 1, "handler": "a.b", "startup_timeout": "60s"}})


def state(starting: Starting | None, *registered: Registration) -> ClusterState:
    """No consumer is live, and the only consumer's job has come so far."""
    found = {} if starting is None else {"flights-1": starting}
    members = Members(Membership({}), {each.id: each for each in registered})
    in_consul = InConsul(members, starting=found)
    return ClusterState(SETTINGS, Reading(consul=SourceReading(in_consul)), NOW)


@pytest.mark.parametrize(("tries", "seconds"), [(0, 60), (1, 60), (2, 120), (3, 240), (4, 240), (1000, 240)])
def test_stage_may_take_longer_at_later_tries(tries: int, seconds: float) -> None:
    starting = Starting("i", Stage.JVM, NOW, tries)
    assert not starting.overdue(NOW + seconds - 0.1, 60.0)
    assert starting.overdue(NOW + seconds, 60.0)


@pytest.mark.parametrize(
    ("starting", "condition"),
    [
        (Starting("i", Stage.SUBMITTED, NOW - 59), Condition.STARTING),
        (Starting("i", Stage.BATCH, NOW - 100, tries=2), Condition.STARTING),
        (Starting("i", Stage.BATCH, NOW - 60), Condition.ABSENT),
        (Starting("i", Stage.BATCH, NOW - 1, failed="its process has ended"), Condition.ABSENT),
        (None, Condition.ABSENT),
    ],
)
def test_consumer_is_starting_while_it_comes_on(starting: Starting | None, condition: Condition) -> None:
    each = state(starting).consumers["flights-1"]
    assert each.condition is condition
    assert each.missing is (condition is Condition.ABSENT)
    assert each.counted_as == ("starting" if condition is Condition.STARTING else "missing")


@pytest.mark.parametrize(
    ("starting", "condition"),
    [
        (Starting("i", Stage.REGISTERED, NOW - 59), Condition.STARTING),
        (Starting("i", Stage.REGISTERED, NOW - 60), Condition.FAILING),
        (None, Condition.FAILING),
    ],
)
def test_check_that_never_ran_is_no_failure(starting: Starting | None, condition: Condition) -> None:
    registered = Registration("flights-1", incarnation="i")
    assert state(starting, registered).consumers["flights-1"].condition is condition


def test_starting_consumer_is_no_alarm() -> None:
    found = state(Starting("i", Stage.SESSION, NOW - 4, tries=2)).problems
    assert found == [
        Problem("warning", "No consumer is live yet; starting: flights-1"),
        Problem(
            "warning",
            "Consumer flights-1 is starting: Spark session made 4 s ago, try 2",
            consumer="flights-1",
            blocking=False,
        ),
    ]


def test_try_that_failed_says_why() -> None:
    (problem,) = state(Starting("i", Stage.SESSION, NOW - 4, 2, "incarnation i has ended")).problems
    assert problem.what == ("Consumer flights-1 is gone; its try 2 to start failed: incarnation i has ended")
