"""Pins and exclusions as plain values: what assignors get, and what a move is put down to."""

from __future__ import annotations

from muster.core.overrides import LONGEST_WHY, Drain, Exclusion, Overrides, Pin

DECIDED = Overrides(
    pins={
        ("t", 1): Pin("t", 1, "c", by="ann", at=5.0, why="has the\n cache; really"),
        ("u", 0): Pin("u", 0, "a", by="bob", at=5.0, why=""),
    },
    exclusions={
        ("b", "t"): Exclusion("b", "t", by="ann", at=5.0, why="no GPU"),
        ("b", "u"): Exclusion("b", "u", by="ann", at=5.0, why="no GPU"),
    },
)


def test_assignors_get_them_as_plain_mappings() -> None:
    assert DECIDED.pinned() == {"t": {1: "c"}, "u": {0: "a"}}
    assert DECIDED.excluded() == {"b": frozenset({"t", "u"})}
    assert Overrides().pinned() == Overrides().excluded() == {}


def test_a_move_is_put_down_to_the_pin_it_follows() -> None:
    reasons = DECIDED.reasons("t", {0: "a", 1: "a", 2: "a"}, {0: "c", 1: "c", 2: "a"})
    assert reasons == {1: "pinned to c by ann: has the cache, really"}


def test_a_pin_that_the_plan_does_not_follow_explains_nothing() -> None:
    assert DECIDED.reasons("t", {1: "a"}, {1: "d"}) == {}


def test_a_partition_that_leaves_an_excluded_consumer_says_so_unless_its_pin_says_more() -> None:
    reasons = DECIDED.reasons("t", {0: "b", 1: "b"}, {0: "a", 1: "c"})
    assert reasons[0] == "b excluded from topic t by ann: no GPU"
    assert reasons[1].startswith("pinned to c by ann")


def test_unmoved_partition_needs_no_reason_and_a_why_may_be_missing() -> None:
    assert DECIDED.reasons("u", {0: "a"}, {0: "a"}) == {}
    assert DECIDED.reasons("u", {0: "c"}, {0: "a"}) == {0: "pinned to a by bob"}
    assert DECIDED.reasons("u", {}, {0: "a"}) == {0: "pinned to a by bob"}


def test_a_long_why_is_cut() -> None:
    pin = Pin("t", 0, "c", by="ann", at=0.0, why="x" * 5000)
    assert len(str(pin)) == len("pinned to c by ann: ") + LONGEST_WHY
    assert str(pin).endswith("...")


def test_exclusion_without_a_replacement_is_named() -> None:
    [line] = DECIDED.unobeyed("t", {0: "b", 1: "b", 2: "a"}, {})
    assert line.startswith(
        "consumer b excluded from topic t by ann: no GPU, but keeps 2 partition(s) of it: no other live"
    )
    assert DECIDED.unobeyed("t", {0: "b"}, {0: "a"}) == []


DRAINED = Overrides(drained={"b": Drain("b", by="ann", at=5.0, why="new kernel")})


def test_a_partition_that_leaves_a_drained_consumer_says_so() -> None:
    assert DRAINED.reasons("t", {0: "b", 1: "a"}, {0: "a", 1: "c"}) == {0: "b drained by ann: new kernel"}


def test_a_drain_that_no_other_consumer_can_step_in_for_is_named() -> None:
    [line] = DRAINED.unobeyed("t", {0: "b", 1: "b"}, {})
    assert line == (
        "consumer b drained by ann: new kernel, but keeps 2 partition(s) of topic t: no other live consumer takes "
        "the topic. Start one, or undrain it"
    )
