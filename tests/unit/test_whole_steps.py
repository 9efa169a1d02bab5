"""Whole steps of a topic, with each field of both nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.core.model import (
    ConsumerStatus,
    Membership,
    Move,
    Return,
    Seek,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    Transition,
)
from muster.core.patience import Patience, Policy, Replies
from muster.core.state_machine import CREATED_AGAIN, WENT_BACK, advance, consumers_to_ask, recreated
from tests.support.snapshots import NOW, members, status

A, B, C, D = "abcd"
NODE = TopicAssignment(
    "k:9092",
    "g",
    {0: A, 1: A, 2: B, 3: B},
    7,
    {0: (C, B), 2: (C,)},
    "id",
    frozenset({3}),
    {2: Seek("s", 40)},
)
QUIET = TopicState(
    State.STABLE,
    {},
    {},
    7,
    4_000.0,
    "before",
    missing={B: NOW - 50},
    returned={A: Return(NOW - 10, 20.0)},
)
CLOSES = replace(
    QUIET,
    state=State.CLOSING,
    to_start={A: frozenset({2}), D: frozenset({1, 3, 4})},
    to_close={A: frozenset({1}), B: frozenset({2, 3})},
    epoch=8,
    since=NOW,
)
"""Partitions 1 to 3 leave their owners; the reason is not that of the step."""


def snapshot(
    state: TopicState | None = QUIET, node: TopicAssignment = NODE, partitions: int = 4
) -> TopicSnapshot:
    return TopicSnapshot("t", frozenset(range(partitions)), node, 3, state, 5)


def step(
    before: TopicSnapshot,
    membership: Membership,
    targets: dict[int, str],
    statuses: dict[str, ConsumerStatus] | None = None,
    *,
    delay: float = 100.0,
    heard: Replies | None = None,
    **more: Any,
) -> Transition | None:
    replies = replace(heard or Replies(), statuses=statuses or {})
    return advance(before, Patience(Policy(delay), membership, replies), targets, NOW, **more)


@pytest.mark.parametrize("closing", [{}, {C: frozenset({4})}])
def test_recreated_topic_keeps_all_but_what_starts_again(closing: dict[str, frozenset[int]]) -> None:
    before = snapshot(replace(QUIET, to_close=closing, to_start={D: frozenset({4}), A: frozenset({1})}))
    name = State.CLOSING if closing else State.STARTING
    assert recreated(before, "new", NOW) == Transition(
        before,
        replace(NODE, topic_id="new", epoch=8, seeks={}),
        TopicState(
            name,
            {A: frozenset({0, 1}), B: frozenset({2, 3}), D: frozenset({4})},
            closing,
            8,
            NOW,
            CREATED_AGAIN,
            missing=QUIET.missing,
            returned=QUIET.returned,
        ),
    )


def test_recreated_topic_in_a_rebalance_keeps_its_beginning() -> None:
    before = snapshot(replace(QUIET, state=State.STARTING, to_start={A: frozenset({0})}))
    found = recreated(before, "new", NOW)
    assert found is not None
    assert (found.state.since, found.state.reason) == (4_000.0, f"before; {CREATED_AGAIN}")
    assert recreated(found.before, "id", NOW) is None
    for unknown in (snapshot(None), replace(before, assignment=None)):
        assert recreated(unknown, "new", NOW) is None


WANTED = {0: A, 1: D, 2: A, 3: D, 4: D}
BEFORE = snapshot(partitions=5)
ALL = members(A, B, C, D)
RUN = {**status(A, {0, 1}, epoch=7), **status(B, {2, 3}, epoch=7)}
NEW = Move("t", 4, None, D, "no consumer held it")


def test_step_that_holds_for_an_absent_owner_is_whole() -> None:
    """D takes the new partition, B is held for, and nothing is balanced."""
    assert step(BEFORE, members(A, C, D), WANTED, standbys={1: (C,)}) == Transition(
        BEFORE,
        replace(NODE, owners={**NODE.owners, 4: D}, epoch=8),
        replace(
            QUIET,
            state=State.STARTING,
            to_start={D: frozenset({4})},
            epoch=8,
            since=NOW,
            reason="no consumer held it",
        ),
        (NEW,),
    )


def test_step_that_gives_an_absent_owner_up_is_whole() -> None:
    standbys = {1: (C,), 2: (B, C, A)}
    assert step(BEFORE, members(A, C, D), WANTED, standbys=standbys, delay=50.0) == Transition(
        BEFORE,
        replace(NODE, owners={0: A, 4: D}, epoch=8, standbys={1: (C,), 2: (C,)}),
        replace(
            CLOSES,
            reason="consumer b left; consumer d joined; no consumer held it",
        ),
        (
            Move("t", 2, B, A, "consumer b left"),
            Move("t", 3, B, D, "consumer b left"),
            NEW,
            Move("t", 1, A, D, "consumer d joined"),
        ),
    )


def test_step_that_balances_is_whole() -> None:
    """B is back, and is left nothing."""
    standbys = {1: (C, D), 2: (B, C, A)}
    assert step(BEFORE, ALL, WANTED, RUN, standbys=standbys, reasons={1: "wished"}) == Transition(
        BEFORE,
        replace(NODE, owners={0: A, 4: D}, epoch=8, standbys={1: (C,), 2: (B, C)}),
        replace(
            CLOSES,
            reason="balance; consumer d joined; no consumer held it; wished",
            missing={},
        ),
        (
            NEW,
            Move("t", 1, A, D, "wished"),
            Move("t", 2, B, A, "balance"),
            Move("t", 3, B, D, "consumer d joined"),
        ),
    )


def test_step_of_a_consumer_that_is_back_is_whole() -> None:
    targets = {**NODE.owners, 4: D}
    back = {A: QUIET.returned[A], B: Return(NOW, 50.0)}
    quiet = step(snapshot(), ALL, dict(NODE.owners), RUN, standbys=NODE.standbys)
    assert quiet == Transition(snapshot(), NODE, replace(QUIET, missing={}, returned=back))
    partly = {**RUN, **status(B, {2}, epoch=7)}
    assert step(BEFORE, ALL, targets, partly, standbys=NODE.standbys) == Transition(
        BEFORE,
        replace(NODE, owners=targets, epoch=8),
        replace(
            QUIET,
            state=State.STARTING,
            to_start={B: frozenset({3}), D: frozenset({4})},
            epoch=8,
            since=NOW,
            reason="consumer b does not run what it owns; no consumer held it",
        ),
        (NEW,),
    )


def test_first_step_of_a_leaving_topic_is_whole() -> None:
    why = "unsubscribed by ann"
    assert step(BEFORE, ALL, {}, RUN, leaving=why) == Transition(
        BEFORE,
        replace(NODE, owners={}, epoch=8, standbys={}),
        TopicState(
            State.CLOSING,
            {},
            {A: frozenset({0, 1}), B: frozenset({2, 3})},
            8,
            NOW,
            why,
        ),
        tuple(Move("t", p, owner, None, why) for p, owner in NODE.owners.items()),
    )


def test_step_by_what_consumers_report_is_whole() -> None:
    """1 is started by A and run by B, and D starts 4 by an epoch that is lost."""
    lost = snapshot(None, partitions=5)
    reports = {
        **status(A, {0}, {1}, epoch=7),
        **status(B, {1, 2, 3}, epoch=7),
        **status(C, epoch=7),
        **status(D, set(), {4}, epoch=8),
    }
    assert step(lost, ALL, WANTED, reports) == Transition(
        lost,
        replace(NODE, owners={0: A, 2: B, 3: B, 4: D}, epoch=9, standbys={2: (C,)}),
        TopicState(
            State.CLOSING,
            {A: frozenset({0, 1}), B: frozenset({2, 3}), D: frozenset({4})},
            {B: frozenset({1})},
            9,
            NOW,
            WENT_BACK,
        ),
    )


def test_hand_over_goes_on_by_a_whole_step() -> None:
    """C has closed 0 for B; A has not closed 1 yet, and B runs 2 only."""
    node = replace(NODE, owners={2: B, 3: B}, standbys={})
    moving = replace(
        QUIET,
        state=State.CLOSING,
        to_start={B: frozenset({0, 1, 2, 3})},
        to_close={C: frozenset({0}), A: frozenset({1})},
        missing={},
        returned={},
    )
    before = snapshot(moving, node)
    reports = {**status(A, set(), set(), {1}, epoch=7), **status(B, {2}, {3}, epoch=7), **status(C, epoch=7)}
    assert step(before, ALL, dict.fromkeys(range(4), B), reports) == Transition(
        before,
        replace(node, owners={0: B, 2: B, 3: B}, epoch=8),
        replace(
            moving, to_start={B: frozenset({0, 1, 3})}, to_close={A: frozenset({1})}, epoch=8, reason="before"
        ),
    )


def test_step_asks_all_that_it_depends_on() -> None:
    there = members(A, B, failing=("f",), outside=("o",), older=("x",))
    owned = replace(snapshot(replace(QUIET, missing={})), topic="quiet")
    away = replace(owned, topic="away", assignment=replace(NODE, owners={0: "f", 1: "o", 2: A, 3: "gone"}))
    moving = replace(
        owned,
        topic="moving",
        state=replace(QUIET, to_close={A: frozenset({0})}, to_start={"gone": frozenset({1})}),
    )
    new = replace(owned, topic="new", assignment=None, state=None)
    assert consumers_to_ask([owned, new], there) == {}
    assert consumers_to_ask([owned, away, moving], there) == {
        A: {"moving"},
        B: {"moving"},
        "f": {"away"},
        "o": {"away"},
    }
    stateless = replace(owned, topic="stateless", state=None)
    everyone = (A, B, "f", "o", "x")
    assert consumers_to_ask([owned, moving, stateless], there, {"moving"}) == {
        consumer: {"moving", "stateless"} for consumer in everyone
    }
