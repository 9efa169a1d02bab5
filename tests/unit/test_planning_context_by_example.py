"""Pins, exclusions, zones, weights and load by example: small clusters a reader can check by hand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from muster.core.assignors import (
    AssignorError,
    PlanningContext,
    impossible_pins,
    load_assignor,
    run_assignor,
)
from muster.core.model import Assignment, Consumer


def consumers(**zones: str | None) -> dict[str, Consumer]:
    """Consumers that take everything, each with its zone."""
    return {name: Consumer(name, zone=zone) for name, zone in zones.items()}


def weighted(**weights: float) -> dict[str, Consumer]:
    return {name: Consumer(name, weight=weight) for name, weight in weights.items()}


def topics(**partitions: int) -> dict[str, frozenset[int]]:
    return {topic: frozenset(range(count)) for topic, count in partitions.items()}


def of_each(assignment: Assignment) -> dict[str, str]:
    """As Kafka's documentation writes it: "t0p0 t0p1"."""
    result: dict[str, list[str]] = {}
    for topic in sorted(assignment):
        for partition in sorted(assignment[topic]):
            result.setdefault(assignment[topic][partition], []).append(f"{topic}p{partition}")
    return {consumer: " ".join(names) for consumer, names in sorted(result.items())}


def in_row(owners: Mapping[int, str]) -> str:
    """The owners in order of partition: "aab"."""
    return "".join(owners[partition] for partition in sorted(owners))


def racks(in_order: str) -> dict[int, str]:
    """Of each partition the rack of its leader, a letter each; "-" where it is not known."""
    return {partition: letter for partition, letter in enumerate(in_order) if letter != "-"}


def assign(
    name: str,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    previous: Assignment | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    **context: Any,
) -> Assignment:
    assignor = load_assignor(name, options)
    return run_assignor(assignor, topics, consumers, previous or {}, PlanningContext(**context))


class TestPins:
    LIVE = consumers(a=None, b=None)

    @pytest.mark.parametrize(
        ("name", "expected"), [("range", "baabb"), ("round-robin", "babab"), ("sticky", "baaba")]
    )
    def test_the_others_are_dealt_by_the_rule(self, name: str, expected: str) -> None:
        assignment = assign(name, topics(t=5), self.LIVE, pins={"t": {0: "b"}})
        assert in_row(assignment["t"]) == expected

    def test_sticky_counts_what_is_pinned_and_round_robin_does_not(self) -> None:
        pins = {"t": dict.fromkeys(range(3), "a")}
        counts = {
            name: Counter(assign(name, topics(t=6), self.LIVE, pins=pins)["t"].values())
            for name in ("sticky", "round-robin")
        }
        assert counts["sticky"] == {"a": 3, "b": 3}
        assert counts["round-robin"] == {"a": 5, "b": 1}

    def test_consumer_pinned_beyond_its_share_gets_nothing_else(self) -> None:
        pins = {"t": dict.fromkeys(range(5), "a")}
        live = consumers(a=None, b=None, c=None)
        assert in_row(assign("sticky", topics(t=9), live, pins=pins)["t"]) == "aaaaabcbc"

    def test_each_impossible_pin_is_reported_with_its_reason(self) -> None:
        live = {
            "a": Consumer("a", topics=frozenset({"t"})),
            "b": Consumer("b"),
            "going": Consumer("going", leaving=True),
        }
        pins = {
            "gone": {0: "a"},
            "t": {0: "a", 1: "left", 2: "b", 3: "going", 9: "a"},
            "u": {0: "a", 1: "b"},
        }
        told = impossible_pins(pins, topics(t=4, u=2), live, {"b": frozenset({"t"})})
        assert [(pin.topic, pin.partition, pin.consumer, pin.reason) for pin in told] == [
            ("gone", 0, "a", "there is no such topic in this cluster"),
            ("t", 1, "left", "the consumer is not live (it has left, fails its check or is isolated)"),
            ("t", 2, "b", "the consumer is excluded from the topic"),
            ("t", 3, "going", "the consumer is leaving"),
            ("t", 9, "a", "there is no such partition"),
            ("u", 0, "a", "the consumer does not subscribe to the topic"),
        ]
        assert str(told[1]).startswith(
            "topic 't', partition 1: the pin to consumer 'left' cannot be obeyed: "
        )

    def test_an_assignor_that_takes_pins_and_does_not_obey_them_is_named(self) -> None:
        class Stubborn:
            name = "stubborn"

            def assign(self, topics: Any, consumers: Any, previous: Any, pins: Any) -> Any:
                return {t: dict.fromkeys(p, "a") for t, p in topics.items()}

        with pytest.raises(
            AssignorError, match=r"'stubborn' .*'t', partition 1: given to 'a', though it is pinned to 'b'"
        ):
            run_assignor(Stubborn(), topics(t=2), self.LIVE, {}, PlanningContext(pins={"t": {1: "b"}}))


