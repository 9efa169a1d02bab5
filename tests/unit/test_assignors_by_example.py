"""Assignors by example: the cases of Kafka's documentation, loading by name, what is refused, and the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from muster.core.assignors import AssignorError, load_assignor, run_assignor, validate
from muster.core.assignors.sticky.mixed import mixed_shares
from muster.core.assignors.sticky.pool import Pool
from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "assignors.md"
INCLUDE = ROOT / "include"


def consumers(*ids: str, **with_topics: str) -> dict[str, Consumer]:
    """Consumers that take everything, and such as take certain topics only."""
    everything = {name: Consumer(name) for name in ids}
    return everything | {n: Consumer(n, topics=frozenset(t.split())) for n, t in with_topics.items()}


def topics(**partitions: int) -> dict[str, frozenset[int]]:
    return {topic: frozenset(range(count)) for topic, count in partitions.items()}


def by_consumer(assignment: Assignment) -> dict[str, str]:
    """As Kafka's documentation writes it: "t0p0 t0p1"."""
    result: dict[str, list[str]] = {}
    for topic in sorted(assignment):
        for partition in sorted(assignment[topic]):
            result.setdefault(assignment[topic][partition], []).append(f"{topic}p{partition}")
    return {consumer: " ".join(names) for consumer, names in result.items()}


def assign(
    name: str,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    previous: Assignment | None = None,
) -> Assignment:
    return run_assignor(load_assignor(name), topics, consumers, previous or {})


class TestRange:
    def test_example_of_kafka(self) -> None:
        assert by_consumer(assign("range", topics(t0=3, t1=3), consumers("C0", "C1"))) == {
            "C0": "t0p0 t0p1 t1p0 t1p1",
            "C1": "t0p2 t1p2",
        }

    def test_unequal_subscriptions_are_balanced(self) -> None:
        live = consumers(C0="t0", C1="t0 t1", C2="t0 t1 t2")
        assert by_consumer(assign("range", topics(t0=4, t1=3, t2=2), live)) == {
            "C0": "t0p0 t0p1",
            "C1": "t0p2 t1p0 t1p1",
            "C2": "t0p3 t1p2 t2p0 t2p1",
        }

    def test_more_consumers_than_partitions(self) -> None:
        assert by_consumer(assign("range", topics(t=2), consumers("a", "b", "c"))) == {"a": "tp0", "b": "tp1"}

    def test_partitions_with_gaps(self) -> None:
        assignment = assign("range", {"t": frozenset({1, 5, 9})}, consumers("a", "b"))
        assert assignment == {"t": {1: "a", 5: "a", 9: "b"}}


class TestRoundRobin:
    def test_example_of_kafka(self) -> None:
        assert by_consumer(assign("round-robin", topics(t0=3, t1=3), consumers("C0", "C1"))) == {
            "C0": "t0p0 t0p2 t1p1",
            "C1": "t0p1 t1p0 t1p2",
        }

    def test_example_of_kafka_with_unequal_subscriptions(self) -> None:
        live = consumers(C0="t0", C1="t0 t1", C2="t0 t1 t2")
        assert by_consumer(assign("round-robin", topics(t0=1, t1=2, t2=3), live)) == {
            "C0": "t0p0",
            "C1": "t1p0",
            "C2": "t1p1 t2p0 t2p1 t2p2",
        }


