"""Stop the coordinator before and after each single write, begin again from what stands, arrive at the same end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.support.runs import CHANGES, Change, Topics, Watched, begin, coordinator, play
from tests.support.simulated import SimulatedStore


@pytest.mark.parametrize("assignor", ["range", "round-robin", "sticky", "failover"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_interrupted_write_leads_to_the_same_end(changes: list[Change], assignor: str) -> None:
    """Of a first assignment the end is only as even: topics that were made in two runs are given one after the other,
    each when all consumers have seen it."""
    first = len(changes) == 1
    expected, writes, _ = play(changes, assignor, None)
    assert writes > 0
    for number in range(1, writes + 1):
        for moment in ("kill_before", "kill_after"):
            owners, _, died = play(
                changes, assignor, lambda world, m=moment, n=number: setattr(world.store, m, n)
            )
            assert died == 1, f"the coordinator was to die at write {number}"
            if first:
                assert _loads(owners) == _loads(expected), f"{moment} {number} of {writes}"
            else:
                assert owners == expected, f"{moment} {number} of {writes}"


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_equally_good_end_where_a_step_does_not_fit_into_one_write(changes: list[Change]) -> None:
    """Between two writes of one step, sticky plans again from a part of its plan: other partitions may move, but
    the load is as even, and no topic that was written is touched again."""
    expected, writes, _ = play(changes, "sticky", None, SimulatedStore(group=1))
    for number in range(1, writes + 1):
        owners, _, died = play(
            changes,
            "sticky",
            lambda world, n=number: setattr(world.store, "kill_after", n),
            SimulatedStore(group=1),
        )
        assert died == 1
        assert _loads(owners) == _loads(expected)


def _loads(owners: Mapping[str, Mapping[int, str]]) -> list[int]:
    return sorted(Counter(owner for topic in owners.values() for owner in topic.values()).values())


def test_two_coordinators_at_once_write_one_result() -> None:
    """The second writes against versions that the first has changed, so it writes nothing."""
    world, topics = Watched(), Topics()
    begin(world, topics)
    first, second = coordinator(world, topics), coordinator(world, topics)
    first.fetch_partitions()
    stale = second._view()
    assert first.advance(1).changes
    before = dict(world.store.nodes)
    steps = second._transitions(second._ask(stale))
    assert steps
    assert not any(world.store.apply(steps))
    assert world.store.nodes == before
