"""A user's assignor is notified of how its plans ended; whatever it does then harms nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from muster.coordinator import observing
from muster.core.assignors import Outcome
from muster.core.assignors.sticky import Sticky
from muster.core.model import State
from tests.support.runs import Topics, begin, coordinator, state_of
from tests.support.simulated import SimulatedCluster


class Observing(Sticky):
    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.seen: list[Outcome] = []
        self.then = then

    def observe(self, outcome: Outcome, /) -> None:
        self.seen.append(outcome)
        self.then()


def rebalance(assignor: Sticky) -> SimulatedCluster:
    world, topics = SimulatedCluster(), Topics()
    begin(world, topics)
    one = coordinator(world, topics)
    one.assignor = assignor
    one.fetch_partitions()
    one.advance(120)
    assert state_of(world, "t") is State.STABLE
    return world


def test_assignor_is_given_the_owners_of_a_topic_that_became_stable() -> None:
    assignor = Observing()
    rebalance(assignor)
    [outcome] = assignor.seen
    assert set(outcome.assignment) == {"t", "u"}
    assert set(outcome.assignment["t"].values()) == {"a", "b", "c"} == outcome.consumers.keys()
    assert outcome.reasons["t"]


@pytest.mark.parametrize("then", [lambda: 1 / 0, lambda: sys.exit("enough")])
def test_assignor_that_fails_to_observe_changes_nothing(
    then: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    rebalance(Observing(then))
    assert "assignor 'sticky' could not observe the outcome" in caplog.text


def test_assignor_that_hangs_while_it_observes_is_left_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = threading.Event()
    assignor = Observing(hold.wait)
    monkeypatch.setattr(observing, "TIME_LIMIT", 0.1)
    rebalance(assignor)
    hold.set()
    assert "was left alone" in caplog.text


def test_assignor_that_does_not_observe_is_not_asked() -> None:
    rebalance(Sticky())
