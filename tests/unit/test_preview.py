"""What a preview supposes, measures and refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.assignors import PlanningContext, load_assignor
from muster.core.comparison import balance_of, resulting
from muster.core.model import Consumer, Membership, State, TopicState
from muster.core.preview import WhatIf, WhatIfError, preview
from tests.support.plans import live, topic

STICKY = load_assignor("sticky")


def test_a_balanced_cluster_has_nothing_to_move() -> None:
    found = preview([topic({0: "a", 1: "b"})], live("a", "b"), STICKY)
    assert found.moves == ()
    assert found.before == found.after
    assert (found.before.least, found.before.most, found.before.unowned) == (1, 1, 0)


def test_partitions_of_a_removed_consumer_go_and_the_shares_show_it() -> None:
    found = preview(
        [topic({0: "a", 1: "b", 2: "a"})],
        live("a", "b"),
        STICKY,
        what_if=WhatIf(without=frozenset({"b"})),
    )
    assert [(m.partition, m.source, m.target) for m in found.moves] == [(1, "b", "a")]
    assert [(s.consumer, s.before, s.after) for s in found.shares] == [("a", 2, 3), ("b", 1, 0)]


def test_preview_without_any_consumer_is_held_and_moves_nothing() -> None:
    found = preview([topic({0: "a"})], live("a"), STICKY, what_if=WhatIf(without=frozenset({"a"})))
    assert "no consumer is live" in found.held
    assert found.moves == ()
    assert found.owners == {"t": {0: "a"}}
    assert found.after.unowned == 1


def test_topic_without_subscribers_stays_with_its_owner() -> None:
    found = preview([topic({0: "gone"})], live(Consumer("a", topics=frozenset({"u"}))), STICKY)
    assert found.moves == ()
    assert found.owners == {"t": {0: "gone"}}


def test_an_isolated_consumer_can_be_supposed_to_be_back() -> None:
    found = preview(
        [topic({0: "a", 1: "a"})],
        live("a", isolated="b"),
        STICKY,
        what_if=WhatIf(joining={"b": Consumer("b")}),
    )
    assert [(m.target, m.reason) for m in found.moves] == [("b", "consumer b joined")]


def test_fewer_partitions_vanish_and_more_are_new() -> None:
    fewer = preview([topic({0: "a", 1: "a"})], live("a"), STICKY, what_if=WhatIf(partitions={"t": 1}))
    assert [(m.partition, m.target) for m in fewer.moves] == [(1, None)]
    more = preview([topic({0: "a"})], live("a"), STICKY, what_if=WhatIf(partitions={"t": 2}))
    assert [(m.partition, m.target, m.reason) for m in more.moves] == [(1, "a", "new partition")]


def test_idle_consumer_has_not_joined_with_partitions_supposed() -> None:
    found = preview([topic({0: "a", 1: "a"}, 2)], live("a", "b"), STICKY, what_if=WhatIf(partitions={"t": 2}))
    assert [m.reason for m in found.moves] == ["balance"]


def test_a_topic_under_way_is_named_and_planned_from_where_it_goes() -> None:
    snapshot = topic({0: "a"}, 2)
    closing = TopicState(State.CLOSING, {"b": frozenset({1})}, {"a": frozenset({1})})
    found = preview([replace(snapshot, state=closing)], live("a", "b"), STICKY)
    assert found.under_way == {"t": State.CLOSING}
    assert found.moves == ()


def test_pins_that_cannot_be_obeyed_are_named() -> None:
    pins = {"t": {0: "gone", 1: "a", 7: "a"}, "u": {0: "a"}}
    found = preview(
        [topic({0: "a", 1: "a"}), topic({0: "b"}, name="u")],
        Membership({"a": Consumer("a", topics=frozenset({"t"})), "b": Consumer("b")}),
        STICKY,
        PlanningContext(pins=pins),
    )
    assert len(found.impossible_pins) == 3
    assert "partition 0: the pin to" in found.impossible_pins[0]
    assert "'gone'" in found.impossible_pins[0]
    assert "7" in found.impossible_pins[1]
    assert "does not subscribe" in found.impossible_pins[2]


def test_pin_to_a_consumer_that_is_leaving_is_not_obeyed_and_named() -> None:
    pins = PlanningContext(pins={"t": {1: "b"}})
    found = preview([topic({0: "a", 1: "b"})], live("a", Consumer("b", leaving=True)), STICKY, pins)
    assert found.owners == {"t": {0: "a", 1: "a"}}
    assert found.impossible_pins == (
        "topic 't', partition 1: the pin to consumer 'b' cannot be obeyed: the consumer is leaving",
    )


@pytest.mark.parametrize(
    ("what_if", "message"),
    [
        (WhatIf(without=frozenset({"x"})), "consumer 'x': there is no such live consumer; live are: a, b"),
        (WhatIf(without=frozenset({"i"})), "consumer 'i': it is isolated; live are: a, b"),
        (WhatIf(frozenset({"a"}), {"a": Consumer("a")}), "consumer 'a' cannot both be there and be gone"),
        (WhatIf(partitions={"x": 3}), "there is no topic 'x'; there are: t"),
        (WhatIf(partitions={"t": 0}), "topic 't': 0 is not a number of partitions"),
    ],
)
def test_impossible_supposition_is_refused_with_the_valid_choices(what_if: WhatIf, message: str) -> None:
    with pytest.raises(WhatIfError) as caught:
        preview([topic({0: "a"})], live("a", "b", isolated="i"), STICKY, what_if=what_if)
    assert message in str(caught.value)


def test_long_lists_of_names_are_cut() -> None:
    everybody = live(*(f"c{n:03}" for n in range(100)))
    with pytest.raises(WhatIfError, match="c019 and 80 more"):
        preview([topic({0: "c001"})], everybody, STICKY, what_if=WhatIf(without=frozenset({"x"})))


def test_balance_is_measured_with_and_without_weights() -> None:
    consumers = {"a": Consumer("a", weight=2), "b": Consumer("b"), "c": Consumer("c", weight=0.5)}
    measured = balance_of({"t": {0: "a", 1: "a", 2: "b", 3: "gone"}}, {"t": frozenset(range(5))}, consumers)
    assert (measured.consumers, measured.partitions, measured.unowned) == (3, 3, 2)
    assert (measured.least, measured.most) == (0, 2)
    assert (measured.least_per_weight, measured.most_per_weight) == (0, 1)
    assert str(measured) == (
        "0 to 2 partitions a consumer (0 to 1 per unit of weight), 2 without a live owner"
    )


def test_untaken_partition_keeps_its_owner_and_a_vanished_one_is_gone() -> None:
    assert resulting({"t": {0: "x", 1: "x"}, "u": {0: "x"}}, {"t": {2: "a"}}, {"t": frozenset({0, 2})}) == {
        "t": {0: "x", 2: "a"}
    }
