"""A shrunk week of two clusters on real servers, in which everything expires that can.

Each event has to end with all partitions flowing, owned and Stable again. In the end each record is accounted for,
nothing stood still without a name, and nothing has grown. `make test` plays one day, with light consumers only.
"""

from __future__ import annotations

import pytest

from tests.support.fault_world import Fault
from tests.week.clock import LONG
from tests.week.events import ALL
from tests.week.stack import ALPHA
from tests.week.world import LONGEST, World

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1200)]
if LONG:
    pytestmark += [pytest.mark.spark]

LEAST = 40
"""Events of a week, at least."""


@pytest.mark.parametrize(
    ("day", "event"), ALL, ids=lambda of: f"day {of}" if isinstance(of, int) else of.name
)
def test_clusters_flow_again_after(world: World, day: int, event: Fault[World]) -> None:
    world.play(event)


def test_every_record_is_accounted_for(world: World) -> None:
    world.eventually("all is well after the last event", world.settled, LONGEST)
    world.end()
    world.eventually("all is committed", world.at_rest, LONGEST)
    score = world.score()
    score.write()
    assert not world.missing()
    assert world.dead_letters(ALPHA) == len(world.poisons)
    if LONG:
        assert sum(row.injected for row in score.rows) >= LEAST
    assert score.good, score.last_line()
