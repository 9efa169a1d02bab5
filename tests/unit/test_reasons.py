"""Why a partition moves: each cause in the smallest situation that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from muster.core.assignors import Assignor, AssignorError, PlanningContext, load_assignor
from muster.core.model import (
    Assignment,
    Consumer,
    Membership,
    TopicSnapshot,
)
from muster.core.preview import AS_IT_IS, WhatIf, preview
from muster.core.reasons import Cause, PlannedMove
from tests.support.plans import live, topic


class Steered:
    """Gives each partition where `rule` says, by what it is given."""

    name = "steered"

    def __init__(self, rule: Callable[..., str]) -> None:
        self.rule = rule

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        pins: Mapping[str, Mapping[int, str]],
        exclusions: Mapping[str, frozenset[str]],
        racks: Mapping[str, Mapping[int, str]],
        loads: Mapping[str, Mapping[int, float]],
        standbys: Mapping[str, Mapping[int, tuple[str, ...]]],
    ) -> Assignment:
        known = PlanningContext(pins, exclusions, racks, loads, standbys)
        return {
            t: {p: self.rule(t, p, consumers, previous.get(t, {}).get(p), known) for p in topics[t]}
            for t in topics
        }


def only_move(
    snapshot: TopicSnapshot,
    membership: Membership,
    assignor: Assignor | str = "sticky",
    known: PlanningContext | None = None,
    what_if: WhatIf = AS_IT_IS,
) -> PlannedMove:
    chosen = load_assignor(assignor) if isinstance(assignor, str) else assignor
    (move,) = preview([snapshot], membership, chosen, known or PlanningContext(), what_if).moves
    return move


@pytest.mark.parametrize(
    ("snapshot", "membership", "cause", "text"),
    [
        (topic({}, 1, state=False), live("a"), Cause.FIRST, "first assignment"),
        (topic({}, 1), live("a"), Cause.UNOWNED, "no consumer held it"),
        (topic({0: "a"}, 2), live("a"), Cause.NEW_PARTITION, "new partition"),
        (topic({0: "a", 1: "a"}, 1), live("a"), Cause.VANISHED, "partition vanished from Kafka"),
        (topic({0: "a", 1: "b"}), live("b"), Cause.LEFT, "consumer a left"),
        (topic({0: "a", 1: "b"}), live("b", isolated="a"), Cause.ISOLATED, "consumer a was isolated"),
        (topic({0: "a", 1: "a"}), live("a", "b"), Cause.JOINED, "consumer b joined"),
        (
            topic({0: "a"}),
            live(Consumer("a", topics=frozenset({"u"})), "b"),
            Cause.SUBSCRIPTION,
            "consumer a does not subscribe to topic t",
        ),
        (topic({0: "a", 1: "a", 2: "a", 3: "b"}), live("a", "b"), Cause.BALANCE, "balance"),
    ],
)
def test_reason_follows_from_the_facts(
    snapshot: TopicSnapshot, membership: Membership, cause: Cause, text: str
) -> None:
    move = only_move(snapshot, membership)
    assert (move.cause, move.reason) == (cause, text)


def test_the_rule_of_the_assignor_where_balance_does_not_gain() -> None:
    swapped = topic({0: "b", 1: "a"})
    moves = preview([swapped], live("a", "b"), load_assignor("range")).moves
    assert [m.cause for m in moves] == [Cause.RULE, Cause.RULE]
    assert moves[0].reason == "assignor range deals it so"


def test_a_promoted_standby() -> None:
    def promote(t: str, p: int, consumers: object, before: str | None, known: PlanningContext) -> str:
        return known.standbys[t][p][0]

    before = topic({0: "a"})
    assert before.assignment is not None
    before = replace(before, assignment=replace(before.assignment, standbys={0: ("c",)}))
    move = only_move(before, live("b", "c"), Steered(promote))
    assert (move.target, move.cause) == ("c", Cause.STANDBY)
    assert move.reason == "consumer a left; its standby c is promoted"


def stay_or(chosen: Callable[[int, PlanningContext], str | None]) -> Steered:
    def rule(t: str, p: int, consumers: object, before: str | None, known: PlanningContext) -> str:
        return chosen(p, known) or before or "a"

    return Steered(rule)


def test_a_pin_and_what_makes_room_for_it() -> None:
    def rule(p: int, known: PlanningContext) -> str | None:
        return {0: "b", 1: "a"}[p] if known.pins else None

    found = preview(
        [topic({0: "a", 1: "b"})], live("a", "b"), stay_or(rule), PlanningContext(pins={"t": {0: "b"}})
    )
    assert [(m.partition, m.cause, m.reason) for m in found.moves] == [
        (0, Cause.PIN, "pinned to b"),
        (1, Cause.PIN, "makes room for a pinned partition"),
    ]


def test_move_names_the_exclusion() -> None:
    move = only_move(
        topic({0: "a"}),
        live("a", "b"),
        stay_or(lambda p, known: "b" if known.exclusions else None),
        PlanningContext(exclusions={"a": frozenset({"t"})}),
    )
    assert (move.cause, move.reason) == (Cause.EXCLUSION, "consumer a is excluded from topic t")


def test_move_names_the_zone_of_the_leader() -> None:
    move = only_move(
        topic({0: "a", 1: "b"}),
        live(Consumer("a", zone="x"), Consumer("b", zone="y")),
        stay_or(lambda p, known: "b" if known.racks else None),
        PlanningContext(racks={"t": {0: "y"}}),
    )
    assert (move.cause, move.reason) == (Cause.ZONE, "its leader is in zone y, as is b")


def test_move_names_the_measured_load() -> None:
    move = only_move(
        topic({0: "a", 1: "b"}),
        live("a", "b"),
        stay_or(lambda p, known: "b" if known.loads else None),
        PlanningContext(loads={"t": {0: 9.0}}),
    )
    assert move.cause is Cause.LOAD


def test_move_names_the_priority() -> None:
    def highest(t: str, p: int, consumers: Mapping[str, Consumer], before: str | None, known: object) -> str:
        return max(sorted(consumers), key=lambda c: (consumers[c].priority, c == before))

    move = only_move(
        topic({0: "a", 1: "b"}), live(Consumer("a", priority=1), Consumer("b", priority=2)), Steered(highest)
    )
    assert (move.cause, move.reason) == (Cause.PRIORITY, "consumer b has priority 2, a has 1")


def test_move_names_the_change_of_assignor() -> None:
    move = only_move(
        topic({0: "a", 1: "a", 2: "b"}),
        live("a", "b"),
        "sticky",
        what_if=WhatIf(assignor=stay_or(lambda p, _: "b" if p == 0 else None)),
    )
    assert (move.cause, move.reason) == (
        Cause.ASSIGNOR,
        "assignor steered moves it, sticky would not",
    )


def test_move_that_the_usual_assignor_makes_too_is_not_attributed_to_another() -> None:
    move = only_move(
        topic({0: "a", 1: "a", 2: "a", 3: "b"}),
        live("a", "b"),
        "sticky",
        what_if=WhatIf(assignor=load_assignor("sticky")),
    )
    assert move.cause is Cause.BALANCE


def test_move_names_changed_attributes() -> None:
    move = only_move(
        topic({0: "a", 1: "a", 2: "b", 3: "b"}),
        live("a", "b"),
        what_if=WhatIf(joining={"b": Consumer("b", weight=3)}),
    )
    assert (move.source, move.target, move.cause) == ("a", "b", Cause.ATTRIBUTES)
    assert move.reason == "attributes of b changed"


def test_an_assignor_that_fails_without_part_of_the_context_explains_nothing_and_harms_nothing() -> None:
    def rule(p: int, known: PlanningContext) -> str | None:
        if not known.loads:
            raise AssignorError("it needs loads")
        return "b"

    move = only_move(
        topic({0: "a", 1: "b"}), live("a", "b"), stay_or(rule), PlanningContext(loads={"t": {0: 9.0}})
    )
    assert move.cause is Cause.RULE
