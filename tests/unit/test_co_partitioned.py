"""Co-partitioned by example: groups, tasks, pins, standbys and their promotion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from muster.core.assignors import AssignorError, PlanningContext, load_assignor, run_assignor
from muster.core.assignors.api import Standbys
from muster.core.assignors.co_partitioned.tasks import Grouping
from muster.core.assignors.run import run_standbys
from muster.core.assignors.subscriptions import Audience
from muster.core.model import Assignment, Consumer


def topics(**counts: int) -> dict[str, frozenset[int]]:
    return {topic: frozenset(range(count)) for topic, count in counts.items()}


def live(names: str, **zones: str) -> dict[str, Consumer]:
    return {name: Consumer(name, zone=zones.get(name)) for name in names.split()}


def assign(
    of: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    previous: Assignment | None = None,
    pins: Assignment | None = None,
    standing: Standbys | None = None,
    unsettled: frozenset[str] = frozenset(),
    racks: Mapping[str, Mapping[int, str]] | None = None,
    **options: Any,
) -> Assignment:
    context = PlanningContext(
        pins=pins or {}, standbys=standing or {}, unsettled=unsettled, racks=racks or {}
    )
    assignor = load_assignor("co-partitioned", options)
    return run_assignor(assignor, of, consumers, previous or {}, context)


def standbys(
    of: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    assignment: Assignment,
    previous: Standbys | None = None,
    **options: Any,
) -> Standbys:
    assignor = load_assignor("co-partitioned", options)
    return run_standbys(assignor, of, consumers, assignment, PlanningContext(standbys=previous or {}))


class TestGroups:
    def test_topics_that_can_be_joined_are_one_group(self) -> None:
        consumers = live("a b") | {"c": Consumer("c", topics=frozenset({"x"}))}
        found = Grouping().of(topics(orders=4, payments=4, clicks=8, x=4, empty=0), consumers)
        assert found == (
            Audience(("clicks",), ("a", "b")),
            Audience(("orders", "payments"), ("a", "b")),
            Audience(("x",), ("a", "b", "c")),
        )

    def test_named_groups_and_the_rest_by_themselves(self) -> None:
        grouping = Grouping([["orders", "pay.*"], ["paypal"]])
        found = grouping.of(topics(orders=4, payments=3, paypal=4, clicks=4, views=4), live("a"))
        assert [group.topics for group in found] == [
            ("clicks",),
            ("orders", "payments"),
            ("paypal",),
            ("views",),
        ]

    def test_consumer_without_the_whole_group_takes_nothing_of_it(self) -> None:
        consumers = live("a b") | {"c": Consumer("c", topics=frozenset({"t"}))}
        assert Grouping([["t", "u"]]).of(topics(t=2, u=2), consumers) == (Audience(("t", "u"), ("a", "b")),)

    def test_group_that_no_consumer_takes_as_a_whole_falls_apart(self) -> None:
        consumers = {n: Consumer(n, topics=frozenset(t.split())) for n, t in {"a": "t v", "b": "u"}.items()}
        assert Grouping([["t", "u", "v"]]).of(topics(t=2, u=2, v=2), consumers) == (
            Audience(("t", "v"), ("a",)),
            Audience(("u",), ("b",)),
        )

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            ("t", "groups must be a list of lists"),
            (["t", "u"], "groups must be a list of lists"),
            ([[]], "groups must be a list of lists"),
            ([["t", 3]], "3 is neither a topic nor a pattern"),
            ([["t"], ["u", "t"]], "'t' is named twice"),
            ([["a(b"]], r"'a\(b' is not a regular expression"),
        ],
    )
    def test_wrong_groups_are_refused(self, groups: object, message: str) -> None:
        with pytest.raises(AssignorError, match=message):
            load_assignor("co-partitioned", {"groups": groups})


class TestTasks:
    def test_partition_n_of_every_topic_goes_to_one_consumer(self) -> None:
        assert assign(topics(t=4, u=4), live("a b")) == {
            "t": {0: "a", 1: "b", 2: "a", 3: "b"},
            "u": {0: "a", 1: "b", 2: "a", 3: "b"},
        }

    def test_unequal_counts_in_a_named_group(self) -> None:
        found = assign(topics(t=2, u=6), live("a b"), groups=[["t", "u"]])
        assert {n: found["u"][n] for n in range(2)} == found["t"]
        assert Counter(c for owners in found.values() for c in owners.values()) == {"a": 4, "b": 4}

    def test_partitions_count_and_not_tasks(self) -> None:
        """Two tasks of three partitions and six of one: one consumer may get two and six, never seven and one."""
        found = assign(topics(t=2, u=2, v=2, w=6), live("a b"))
        assert Counter(c for owners in found.values() for c in owners.values()) == {"a": 6, "b": 6}

    def test_tasks_are_shared_by_weight(self) -> None:
        consumers = live("a b") | {"c": Consumer("c", weight=2.0)}
        found = assign(topics(t=8, u=8), consumers)
        assert Counter(found["t"].values()) == {"a": 2, "b": 2, "c": 4}

    def test_task_that_was_split_goes_to_who_holds_most_of_it(self) -> None:
        before = {"t": {0: "b", 1: "a"}, "u": {0: "b", 1: "a"}, "v": {0: "a", 1: "a"}}
        found = assign(topics(t=2, u=2, v=2), live("a b"), before)
        assert found == {topic: {0: "b", 1: "a"} for topic in "tuv"}

    def test_new_topic_joins_its_group_where_that_is(self) -> None:
        before = {"t": {0: "b", 1: "a"}}
        assert assign(topics(t=2, u=2), live("a b"), before)["u"] == {0: "b", 1: "a"}

    def test_group_in_mid_rebalance_is_not_balanced(self) -> None:
        before = {topic: dict.fromkeys(range(4), "a") for topic in "tu"}
        three = topics(t=4, u=4, v=3)
        found = assign(three, live("a b"), before, unsettled=frozenset({"u"}))
        assert found["t"] == found["u"] == before["t"]
        assert set(found["v"].values()) == {"b"}
        settled = assign(three, live("a b"), before)
        assert settled["t"] == settled["u"] != before["t"]


class TestPins:
    def test_a_pin_takes_the_whole_task_with_it(self) -> None:
        found = assign(topics(t=4, u=4), live("a b"), pins={"u": {0: "b"}})
        assert found["t"] == found["u"]
        assert found["t"][0] == "b"
        assert Counter(found["t"].values()) == {"a": 2, "b": 2}

    def test_conflicting_pins_leave_the_rest_to_the_first_in_order_of_topic(self) -> None:
        pins = {"v": {0: "c"}, "t": {0: "b"}}
        found = assign(topics(t=1, u=1, v=1), live("a b c"), pins=pins)
        assert found == {"t": {0: "b"}, "u": {0: "b"}, "v": {0: "c"}}

    def test_a_consumer_that_does_not_take_the_group_gets_the_pinned_partition_alone(self) -> None:
        consumers = live("a") | {"only": Consumer("only", topics=frozenset({"u"}))}
        found = assign(topics(t=2, u=2), consumers, pins={"u": {1: "only"}}, groups=[["t", "u"]])
        assert found == {"t": {0: "a", 1: "a"}, "u": {0: "a", 1: "only"}}

    def test_a_partition_pinned_out_of_its_task_has_its_owner_first_of_all_its_standbys(self) -> None:
        pins = {"t": {0: "a"}, "u": {0: "b"}}
        both, consumers = topics(t=1, u=1), live("a b c")
        owners = assign(both, consumers, pins=pins)
        for wanted in (1, 2):
            found = standbys(both, consumers, owners, standbys=wanted)
            assert found["u"][0] == ("a", "c")[:wanted]
            assert len(found["t"][0]) == wanted
            without_b = assign(both, live("a c"), owners, pins, found, standbys=wanted)
            assert without_b == {"t": {0: "a"}, "u": {0: "a"}}

    def test_a_partition_pinned_out_of_its_task_counts_as_its_consumers(self) -> None:
        pins = {"t": {0: "a", 1: "a"}, "u": {0: "b", 1: "b"}}
        found = assign(topics(t=4, u=4), live("a b"), pins=pins)
        assert Counter(c for owners in found.values() for c in owners.values()) == {"a": 4, "b": 4}

    def test_impossible_pins_have_no_effect(self) -> None:
        pins = {"t": {0: "gone", 9: "a"}, "nowhere": {0: "a"}}
        assert assign(topics(t=2), live("a b"), pins=pins) == assign(topics(t=2), live("a b"))


class TestStandbys:
    def test_standbys_are_named_only_where_the_options_ask_for_them(self) -> None:
        owners = assign(topics(t=4), live("a b"))
        assert standbys(topics(t=4), live("a b"), owners) == {}

    def test_standbys_of_a_task_are_the_same_in_every_topic_and_never_the_owner(self) -> None:
        both = topics(t=6, u=6)
        owners = assign(both, live("a b c"), standbys=1)
        found = standbys(both, live("a b c"), owners, standbys=1)
        assert found["t"] == found["u"]
        assert all(owners["t"][p] not in found["t"][p] for p in range(6))
        assert Counter(c for standing in found["t"].values() for c in standing) == {"a": 2, "b": 2, "c": 2}

    def test_standbys_of_one_owner_are_spread_over_the_others(self) -> None:
        owners = assign(topics(t=12), live("a b c"), standbys=1)
        found = standbys(topics(t=12), live("a b c"), owners, standbys=1)
        of_a = Counter(found["t"][p][0] for p in range(12) if owners["t"][p] == "a")
        assert of_a == {"b": 2, "c": 2}

    def test_standbys_are_the_consumers_that_read_least_so_that_a_death_needs_one_plan(self) -> None:
        consumers, before = live("a b c d e f"), {"t": {0: "a", 1: "b", 2: "c"}}
        found = standbys(topics(t=3), consumers, before, standbys=1)
        assert {standing[0] for standing in found["t"].values()} == {"d", "e", "f"}
        del consumers["a"]
        promoted = assign(topics(t=3), consumers, before, standing=found, standbys=1)
        assert promoted == {"t": {0: found["t"][0][0], 1: "b", 2: "c"}}
        still = standbys(topics(t=3), consumers, promoted, found, standbys=1)
        assert assign(topics(t=3), consumers, promoted, standing=still, standbys=1) == promoted

    def test_no_more_than_there_are_consumers(self) -> None:
        owners = assign(topics(t=1), live("a b"))
        assert standbys(topics(t=1), live("a b"), owners, standbys=5) == {"t": {0: ("b",)}}
        assert standbys(topics(t=1), live("a"), {"t": {0: "a"}}, standbys=5) == {}

    def test_stand_in_another_zone_where_there_is_one(self) -> None:
        consumers = live("a b c d", a="x", b="x", c="x", d="y")
        owners = assign(topics(t=8), consumers, standbys=1)
        found = standbys(topics(t=8), consumers, owners, standbys=1)
        for partition, owner in owners["t"].items():
            if owner != "d":
                assert found["t"][partition] == ("d",)

    def test_move_to_a_better_zone_that_opens(self) -> None:
        consumers = live("a b", a="x", b="x")
        owners = {"t": {0: "a"}}
        before = standbys(topics(t=1), consumers, owners, standbys=1)
        assert before == {"t": {0: ("b",)}}
        consumers |= live("c", c="y")
        assert standbys(topics(t=1), consumers, owners, before, standbys=1) == {"t": {0: ("c",)}}

    def test_stay_while_others_come_and_go(self) -> None:
        owners = {"t": {0: "a", 1: "a"}}
        before = {"t": {0: ("d", "b"), 1: ("b", "c")}}
        found = standbys(topics(t=2), live("a b c d"), owners, before, standbys=2)
        assert found == before
        without_b = standbys(topics(t=2), live("a c d"), owners, before, standbys=2)
        assert without_b == {"t": {0: ("d", "c"), 1: ("c", "d")}}

    def test_new_consumer_takes_a_share_of_the_standbys(self) -> None:
        owners = {"t": dict.fromkeys(range(6), "a")}
        before = {"t": dict.fromkeys(range(6), ("b",))}
        found = standbys(topics(t=6), live("a b c"), owners, before, standbys=1)
        assert Counter(standing[0] for standing in found["t"].values()) == {"b": 3, "c": 3}

    @pytest.mark.parametrize("wrong", [-1, "2", 1.5, True, None])
    def test_wrong_number_is_refused(self, wrong: object) -> None:
        with pytest.raises(AssignorError, match="standbys must be a whole number from 0"):
            load_assignor("co-partitioned", {"standbys": wrong})


class TestPromotion:
    BEFORE: ClassVar[Assignment] = {topic: {0: "gone", 1: "a", 2: "b", 3: "b"} for topic in "tu"}

    def test_first_live_standby_takes_over_and_nothing_else_moves(self) -> None:
        standing = {topic: {0: ("dead", "b", "a")} for topic in "tu"}
        found = assign(topics(t=4, u=4), live("a b c"), self.BEFORE, standing=standing, standbys=2)
        assert found == {topic: {0: "b", 1: "a", 2: "b", 3: "b"} for topic in "tu"}

    def test_balance_comes_with_the_next_plan(self) -> None:
        now = {topic: {0: "b", 1: "a", 2: "b", 3: "b"} for topic in "tu"}
        found = assign(topics(t=4, u=4), live("a b c"), now, standbys=1)
        assert Counter(found["t"].values()) == {"a": 1, "b": 2, "c": 1}
        assert found["t"] == found["u"]

    def test_balance_prefers_who_stands_by(self) -> None:
        now = {"t": dict.fromkeys(range(4), "a")}
        standing = {"t": {0: ("b",), 1: ("c",), 2: ("c",), 3: ("b",)}}
        found = assign(topics(t=4), live("a b"), now, standing=standing, standbys=1)
        assert found == {"t": {0: "b", 1: "a", 2: "a", 3: "b"}}

    def test_balance_prefers_a_receiver_that_stands_by(self) -> None:
        now = {"t": {0: "a", 1: "a", 2: "b", 3: "c"}}
        standing = {"t": {0: ("e",), 1: ("b",), 2: ("a",), 3: ("b",)}}
        found = assign(topics(t=4), live("a b c d e"), now, standing=standing, standbys=1)
        assert found == {"t": {0: "e", 1: "a", 2: "b", 3: "c"}}

    def test_no_promotion_without_the_option(self) -> None:
        standing = {topic: {0: ("b",)} for topic in "tu"}
        found = assign(topics(t=4, u=4), live("a b"), self.BEFORE, standing=standing)
        assert Counter(found["t"].values()) == {"a": 2, "b": 2}


class Wrong:
    """An assignor whose standbys are what it was made with."""

    name = "wrong"

    def __init__(self, found: Any) -> None:
        self.found = found

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        _consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
    ) -> Assignment:
        return {topic: dict.fromkeys(partitions, "a") for topic, partitions in topics.items()}

    def standbys(
        self,
        _topics: Mapping[str, frozenset[int]],
        _consumers: Mapping[str, Consumer],
        _assignment: Assignment,
        _previous: Standbys,
        /,
    ) -> Standbys:
        if isinstance(self.found, Exception):
            raise self.found
        found: Standbys = self.found
        return found


class TestWhatAssignorsSay:
    CONSUMERS: ClassVar[Mapping[str, Consumer]] = live("a b") | {
        "u-only": Consumer("u-only", topics=frozenset({"u"}))
    }

    def run(self, found: object, context: PlanningContext | None = None) -> Standbys:
        assignor = Wrong(found)
        assignment = run_assignor(assignor, topics(t=2), self.CONSUMERS, {})
        return run_standbys(assignor, topics(t=2), self.CONSUMERS, assignment, context or PlanningContext())

    @pytest.mark.parametrize(
        ("found", "message"),
        [
            (None, "expected a mapping"),
            ({"x": {}}, "unknown topic 'x'"),
            ({"t": [("b",)]}, "topic 't': expected a mapping"),
            ({"t": {7: ("b",)}}, "topic 't', partition 7: no consumer owns"),
            ({"t": {"0": ("b",)}}, "partition '0'"),
            ({"t": {0: "b"}}, "expected a tuple of consumer ids, found 'b'"),
            ({"t": {0: (3,)}}, "expected a tuple of consumer ids"),
            ({"t": {0: ("b", "b")}}, "partition 0: b, b names a consumer twice"),
            ({"t": {0: ("gone",)}}, "standby 'gone' is not a live consumer"),
            ({"t": {0: ("u-only",)}}, "standby 'u-only' does not subscribe"),
            ({"t": {1: ("b", "a")}}, "partition 1: standby 'a' owns it"),
            (KeyError("oh"), r"failed to name standbys \(KeyError: 'oh'\)"),
        ],
    )
    def test_invalid_standbys_are_refused_by_name(self, found: object, message: str) -> None:
        with pytest.raises(AssignorError, match=message) as refused:
            self.run(found)
        assert "assignor 'wrong'" in str(refused.value)

    def test_lists_do_and_empty_ones_are_left_out(self) -> None:
        assert self.run({"t": {1: ["b"], 0: []}}) == {"t": {1: ("b",)}}

    def test_an_excluded_consumer_does_not_stand_by(self) -> None:
        kept_away = PlanningContext(exclusions={"b": frozenset({"t"})})
        with pytest.raises(AssignorError, match="standby 'b' does not subscribe"):
            self.run({"t": {0: ("b",)}}, kept_away)
        owners = {"t": {0: "a"}}
        consumers = live("a b c")
        found = run_standbys(
            load_assignor("co-partitioned", {"standbys": 2}), topics(t=1), consumers, owners, kept_away
        )
        assert found == {"t": {0: ("c",)}}

    def test_an_assignor_without_the_method_has_none(self) -> None:
        assert (
            run_standbys(load_assignor("sticky"), topics(t=2), self.CONSUMERS, {"t": {0: "a", 1: "b"}}) == {}
        )


class TestZones:
    """`a` is in zone x, `b` in zone y; the leaders of odd partitions are in x, of even ones in y."""

    OF: ClassVar[Mapping[str, frozenset[int]]] = topics(orders=4, payments=4)
    CONSUMERS: ClassVar[Mapping[str, Consumer]] = live("a b", a="x", b="y")
    RACKS: ClassVar[Mapping[str, Mapping[int, str]]] = {
        topic: {p: "x" if p % 2 else "y" for p in range(4)} for topic in ("orders", "payments")
    }
    HOME: ClassVar[Mapping[int, str]] = {0: "b", 1: "a", 2: "b", 3: "a"}

    def test_a_first_plan_puts_tasks_where_their_leaders_are(self) -> None:
        assert assign(self.OF, self.CONSUMERS, racks=self.RACKS) == dict.fromkeys(self.OF, self.HOME)
        assert assign(self.OF, self.CONSUMERS) != dict.fromkeys(self.OF, self.HOME)

    def test_the_zone_of_most_leaders_counts_and_unknown_ones_do_not(self) -> None:
        racks = {"orders": {1: "x", 2: "y"}, "payments": {1: "y", 3: "x"}, "refunds": {1: "y"}}
        found = assign(topics(orders=4, payments=4, refunds=4), self.CONSUMERS, racks=racks)
        assert [found["orders"][p] for p in (1, 2, 3)] == ["b", "b", "a"]
        assert Counter(found["orders"].values()) == {"a": 2, "b": 2}

    def test_zone_moves_nothing_and_balance_comes_first(self) -> None:
        abroad = {p: {"a": "b", "b": "a"}[owner] for p, owner in self.HOME.items()}
        before = dict.fromkeys(self.OF, abroad)
        assert assign(self.OF, self.CONSUMERS, before, racks=self.RACKS) == before
        all_in_x = {topic: dict.fromkeys(range(4), "x") for topic in self.OF}
        found = assign(self.OF, self.CONSUMERS, racks=all_in_x)
        assert Counter(found["orders"].values()) == {"a": 2, "b": 2}

    def test_partitions_of_a_gone_consumer_go_to_their_zones(self) -> None:
        consumers = live("a b", a="x", b="y")
        before = {topic: {0: "a", 1: "gone", 2: "gone", 3: "b"} for topic in self.OF}
        found = assign(self.OF, consumers, before, racks=self.RACKS)
        assert found == {topic: {0: "a", 1: "a", 2: "b", 3: "b"} for topic in self.OF}

    def test_a_pin_stays_where_it_is_pinned(self) -> None:
        found = assign(self.OF, self.CONSUMERS, pins={"orders": {1: "b"}}, racks=self.RACKS)
        assert found["orders"][1] == found["payments"][1] == "b"
        assert Counter(found["orders"].values()) == {"a": 2, "b": 2}
