"""The wait of the demo and the incident: as long as anything moves, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devstack.demo.movement import Movement
from devstack.demo.story import patience
from muster.core.starting import Stage, Starting

STAGES = ("submitted", "process started", "JVM started")


class World:
    """A clock that goes on by what is paused, and things that do what `doing` says of the time."""

    def __init__(self, doing: Callable[[float], dict[str, str]]) -> None:
        self.now = 0.0
        self.movement = Movement(lambda: self.now, self.pause)
        self.doing = doing

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def look(self) -> str:
        self.movement.see(self.doing(self.now))
        return self.movement.said()

    def wait(self, until: float) -> bool:
        found: bool = self.movement.wait("it", lambda: self.now >= until, self.look, lambda: 50.0)
        return found


def stages(now: float) -> dict[str, str]:
    """Come to a stage every 40 s, and no further than the last."""
    return {"flights-1": STAGES[min(int(now / 40), 2)]}


def test_wait_goes_on_while_stages_follow() -> None:
    assert World(stages).wait(125)


def test_wait_ends_when_nothing_moves_for_patience() -> None:
    world = World(stages)
    with pytest.raises(TimeoutError, match=r"for 5\d s, waiting for: it; flights-1 JVM started \(5\d s\)"):
        world.wait(1000)
    assert 130 <= world.now < 133


def test_driver_that_starts_over_does_not_move() -> None:
    world = World(lambda now: {"flights-1": STAGES[int(now / 10) % 3]})
    with pytest.raises(TimeoutError):
        world.wait(1000)
    assert 70 <= world.now < 73


def test_later_wait_begins_with_its_whole_patience() -> None:
    world = World(lambda _: {"flights-1": "live"})
    assert world.wait(45)
    assert world.wait(90)
    assert world.movement.said() == "flights-1 live (90 s)"


def test_server_that_is_away_does_not_move() -> None:
    world = World(stages)
    with pytest.raises(TimeoutError, match="Consul is away"):
        world.movement.wait("it", lambda: False, lambda: "Consul is away", lambda: 50.0)
    assert 50 <= world.now < 52


def test_each_thing_has_seconds_of_its_own() -> None:
    world = World(lambda now: {**stages(now), "flights": "is Stable"})
    for world.now in (0.0, 40.0, 48.0):
        world.look()
    assert world.movement.said() == "flights-1 process started (8 s); flights is Stable (48 s)"


def test_patience_follows_the_longest_try() -> None:
    assert patience((), 180) == 360
    assert patience([Starting("a", Stage.JVM, 0.0, tries) for tries in (1, 2)], 180) == 720
    assert patience([Starting("a", Stage.JVM, 0.0, 7)], 180) == 1440