class TestExclusions:
    @pytest.mark.parametrize("name", ["range", "round-robin", "sticky", "load-aware"])
    def test_others_take_topics_that_a_consumer_is_excluded_from(self, name: str) -> None:
        live = consumers(a=None, b=None)
        assignment = assign(name, topics(t=4, u=2), live, exclusions={"a": frozenset({"t"})})
        assert in_row(assignment["t"]) == "bbbb"

    def test_a_topic_that_everybody_is_excluded_from_is_left_unassigned(self) -> None:
        excluded = dict.fromkeys("ab", frozenset({"t"}))
        live = consumers(a=None, b=None)
        assert of_each(assign("sticky", topics(t=4, u=2), live, exclusions=excluded)) == {
            "a": "up0",
            "b": "up1",
        }

    def test_a_newly_excluded_consumer_gives_the_topic_away_and_gets_others_instead(self) -> None:
        live = consumers(a=None, b=None)
        before = {"t": {0: "a", 1: "b"}, "u": {0: "a", 1: "b"}}
        after = assign("sticky", topics(t=2, u=2), live, before, exclusions={"a": frozenset({"t"})})
        assert of_each(after) == {"a": "up0 up1", "b": "tp0 tp1"}


class TestWeights:
    def test_range_gives_blocks(self) -> None:
        assert in_row(assign("range", topics(t=7), weighted(a=1, b=2, c=1))["t"]) == "aabbbcc"

    def test_round_robin_turns(self) -> None:
        assert in_row(assign("round-robin", topics(t=8), weighted(a=1, b=2, c=1))["t"]) == "bacbbacb"

    def test_round_robin_goes_on_across_topics(self) -> None:
        live = weighted(a=1, b=2, c=1)
        by_topic = assign("round-robin", topics(t=3, u=5), live)
        assert in_row(by_topic["t"]) + in_row(by_topic["u"]) == in_row(
            assign("round-robin", topics(v=8), live)["v"]
        )


