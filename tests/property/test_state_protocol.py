"""State by key through histories of owners that die, freeze and come back: with each rule, and without each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tests.support.only_long import LONG
from tests.support.state_rules import RETENTION, leaving_out
from tests.support.state_world import (
    OF_SEVERAL,
    RULES,
    TOPICS,
    TP,
    BrokenError,
    Owner,
    Record,
    World,
    offsets_of,
    play,
)

ONE = TOPICS[:1]
HISTORIES, STEPS = (2_000 if LONG else 20), 250
FINDS_AT = {"end": 12, "afresh": 1043, "orphans": 1043}
"""The first history that shows what a rule is for, where that is a late one."""


@pytest.mark.parametrize("topics", [ONE, TOPICS])
def test_histories_of_owners_break_no_promise(tmp_path: Path, topics: tuple[str, ...]) -> None:
    landed = sum(play(tmp_path / str(seed), seed, STEPS, topics=topics) for seed in range(HISTORIES))
    assert landed > 5 * HISTORIES


@pytest.mark.parametrize("rule", sorted({*RULES} - {"history", "age"}))
def test_some_history_needs_each_rule(tmp_path: Path, rule: str) -> None:
    first, topics = FINDS_AT.get(rule, 0), TOPICS if rule in OF_SEVERAL else ONE
    with pytest.raises(BrokenError):
        for seed in range(first, first + 100):
            play(tmp_path / str(seed), seed, STEPS, rule, topics)


def drive(world: World, host: int, until: Callable[[], bool] = lambda: True) -> None:
    """Let an owner process all there is, and more until that."""
    owner = world.assigned = Owner(world, host, 0)
    for _ in owner.life():
        if offsets_of(owner.known) == {topic: len(of) for topic, of in world.input.items()} and until():
            break
    owner.close()


@pytest.mark.parametrize("rule", ["", "history"])
def test_store_of_a_lost_end_is_restored(tmp_path: Path, rule: str) -> None:
    """The changelog loses a commit, goes on without it, and gets longer than a store that has it."""
    world = World(tmp_path, 0, rule)
    world.input["t"] = [Record(b"a", 1, 5), Record(b"lost", 1, 5)]

    def story() -> None:
        with leaving_out(rule):
            drive(world, 0)
            start = world.starts.pop()
            world.log = [each for each in world.log if each[0] < start]
            upto, world.end, world.harmed = world.end, start, True
            world.seek_to({"t": 2})
            world.input["t"] += [Record(b"a", 1, 5)] * 9
            drive(world, 1, lambda: world.end > upto and not world.asks)
            world.input["t"].append(Record(b"lost", 1, 5))
            drive(world, 0)

    tell(story, rule)
    assert rule or world.truth.places["t"].offset == len(world.input["t"])


@pytest.mark.parametrize("rule", ["", "afresh"])
def test_lost_commit_is_not_taken_from_a_store(tmp_path: Path, rule: str) -> None:
    """The changelog loses a commit, and aborted transactions take its offsets. The host that has it starts again."""
    world = World(tmp_path, 0, rule)
    with leaving_out(rule):
        drive(world, 0)
        start = world.starts.pop()
        world.log = [each for each in world.log if each[0] < start]
        world.harmed = True
        owner = world.assigned = Owner(world, 0, 0)
        for _ in islice(owner.life(), 3):  # it reads the group, claims, and takes the shard up
            pass
        assert bool(owner.states.status()[TP].differs) is not bool(rule)
        owner.close()


@pytest.mark.parametrize("rule", ["", "age"])
def test_store_that_was_not_current_for_long_is_restored(tmp_path: Path, rule: str) -> None:
    """Another host deletes a key, and Kafka forgets the deletion."""
    world = World(tmp_path, 0, rule)
    world.input["t"] = [Record(b"a", 1, 5), Record(b"b", 1, 5)]

    def story() -> None:
        with leaving_out(rule):
            drive(world, 0)
            world.input["t"].append(Record(b"a", 0, 5))
            drive(world, 1)
            world.clock += 2 * RETENTION
            world._compact()
            world.input["t"].append(Record(b"a", 1, 5))
            drive(world, 0)

    tell(story, rule)
    assert rule or world.truth.places["t"].offset == len(world.input["t"])


def tell(story: Callable[[], None], rule: str) -> None:
    if rule:
        with pytest.raises(BrokenError, match="a batch is not what its records say"):
            story()
    else:
        story()