class TestSticky:
    def test_example_of_kafka_one_of_three_leaves(self) -> None:
        """From the documentation of `StickyAssignor`: t0p0 and the others stay where they were."""
        all_topics = topics(t0=2, t1=2, t2=2, t3=2)
        before = assign("sticky", all_topics, consumers("C0", "C1", "C2"))
        assert by_consumer(before) == {
            "C0": "t0p0 t1p1 t3p0",
            "C1": "t0p1 t2p0 t3p1",
            "C2": "t1p0 t2p1",
        }
        after = assign("sticky", all_topics, consumers("C0", "C2"), before)
        kept = {(t, p): c for t in before for p, c in before[t].items() if c != "C1"}
        assert all(after[t][p] == c for (t, p), c in kept.items())
        assert sorted(len(names.split()) for names in by_consumer(after).values()) == [4, 4]

    def test_example_of_kafka_where_round_robin_is_uneven(self) -> None:
        live = consumers(C0="t0", C1="t0 t1", C2="t0 t1 t2")
        assert by_consumer(assign("sticky", topics(t0=1, t1=2, t2=3), live)) == {
            "C0": "t0p0",
            "C1": "t1p0 t1p1",
            "C2": "t2p0 t2p1 t2p2",
        }

    def test_weight_2_takes_twice_as_much(self) -> None:
        live = {"big": Consumer("big", weight=2), "one": Consumer("one"), "two": Consumer("two")}
        assignment = assign("sticky", topics(t=12), live)
        assert {c: len(names.split()) for c, names in by_consumer(assignment).items()} == {
            "big": 6,
            "one": 3,
            "two": 3,
        }

    @pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
    def test_invalid_weight_takes_only_what_no_other_consumer_can(self, weight: float) -> None:
        live = {
            "idle": Consumer("idle", weight=weight),
            "busy": Consumer("busy", topics=frozenset({"t"})),
        }
        assert by_consumer(assign("sticky", topics(t=50, u=1), live))["idle"] == "up0"

    def test_a_chain_of_hand_overs_evens_out_what_no_single_one_can(self) -> None:
        live = consumers(a="t", b="t u", c="u")
        before = {"t": dict.fromkeys(range(4), "a") | dict.fromkeys(range(4, 6), "b"), "u": {0: "b"}}
        after = assign("sticky", topics(t=6, u=1), live, before)
        assert {c: len(names.split()) for c, names in by_consumer(after).items()} == {"a": 3, "b": 3, "c": 1}

    def test_either_all_chains_are_carried_out_or_none(self) -> None:
        """A short and a long chain, so that the search finds one before the other and may end in between."""
        live = consumers(a="t", b="t u", c="u", k="x1", l="x1 x2", m="x2 x3", n="x3 x4", o="x4")
        count = topics(t=3, u=3, x1=3, x2=2, x3=2, x4=3)
        before = {
            "t": dict.fromkeys(range(3), "a"),
            "u": {0: "b", 1: "b", 2: "c"},
            "x1": dict.fromkeys(range(3), "k"),
            "x2": dict.fromkeys(range(2), "l"),
            "x3": dict.fromkeys(range(2), "m"),
            "x4": {0: "n", 1: "n", 2: "o"},
        }
        pools = [Pool.of(audience, count, before) for audience in audiences(count, live)]
        weights = dict.fromkeys(live, 1)
        none, every = mixed_shares(pools, weights, budget=0), mixed_shares(pools, weights)
        assert none != every
        for budget in range(0, 400_000, 2_500):
            assert mixed_shares(pools, weights, budget=budget) in (none, every)

    def test_sticky_keeps_even_loads_where_they_are(self) -> None:
        """Loads are even either way, so nothing may move although another division is as good."""
        live = consumers("a", "b")
        before = {"t": {0: "b", 1: "a"}, "u": {0: "a", 1: "b"}}
        assert assign("sticky", topics(t=2, u=2), live, before) == before

    def test_new_consumer_gets_partitions_of_all_topics(self) -> None:
        before = assign("sticky", topics(t=6, u=6), consumers("a", "b"))
        after = assign("sticky", topics(t=6, u=6), consumers("a", "b", "c"), before)
        for owners in after.values():
            assert sorted(owners.values()) == ["a", "a", "b", "b", "c", "c"]

    def test_partitions_above_an_even_share_go_first(self) -> None:
        before = {"t": dict.fromkeys(range(4), "a"), "u": {0: "a"}, "v": {0: "a"}}
        after = assign("sticky", topics(t=4, u=1, v=1), consumers("a", "b"), before)
        assert by_consumer(after) == {"a": "tp0 tp1 vp0", "b": "tp2 tp3 up0"}

    def test_another_process_comes_to_the_same_plan(self) -> None:
        """Python shuffles sets of text in each process, which no test within one process can see."""
        program = (
            "import json\n"
            "from muster.core.assignors import load_assignor\n"
            "from muster.core.model import Consumer\n"
            "topics = {f't{i}': frozenset(range(i + 3)) for i in range(12)}\n"
            "some = frozenset(sorted(topics)[:7])\n"
            "live = {f'c{i}': Consumer(f'c{i}', topics=some if i % 3 == 0 else None) for i in range(9)}\n"
            "for wanted in (None, some):\n"
            "    live['c0'] = Consumer('c0', topics=wanted)\n"
            "    for count in (4, 9, 6):\n"
            "        for same in (False, True):\n"
            "            few = {c: Consumer(c) if same else v for c, v in sorted(live.items())[:count]}\n"
            "            one = {'c0': Consumer('c0'), 'c1': Consumer('c1'), 'c2': Consumer('c2')}\n"
            "            before = load_assignor('sticky').assign(topics, one, {})\n"
            "            print(json.dumps(load_assignor('sticky').assign(topics, few, before), sort_keys=True))\n"
        )
        plans = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={"PYTHONPATH": str(INCLUDE), "PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
                timeout=60,
            ).stdout
            for seed in ("0", "1", "2", "3")
        }
        assert len(plans) == 1

    def test_plan_is_empty_without_consumers(self) -> None:
        assert assign("sticky", topics(t=2), {}, {"t": {0: "gone"}}) == {}

    def test_large_clusters_are_planned_in_an_instant(self) -> None:
        """1,000 topics x 100 partitions x 1,000 consumers. The limit leaves room for slow machines."""
        all_topics = {f"t{i}": frozenset(range(100)) for i in range(1000)}
        live = consumers(*(f"c{i}" for i in range(1000)))
        before = assign("sticky", all_topics, live)
        del live["c500"]
        took = []
        for _ in range(3):
            start = time.process_time()
            assign("sticky", all_topics, live, before)
            took.append(time.process_time() - start)
        assert min(took) < 0.2


