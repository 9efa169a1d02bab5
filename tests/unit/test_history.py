"""What the history says of a transition, and what a reader makes of it, and of malformed entries."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.history import (
    LONGEST_DETAILS,
    MOVES_BYTES,
    CommandEntry,
    Step,
    Transitions,
    Unreadable,
    entry_name,
    entry_number,
    format_entry,
    history_path,
    parse_entry,
    step_of,
)
from muster.core.model import Move, State, TopicAssignment, TopicSnapshot, TopicState, Transition
from muster.core.wire import WireError

NOW = 1_000_000.5
IDS = st.sampled_from(["a", "b-1", "c.x"])


def read(data: bytes) -> Transitions | CommandEntry | Unreadable:
    return parse_entry(data, "/h/entry-0000000001", 7.0)


def transition(before: TopicState | None, after: TopicState, *moves: Move) -> Transition:
    assignment = TopicAssignment("h:1", "g", {0: "a"})
    return Transition(TopicSnapshot("t", frozenset({0}), assignment, 1, before, 1), assignment, after, moves)


@given(
    st.lists(
        st.builds(
            Move,
            st.just("t"),
            st.integers(0, 30),
            st.none() | IDS,
            st.none() | IDS,
            st.sampled_from(["x", "y; z"]),
        ),
        max_size=20,
        unique_by=lambda move: move.partition,
    )
)
def test_transitions_are_read_as_they_were_written(moves: list[Move]) -> None:
    ordered = tuple(sorted(moves, key=lambda move: move.partition))
    step = Step("t", State.STABLE, State.CLOSING, 4, "why", 1.25, ordered, len(ordered))
    assert read(format_entry(Transitions(NOW, "dag run", (step,)))) == Transitions(NOW, "dag run", (step,))


def test_a_lever_is_read_as_it_was_written() -> None:
    lever = CommandEntry(NOW, "ann", "isolate", "disk full", "command line", {"consumer": "a"})
    assert read(format_entry(lever)) == lever
    with pytest.raises(ValueError, match=r"isolate.*details take more"):
        format_entry(CommandEntry(NOW, "ann", "isolate", "", details={"x": "y" * LONGEST_DETAILS}))


def test_moves_are_cut_evenly_over_the_topics_of_a_write_and_all_are_counted() -> None:
    def step(topic: str, count: int) -> Step:
        moves = tuple(Move(topic, p, None, f"consumer-{p}", "first assignment") for p in range(count))
        return Step(topic, State.INITIAL, State.STARTING, 1, "first assignment", 0.0, moves, count)

    steps = [step(f"t{n}", 100) for n in range(500)] + [step("big", 50_000)]
    data = format_entry(Transitions(NOW, "", tuple(steps)))
    assert len(data) < MOVES_BYTES * 1.5 + 501 * 200
    found = read(data)
    assert isinstance(found, Transitions)
    assert [s.moved for s in found.steps] == [100] * 500 + [50_000]
    assert all(0 < len(s.moves) < 100 for s in found.steps)
    assert found.steps[0].moves == steps[0].moves[: len(found.steps[0].moves)]
    # A topic by itself has all of it.
    alone = read(format_entry(Transitions(NOW, "", (step("t", 100),))))
    assert isinstance(alone, Transitions)
    assert len(alone.steps[0].moves) == 100


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"null",
        b'{"kind": "other"}',
        b'{"kind": "lever"}',
        b'{"kind": "transitions", "at": "never", "steps": []}',
        b'{"kind": "transitions", "at": "2026-11-22T07:00:00Z", "steps": [{"topic": "t"}]}',
        b'{"kind": "transitions", "at": 1e300, "steps": []}',
    ],
)
def test_malformed_entry_is_shown_as_such_with_the_time_it_came(data: bytes) -> None:
    found = read(data)
    assert isinstance(found, Unreadable)
    assert found.at == 7.0
    assert "/h/entry-0000000001" in found.problem


def test_unknown_keys_are_ignored() -> None:
    entry = json.loads(format_entry(CommandEntry(NOW, "ann", "pin", "cache"))) | {"later": 1}
    assert read(json.dumps(entry).encode()) == CommandEntry(NOW, "ann", "pin", "cache")


def test_a_step_says_how_long_the_rebalance_took_so_far() -> None:
    closing = TopicState(State.CLOSING, since=NOW - 4, reason="consumer b joined")
    stable = TopicState(State.STABLE, since=NOW, reason="consumer b joined")
    assert step_of(transition(closing, stable), NOW) == Step(
        "t", State.CLOSING, State.STABLE, 0, "consumer b joined", 4.0
    )
    move = Move("t", 0, None, "a", "first assignment")
    first = step_of(
        transition(None, TopicState(State.STARTING, since=NOW, reason="first assignment"), move), NOW
    )
    assert (first.before, first.lasted, first.moves, first.moved) == (State.INITIAL, 0.0, (move,), 1)


def test_a_step_that_leaves_a_topic_stable_does_not_repeat_the_reason_of_the_last_rebalance() -> None:
    stable = TopicState(State.STABLE, since=1.0, reason="consumer b joined")
    waiting = TopicState(State.STABLE, since=1.0, reason="consumer b joined", missing={"b": NOW})
    assert step_of(transition(stable, waiting), NOW).reason == "consumer b is missing; waiting for it"
    assert step_of(transition(waiting, stable), NOW).reason == "consumer b is no longer waited for"
    assert step_of(transition(stable, stable), NOW).reason == "topic id noted"


def test_names_of_entries_carry_their_number() -> None:
    assert history_path("c") == "/consumers/c/history"
    with pytest.raises(WireError):
        history_path("a/b")
    assert entry_number(entry_name(42)) == 42
    assert entry_number("rubbish") is None