class TestZones:
    LIVE = consumers(a="x", b="y")

    def test_range_keeps_its_sizes(self) -> None:
        """What is led in a consumer's zone fills its block first, and who fills it first may have one more."""
        leaders = {"t": racks("yxyxy")}
        assert in_row(assign("range", topics(t=5), self.LIVE, racks=leaders)["t"]) == "babab"

    def test_range_keeps_topics_co_partitioned(self) -> None:
        """Partition 1 is led in different zones by topic, so it goes where there is room left."""
        leaders = {"t": racks("yxyx"), "u": racks("yyyx")}
        by_topic = assign("range", topics(t=4, u=4), self.LIVE, racks=leaders)
        assert by_topic["t"] == by_topic["u"]
        assert in_row(by_topic["t"]) == "baba"

    def test_round_robin_swaps_within_a_round(self) -> None:
        leaders = {"t": racks("yxyy")}
        assert in_row(assign("round-robin", topics(t=4), self.LIVE, racks=leaders)["t"]) == "baab"

    def test_sticky_gives_new_partitions_to_their_zone(self) -> None:
        leaders = {"t": racks("yyxx")}
        assert in_row(assign("sticky", topics(t=4), self.LIVE, racks=leaders)["t"]) == "bbaa"

    def test_sticky_moves_nothing_when_leaders_change(self) -> None:
        before = {"t": {0: "b", 1: "b", 2: "a", 3: "a"}}
        assert assign("sticky", topics(t=4), self.LIVE, before, racks={"t": racks("xxyy")}) == before

    def test_sticky_moves_for_zones_as_far_as_its_options_allow(self) -> None:
        before = {"t": {0: "b", 1: "b", 2: "a", 3: "a"}}
        options = {"rack_moves": 2}
        after = assign("sticky", topics(t=4), self.LIVE, before, options=options, racks={"t": racks("xxyy")})
        assert in_row(after["t"]) == "abba"

    def test_sticky_stays_balanced_unless_a_tolerance_says_otherwise(self) -> None:
        leaders = {"t": racks("xxxxxxxyyy")}
        strict = assign("sticky", topics(t=10), self.LIVE, racks=leaders)["t"]
        tolerant = assign("sticky", topics(t=10), self.LIVE, racks=leaders, options={"rack_tolerance": 0.2})[
            "t"
        ]
        assert Counter(strict.values()) == {"a": 5, "b": 5}
        assert Counter(tolerant.values()) == {"a": 6, "b": 4}

    def test_new_consumer_is_given_partitions_that_are_led_in_its_zone(self) -> None:
        before = {"t": dict.fromkeys(range(6), "a")}
        after = assign("sticky", topics(t=6), self.LIVE, before, racks={"t": racks("yxxyxy")})
        assert in_row(after["t"]) == "baabab"

    @pytest.mark.parametrize("name", ["range", "round-robin", "sticky"])
    @pytest.mark.parametrize("leaders", ["", "zzzzz"])
    def test_racks_without_a_consumer_change_nothing(self, name: str, leaders: str) -> None:
        plain = assign(name, topics(t=5), self.LIVE)
        assert assign(name, topics(t=5), self.LIVE, racks={"t": racks(leaders)}) == plain


