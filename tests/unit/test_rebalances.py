"""Rebalances as they are put together from the history, and what `muster history` shows of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from muster.cli import history as command
from muster.cli.main import main
from muster.core.history import CommandEntry, Record, Step, Transitions, Unreadable
from muster.core.model import Move, State
from muster.core.rebalances import Phase, Quiet, Rebalance, events
from tests.support.simulated import SimulatedCluster
from tests.support.sources import opener

INITIAL, STARTING, STABLE, CLOSING = State.INITIAL, State.STARTING, State.STABLE, State.CLOSING
JOINED = "consumer b joined"
MOVE = Move("t", 3, "a", "b", JOINED)


def step(before: State, after: State, lasted: float = 0.0, *moves: Move, topic: str = "t") -> Step:
    return Step(topic, before, after, 1, JOINED, lasted, moves, len(moves))


def log(*entries: tuple[float, Step] | CommandEntry | Unreadable, by: str = "dag run") -> list[Record]:
    return [
        Record(number, entry.at, entry)
        if isinstance(entry, CommandEntry | Unreadable)
        else Record(number, entry[0], Transitions(entry[0], by, (entry[1],)))
        for number, entry in enumerate(entries)
    ]


A_REBALANCE = [
    (10.0, step(STABLE, CLOSING, 0.0, MOVE)),
    (11.0, step(CLOSING, CLOSING, 1.0)),
    (13.0, step(CLOSING, STARTING, 3.0)),
    (14.5, step(STARTING, STABLE, 4.5)),
]


def test_a_rebalance_has_its_phases_moves_and_author() -> None:
    assert events(log(*A_REBALANCE), 99.0) == [
        Rebalance(
            "t", 10.0, 14.5, (Phase(CLOSING, 3.0), Phase(STARTING, 1.5)), (MOVE,), 1, (JOINED,), ("dag run",)
        )
    ]


def test_unfinished_rebalance_goes_on_until_now() -> None:
    [found] = events(log(*A_REBALANCE[:3]), 20.0)
    assert isinstance(found, Rebalance)
    assert found.ended is None
    assert found.phases == (Phase(CLOSING, 3.0), Phase(STARTING, 7.0))
    assert found.seconds == 10.0


def test_rebalance_whose_beginning_was_pruned_says_so_and_knows_when_it_was() -> None:
    [found] = events(log(*A_REBALANCE)[2:], 20.0)
    assert isinstance(found, Rebalance)
    assert (found.whole, found.began, found.ended) == (False, 10.0, 14.5)
    assert found.phases == (Phase(CLOSING, 3.0), Phase(STARTING, 1.5))


def test_topics_levers_and_malformed_entries_are_listed_newest_first() -> None:
    other = [(12.0, step(INITIAL, STARTING, topic="u")), (15.0, step(STARTING, STABLE, 3.0, topic="u"))]
    lever, rubbish = CommandEntry(9.0, "ann", "isolate", "disk full"), Unreadable(13.5, "holds rubbish")
    found = events(log(lever, *A_REBALANCE[:2], other[0], rubbish, *A_REBALANCE[2:], other[1]), 20.0)
    assert [getattr(event, "topic", "") for event in found] == ["", "u", "t", ""]
    assert found[0] == rubbish
    assert found[-1] == lever
    assert [event.seconds for event in found if isinstance(event, Rebalance)] == [3.0, 4.5]


def test_a_step_that_leaves_the_topic_stable_is_no_rebalance_unless_something_moved() -> None:
    quiet, moved = step(STABLE, STABLE), step(STABLE, STABLE, 0.0, MOVE)
    assert events(log((5.0, quiet)), 9.0) == [Quiet("t", 5.0, JOINED, "dag run")]
    [found] = events(log((5.0, moved)), 9.0)
    assert isinstance(found, Rebalance)
    assert (found.ended, found.phases, found.moves) == (5.0, (), (MOVE,))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    path = tmp_path / "clusters.yaml"
    monkeypatch.setenv("MUSTER_CLUSTERS", str(path))
    cluster = {"consul_service": "c", "group_id": "g", "topics": ["t", "u"], "consumers": {"handler": "a.b"}}
    path.write_text(yaml.safe_dump({"clusters": {"c": cluster}}))
    return SimulatedCluster()


def muster_history(world: SimulatedCluster, *args: str) -> Result:
    return CliRunner().invoke(main, ["history", "--cluster", "c", *args], obj=opener(world.store, world))


def test_the_command_shows_what_moved_why_how_long_and_by_whom(world: SimulatedCluster) -> None:
    lever = CommandEntry(
        9.0, "ann", "pin", "has the cache", "command line", {"topic": "t", "partitions": "3"}
    )
    world.store.record(log(lever, *A_REBALANCE))
    shown = muster_history(world)
    assert shown.exit_code == 0
    assert shown.output == (
        "1970-01-01 00:00:10Z  topic t  1 partition(s) to move, ended 1970-01-01 00:00:14Z, 4.5 s "
        "(Closing 3.0 s, Starting 1.5 s)\n"
        "    a -> b: 3 (consumer b joined)\n"
        "    by dag run\n"
        "1970-01-01 00:00:09Z  command pin  partitions 3, topic t\n"
        "    by ann: has the cache (via command line)\n"
        "history: cluster c, 2 event(s)\n"
    )
    plain = json.loads(muster_history(world, "--json").output)
    assert plain["cluster"] == "c"
    rebalance, pulled = plain["events"]
    assert rebalance["phases"] == [
        {"state": "Closing", "seconds": 3.0},
        {"state": "Starting", "seconds": 1.5},
    ]
    assert rebalance["moves"] == [{"partition": 3, "from": "a", "to": "b", "why": JOINED}]
    assert (rebalance["by"], rebalance["ended"]) == (["dag run"], "1970-01-01T00:00:14.500+00:00")
    assert (pulled["kind"], pulled["who"], pulled["what"]) == ("lever", "ann", "pin")


def test_limit_reads_on_until_a_rebalance_is_whole(
    world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAGE", 2)
    later = [(at + 100, each) for at, each in A_REBALANCE]
    world.store.record(log(*A_REBALANCE, *later))
    found = json.loads(muster_history(world, "--limit", "1", "--json").output)["events"]
    assert [(event["began"][:19], event["moved"], event["whole"]) for event in found] == [
        ("1970-01-01T00:01:50", 1, True)
    ]
    assert len(json.loads(muster_history(world, "--json").output)["events"]) == 2


def test_since_and_topic_choose(world: SimulatedCluster) -> None:
    now = time.time()
    old = [(now - 7200 + at, each) for at, each in A_REBALANCE]
    other = [
        (now - 60, step(INITIAL, STARTING, topic="u")),
        (now - 50, step(STARTING, STABLE, 10, topic="u")),
    ]
    world.store.record(log(*old, *other))

    def topics(*args: str) -> list[str]:
        return [
            event["topic"] for event in json.loads(muster_history(world, "--json", *args).output)["events"]
        ]

    assert topics() == ["u", "t"]
    assert topics("--since", "1h") == ["u"]
    assert topics("--since", "3h", "--topic", "t") == ["t"]
    wrong = muster_history(world, "--since", "yesterday")
    assert wrong.exit_code == 2
    assert "not a duration" in wrong.output


def test_empty_history_says_that_nothing_is_recorded(world: SimulatedCluster) -> None:
    assert muster_history(world).output == "history: cluster c, 0 event(s); nothing is recorded\n"