class Wanting:
    name = "wanting"

    def __init__(self, colour: str = "red") -> None:
        if colour not in {"red", "blue"}:
            raise ValueError("colour must be red or blue")

    def assign(self, topics: Any, consumers: Any, previous: Any) -> Any:
        raise ZeroDivisionError("no luck")


class TakesTooLittle:
    name = "too-little"

    def assign(self, topics: Any) -> Any:
        return {}


class Nameless:
    def assign(self, topics: Any, consumers: Any, previous: Any) -> Any:
        return {}


HERE = __name__


class TestLoading:
    @pytest.mark.parametrize("name", ["range", "round-robin", "sticky", "load-aware"])
    def test_assignor_is_loaded_by_name(self, name: str) -> None:
        assert load_assignor(name, {}).name == name

    def test_assignor_is_loaded_by_dotted_path_with_options(self) -> None:
        assert load_assignor(f"{HERE}.Wanting", {"colour": "blue"}).name == "wanting"

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            (
                "stiky",
                {},
                r"'stiky' is unknown; did you mean 'sticky'\? there are .*range, round-robin, sticky",
            ),
            ("roundrobin", {}, "is Kafka's own, which clients run; set 'round-robin'"),
            ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", {}, "set 'sticky', Muster's"),
            ("", {}, r"'' is unknown; there are .*range"),
            ("no_such_module.Mine", {}, r"'no_such_module.Mine'.*No module named 'no_such_module'"),
            (".Mine", {}, r"'.Mine' is unknown"),
            (f"{HERE}.Missing", {}, r"has no class 'Missing'"),
            (f"{HERE}.HERE", {}, r"has no class 'HERE'"),
            ("range", {"colour": "red"}, r"'range': wrong options.*'colour'.*takes no options"),
            (f"{HERE}.Wanting", {"color": "red"}, r"wrong options.*'color'.*takes the options colour"),
            (
                f"{HERE}.Wanting",
                {"colour": "green"},
                r"were refused \(ValueError: colour must be red or blue\)",
            ),
            (f"{HERE}.Nameless", {}, r"needs a text attribute 'name'"),
            (f"{HERE}.TakesTooLittle", {}, r"must take topics, consumers and previous"),
            ("pathlib.Path", {}, r"needs a text attribute 'name' and a method"),
        ],
    )
    def test_unusable_assignor_is_refused_with_its_reason(
        self, name: str, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(AssignorError, match=message):
            load_assignor(name, options)

    def test_module_that_fails_while_it_is_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "broken_assignors.py").write_text("1 / 0\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(AssignorError, match=r"'broken_assignors' cannot be imported \(ZeroDivisionError"):
            load_assignor("broken_assignors.Mine")


class TestValidation:
    LIVE = consumers("a", b="t")
    TOPICS = topics(t=3, u=1)
    GOOD: ClassVar[Assignment] = {"t": {0: "a", 1: "b", 2: "a"}, "u": {0: "a"}}

    def check(self, assignment: Any, live: Mapping[str, Consumer] | None = None) -> None:
        validate(assignment, self.TOPICS, self.LIVE if live is None else live, assignor="mine")

    def test_valid_plan_is_accepted(self) -> None:
        self.check(self.GOOD)

    @pytest.mark.parametrize(
        ("offence", "message"),
        [
            (None, "expected a mapping of topic to owners, found NoneType"),
            ({**GOOD, "x": {}}, "unknown topic 'x'"),
            ({**GOOD, "t": ["a", "b", "a"]}, "topic 't': expected a mapping .* found list"),
            ({**GOOD, "t": {0: "a", 1: "b"}}, "topic 't', partition 2: left out"),
            ({"t": GOOD["t"]}, "topic 'u', partition 0: left out"),
            ({**GOOD, "u": {0: "b"}}, "topic 'u', partition 0: given to 'b', which does not subscribe"),
            ({**GOOD, "u": {0: "z"}}, "topic 'u', partition 0: given to 'z', which is not a live consumer"),
            ({**GOOD, "u": {0: "a", 7: "a"}}, "topic 'u': there is no partition 7"),
            ({**GOOD, "u": {"0": "a"}}, "topic 'u': partition '0' is not a whole number"),
            ({**GOOD, "u": {False: "a"}}, "topic 'u': partition False is not a whole number"),
            ({**GOOD, "u": {0: ["a"]}}, r"topic 'u', partition 0: \['a'\] is not a consumer id"),
            ({**GOOD, "u": {0: None}}, "topic 'u', partition 0: None is not a consumer id"),
        ],
    )
    def test_each_offence_is_named(self, offence: Any, message: str) -> None:
        with pytest.raises(AssignorError, match=f"assignor 'mine' returned no valid assignment: .*{message}"):
            self.check(offence)

    def test_topic_without_subscribers_is_left_out(self) -> None:
        only_b = consumers(b="t")
        self.check({"t": dict.fromkeys(range(3), "b")}, only_b)
        with pytest.raises(AssignorError, match="'u', partition 0: given to 'b', which does not subscribe"):
            self.check({"t": dict.fromkeys(range(3), "b"), "u": {0: "b"}}, only_b)

    def test_an_assignor_that_raises_is_named(self) -> None:
        with pytest.raises(AssignorError, match=r"assignor 'wanting' failed \(ZeroDivisionError: no luck\)"):
            run_assignor(Wanting(), self.TOPICS, self.LIVE, {})


class TestDocumentation:
    def test_the_example_of_an_assignor_of_ones_own_works(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [example] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
        (tmp_path / "my_assignors.py").write_text(example, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        try:
            assignor = load_assignor("my_assignors.Spill", {"limit": 2})
            live = consumers("a", "c", b="t")
            assignment = run_assignor(assignor, topics(t=3, u=3), live, {})
        finally:
            sys.modules.pop("my_assignors", None)
        assert by_consumer(assignment) == {"a": "tp0 tp1", "b": "tp2", "c": "up0 up1 up2"}