class TestLoadAware:
    LIVE = consumers(a=None, b=None)

    def loads(self, *of_t: float) -> dict[str, dict[int, float]]:
        return {"t": dict(enumerate(of_t))}

    def test_busy_partition_weighs_as_much_as_the_others_together(self) -> None:
        after = assign("load-aware", topics(t=4), self.LIVE, loads=self.loads(300, 100, 100, 100))
        assert in_row(after["t"]) == "abbb"

    def test_loads_within_the_tolerance_move_nothing(self) -> None:
        before = {"t": dict(enumerate("aabb"))}
        loads = self.loads(110, 110, 90, 90)
        assert assign("load-aware", topics(t=4), self.LIVE, before, loads=loads) == before

    def test_out_of_tolerance_the_move_that_evens_out_most_is_made(self) -> None:
        before = {"t": dict(enumerate("aaabb"))}
        after = assign("load-aware", topics(t=5), self.LIVE, before, loads=self.loads(90, 50, 20, 20, 20))
        assert in_row(after["t"]) == "ababb"

    def test_partitions_are_swapped_where_no_single_move_helps(self) -> None:
        before = {"t": dict(enumerate("aabb"))}
        loads = self.loads(70, 50, 30, 10)
        after = assign("load-aware", topics(t=4), self.LIVE, before, loads=loads, options={"tolerance": 0.1})
        carried = {c: sum(loads["t"][p] for p in after["t"] if after["t"][p] == c) for c in "ab"}
        assert carried == {"a": 80, "b": 80}

    def test_moved_partition_is_measured_before_it_causes_another_move(self) -> None:
        """Partition 0 counts as the mean for now, so b seems to carry little; it will show that it does not."""
        before = {"t": dict(enumerate("baaaaa"))}
        loads = {"t": dict.fromkeys(range(1, 6), 100.0)}
        assert assign("load-aware", topics(t=6), self.LIVE, before, loads=loads) == before
        loads["t"][0] = 400.0
        assert assign("load-aware", topics(t=6), self.LIVE, before, loads=loads) == before
        loads["t"][0] = 100.0
        after = assign("load-aware", topics(t=6), self.LIVE, before, loads=loads)
        assert Counter(after["t"].values()) == {"a": 3, "b": 3}

    def test_the_budget_is_kept(self) -> None:
        before = {"t": dict.fromkeys(range(10), "a")}
        after = assign(
            "load-aware",
            topics(t=10),
            self.LIVE,
            before,
            loads=self.loads(*[5.0] * 10),
            options={"budget": 2},
        )
        assert Counter(after["t"].values()) == {"a": 8, "b": 2}

    def test_weight_2_carries_twice_as_much(self) -> None:
        after = assign("load-aware", topics(t=9), weighted(big=2, one=1), loads=self.loads(*[5.0] * 9))
        assert Counter(after["t"].values()) == {"big": 6, "one": 3}

    def test_idle_partitions_are_spread_as_well(self) -> None:
        after = assign("load-aware", topics(t=22), self.LIVE, loads=self.loads(100, 100, *[0.0] * 20))
        assert Counter(after["t"].values()) == {"a": 11, "b": 11}

    def test_a_pinned_partition_stays_however_busy_it_is(self) -> None:
        before = {"t": dict(enumerate("aabb"))}
        loads = self.loads(500, 100, 100, 100)
        after = assign("load-aware", topics(t=4), self.LIVE, before, loads=loads, pins={"t": {0: "a"}})
        assert in_row(after["t"]) == "abbb"

    def test_new_partitions_prefer_their_zone_within_the_tolerance(self) -> None:
        live = consumers(a="x", b="y")
        after = assign(
            "load-aware", topics(t=4), live, loads=self.loads(1, 1, 1, 1), racks={"t": racks("yyyx")}
        )
        assert in_row(after["t"]) == "bbaa"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"measure": "cpu"}, "measure must be one of rate, lag, found 'cpu'"),
            ({"tolerance": 20}, r"tolerance must be from 0 to less than 1 \(0.2 is a fifth\), found 20"),
            ({"budget": -1}, "budget must be a whole number of partitions, at least 0, found -1"),
            ({"budget": 2.5}, "budget must be a whole number"),
            ({"tolerance": "much"}, "were refused"),
            ({"burst": 1}, "wrong options: .*'burst'; it takes the options measure, tolerance, budget"),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(AssignorError, match=message):
            load_assignor("load-aware", options)

    def test_measure_can_be_read_from_the_assignor(self) -> None:
        assert load_assignor("load-aware", {"measure": "lag"}).measure == "lag"  # type: ignore[attr-defined]

    def test_large_clusters_are_planned_in_an_instant(self) -> None:
        """1,000 topics x 100 partitions x 1,000 consumers. The limit leaves room for slow machines."""
        all_topics = {f"t{i}": frozenset(range(100)) for i in range(1000)}
        live = {f"c{i}": Consumer(f"c{i}") for i in range(1000)}
        loads = {t: {p: float(p % 7 * n % 11) for p in ps} for n, (t, ps) in enumerate(all_topics.items())}
        before = assign("load-aware", all_topics, live, loads=loads)
        del live["c500"]
        start = time.process_time()
        assign("load-aware", all_topics, live, before, loads=loads)
        assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rack_tolerance": -0.1}, "rack_tolerance must be from 0 to less than 1, found -0.1"),
        ({"rack_tolerance": 1}, "rack_tolerance must be from 0 to less than 1"),
        ({"rack_moves": -1}, "rack_moves must be a whole number of at least 0, found -1"),
    ],
)
def test_wrong_options_of_sticky_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssignorError, match=message):
        load_assignor("sticky", options)
