"""The rule for bad records, simulated for an hour and a day (`tests/support/poison_worlds.py`).

Chance follows from a seed that each run draws; a test that fails prints it, and `MUSTER_SEED=...` plays it again.
`LONG=1 pytest -s` prints a table of the worlds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import given
from hypothesis import strategies as st

from muster.core.model import TopicPartition
from muster.core.poison import Poison
from muster.core.turns import Failure
from tests.faults.model.tally import SEED, VARIABLE
from tests.support.examples import examples
from tests.support.only_long import LONG, only_long
from tests.support.poison_table import HEADER, row
from tests.support.poison_worlds import BAD, FOR_ALL, FOR_SOME, Flow, World, fails

EACH = {p: [12_000 + 37 * p] for p in range(12)}
SINK = Failure("SinkError: no room", of_record=False)
USUAL = {
    *("fails 0.05", "fails 0.5", "fails 1.0", "outage of 10 min", "dying", "bursts"),
    *("partition flaps", "6 partitions flap", "key shard, always"),
}


def sinks(*names: str) -> list[ParameterSet]:
    """Parameters, of which the usual runs have those in `USUAL`."""
    return [pytest.param(name, marks=() if name in USUAL else only_long) for name in names]


@pytest.fixture(scope="module")
def lines() -> Iterator[list[str]]:
    """Takes the lines of a table, which is printed in the end."""
    found: list[str] = []
    yield found
    if found:
        print("", f"seed {SEED}", HEADER, *found, sep="\n")


@pytest.fixture
def play(request: pytest.FixtureRequest, lines: list[str]) -> Callable[..., Flow]:
    """Plays a world with the run's seed, which a test that fails prints."""

    def flow(world: World, hours: float = 1.0, dead_letter: bool = True) -> Flow:
        print(f"{VARIABLE}={SEED} plays it again")
        played = Flow(world, hours, SEED, dead_letter)
        if LONG:
            name, _, given = request.node.name.removesuffix("]").partition("[")
            lines.append(row(f"{given or name.removeprefix('test_')}, {hours:g} h"[-28:], played))
        return played

    return flow


Play = Callable[..., Flow]


@pytest.mark.parametrize("parts", [12, 1, *([3] if LONG else [])])
@pytest.mark.parametrize("sink", sinks(*FOR_ALL))
def test_no_good_record_is_judged_where_all_fail_alike(sink: str, parts: int, play: Play) -> None:
    flow = play(World(FOR_ALL[sink], parts=parts))
    assert flow.letters == []
    assert len(flow.asked) <= 1, "once an hour"


@pytest.mark.parametrize("sink", sinks(*FOR_SOME))
def test_one_good_record_is_judged_where_some_fail(sink: str, play: Play) -> None:
    assert len(play(World(FOR_SOME[sink])).good) <= 1


@pytest.mark.parametrize("sink", ["partition flaps", "partition, always"])
def test_error_of_the_sink_itself_is_no_records_fault(sink: str, play: Play) -> None:
    assert play(World(FOR_SOME[sink], rate=1.0, error=SINK)).letters == []


@only_long  # where a partition flaps, 7 of 90 drawn days judge two to four, which is not mended
@pytest.mark.parametrize("sink", ["partition flaps", "partition, always", "6 partitions, always"])
def test_one_good_record_is_judged_within_a_day(sink: str, play: Play) -> None:
    flow = play(World(FOR_SOME[sink], rate=0.02), hours=24)
    assert len(flow.good) <= 1
    assert len(flow.asked) in range(1, 25), "once an hour"


@only_long
@pytest.mark.parametrize("parts", [12, 3, 1])
@pytest.mark.parametrize("sink", FOR_ALL)
def test_sink_that_fails_makes_no_poison_within_a_day(sink: str, parts: int, play: Play) -> None:
    flow = play(World(FOR_ALL[sink], parts=parts), hours=24)
    assert flow.letters == []
    assert len(flow.asked) <= 24, "once an hour"


@only_long
@pytest.mark.parametrize("sink", FOR_SOME)
def test_one_good_record_is_judged_within_a_busy_day(sink: str, play: Play) -> None:
    assert len(play(World(FOR_SOME[sink]), hours=24).good) <= 1


@only_long
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("share", [5e-6, 1e-3, 1e-2, 1e-1])
def test_only_bad_records_are_judged_within_a_day(share: float, named: bool, play: Play) -> None:
    flow = play(World(bad=share, named=named), hours=24)
    assert flow.good == []
    assert len(flow.asked) <= 24, "once an hour"


@only_long
@pytest.mark.parametrize("error", ["BadError: no", "OtherError: no"])
@pytest.mark.parametrize("sink", FOR_ALL)
def test_rare_bad_records_betray_no_good_one(sink: str, error: str, play: Play) -> None:
    flow = play(World(FOR_ALL[sink], bad=5e-6, error=Failure(error)), hours=24)
    assert flow.good == []


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2])
def test_rare_bad_records_are_found_and_answered(share: float, play: Play) -> None:
    bad = {0: [12_000], 5: [20_000], 11: [30_000]}
    flow = play(World(fails(share), bad=bad))
    assert {(tp[1], offset) for _, tp, offset in flow.letters} == {(0, 12_000), (5, 20_000), (11, 30_000)}
    assert flow.read > 0.999


def test_bad_record_in_some_partitions_holds_up_no_other(play: Play) -> None:
    bad = {p: EACH[p] for p in range(6)}
    flow = play(World(bad=bad), dead_letter=False)
    stands = [at == EACH[p][0] for (_, p), at in flow.at.items() if p < 6]
    assert stands == [True] * 6
    assert all(flow.end(tp) - at < 200 for tp, at in flow.at.items() if tp[1] >= 6)
    assert len(flow.asked) == 1


def test_bad_records_everywhere_are_one_question(play: Play) -> None:
    flow = play(World(bad=EACH), dead_letter=False)
    assert len(flow.asked) == 1
    assert flow.letters == []


def test_several_bad_records_in_a_row_get_one_letter(play: Play) -> None:
    flow = play(World(bad={0: [*range(12_000, 12_050)]}))
    assert [offset for _, _, offset in flow.letters] == [12_000]
    assert flow.at["t", 0] == 12_001


@pytest.mark.parametrize("parts", [12, 3, 1])
@pytest.mark.parametrize("share", [1e-4, 1e-3, 1e-2])
def test_named_bad_records_cost_five_percent_at_most(share: float, parts: int, play: Play) -> None:
    """With records for a large batch at any time; more than 1,000 bad ones an hour need a standing answer."""
    rate = 2e5 / parts
    healthy = play(World(rate=rate, parts=parts), hours=0.02)
    named = play(World(rate=rate, parts=parts, bad=share, named=True, standing=True), hours=0.02)
    assert named.named > 0.9 * share * sum(named.at.values())
    assert (named.stopped, named.asked, named.letters) == (0, [], [])
    assert sum(named.at.values()) >= 0.95 * sum(healthy.at.values())


@only_long
def test_named_bad_records_cost_five_percent_within_a_day(play: Play) -> None:
    named = play(World(bad=0.01, named=True, standing=True), hours=24)
    assert named.read >= 0.95
    assert (named.good, named.stopped, named.asked) == ([], 0, [])


@pytest.mark.parametrize(
    "sink", sinks("fails 0.05", "fails 0.2", "alternating backends", "bursts", "outage of 0.5 min")
)
def test_standing_answer_takes_no_good_record_for_bad(sink: str, play: Play) -> None:
    assert play(World(FOR_ALL[sink], standing=True)).good == []


@pytest.mark.parametrize("sink", ["fails 0.9", "fails 1.0", "outage of 30 min", "partition, always"])
def test_standing_answer_stops_where_the_sink_is_away(sink: str, play: Play) -> None:
    flow = play(World((FOR_ALL | FOR_SOME)[sink], standing=True))
    assert len(flow.good) < 33 * 12, "until 33 of the last 100 of a partition"
    sooner = "passed by themselves" in flow.rule.stopped["t"]
    assert len(flow.good) >= 32 or (sink == "fails 0.9" and sooner)
    assert flow.rule.stopped.keys() == {"t"}
    assert len(flow.asked) == 1


def test_standing_answer_reads_on_through_unnamed_records(play: Play) -> None:
    bad = {p: [*range(1_000 + 37 * p, 60_000, 10_000)] for p in range(12)}
    flow = play(World(bad=bad, standing=True))
    assert sorted({(tp[1], at) for _, tp, at in flow.answered}) == [(p, at) for p in bad for at in bad[p]]
    assert (flow.asked, flow.good) == ([], [])
    assert flow.read > 0.99


def test_rejects_stop_at_a_thousand_an_hour(play: Play) -> None:
    flow = play(World(bad=0.01, named=True))
    assert 900 < flow.named <= 1000
    assert flow.stopped
    assert "more than 1000" in flow.rule.stopped["t"]


@given(parts=st.integers(1, 40), records=st.integers(1, 2_000), data=st.data())
@examples(200)
def test_one_bad_record_is_found_in_few_batches(parts: int, records: int, data: st.DataObject) -> None:
    rule = Poison()
    at = {("t", p): 0 for p in range(parts)}
    bad = ("t", data.draw(st.integers(0, parts - 1))), data.draw(st.integers(0, records - 1))
    batches, now = -1, 0.0
    while True:
        now += 10.0
        turn = rule.turns.next({tp for tp, begin in at.items() if begin < records}, now)
        ranges = {tp: (at[tp], min(records, at[tp] + (most or records))) for tp, most in turn.items()}
        batches += 1
        if bad[0] in ranges and ranges[bad[0]][0] <= bad[1] < ranges[bad[0]][1]:
            rule.failed(ranges, now, Failure("ValueError: bad"))
            if rule.turns.suspects[bad[0]].failures:
                break
        else:
            rule.passed(ranges, now)
            at |= {tp: end for tp, (_, end) in ranges.items()}
    assert batches <= 2 * math.log2(parts * records) + 4


def _judge(
    rule: Poison,
    tp: TopicPartition = ("t", 0),
    *,
    minutes: float = 11,
    kinds: tuple[str, ...] = ("A",) * 8,
    others: int = 3,
) -> bool:
    """Whether a record is poison that failed alone so often within so many minutes, evenly."""
    rule.failed({tp: (5, 6)}, 0.0, Failure("A: x"))
    for number, kind in enumerate(kinds):
        rule.failed({tp: (5, 6)}, number * minutes * 60 / (len(kinds) - 1), Failure(f"{kind}: x"))
        for other in range(abs(others)):
            ranges = {("t", 1): (other, other + 1)}
            rule.passed(ranges, 0.0) if others > 0 else rule.turns._count(ranges, -1)
    return rule.gets_letter(tp, minutes * 60)


def test_record_is_poison_by_the_second_sentence() -> None:
    assert _judge(Poison())


@pytest.mark.parametrize(
    "case",
    [
        {"minutes": 9.9},
        {"kinds": ("A",) * 4},
        {"kinds": ("A",) * 5 + ("B", "A", "A")},
        {"others": 0},
        {"others": -1},
    ],
    ids=str,
)
def test_record_is_no_poison_without_a_clause(case: dict[str, object]) -> None:
    assert not _judge(Poison(), **case)  # type: ignore[arg-type]


def test_record_is_no_poison_where_another_passed_by_itself() -> None:
    rule = Poison()
    for second in range(4):
        rule.failed({("t", 9): (0, 1)}, float(second), Failure("A: x"))
    rule.passed({("t", 9): (0, 1)}, 10.0)
    assert not _judge(rule)
    assert not _judge(rule, ("t", 2), minutes=59)
    assert _judge(rule, ("t", 3), minutes=62)


def test_next_letter_waits_for_the_record_behind() -> None:
    rule = Poison()
    assert _judge(rule)
    rule.letter(("t", 0), 700.0)
    rule.passed_over(("t", 0), 6, 700.0)
    assert not _judge(rule, ("t", 2))
    rule.passed({("t", 0): (6, 7)}, 800.0)
    assert rule.gets_letter(("t", 2), 800.0)


def test_eleventh_poison_record_stops_the_topic() -> None:
    rule = Poison()
    assert _judge(rule)
    for _ in range(10):
        rule.letter(("t", 3), 700.0)
    rule.passed({("t", 3): (0, 1)}, 700.0)
    assert not rule.gets_letter(("t", 0), 700.0)
    assert "10 poison records" in rule.stopped["t"]
    rule.failed({("t", 7): (0, 1)}, 700.0, Failure("B: x"))
    assert rule.waiting(700.0)["t", 7] == "B", "at once"
    rule.answered("t")
    assert rule.gets_letter(("t", 0), 700.0)


@pytest.mark.parametrize("bad", [33, 34, 40])
def test_rejects_stop_at_a_third_of_the_last_records(bad: int) -> None:
    rule, ranges = Poison(), {("t", 0): (0, 100)}
    why = rule.may_reject(ranges, {("t", 0): dict.fromkeys([*range(0, 3 * bad, 3)][:bad], BAD)}, 0.0)
    assert why == "the handler rejected 33 of the last 100 records of topic 't'"
    assert rule.may_reject(ranges, {("t", 0): {5: BAD}}, 0.0) == why, "until answered"
    rule.answered("t")
    assert not rule.may_reject(ranges, {("t", 0): {5: BAD}}, 0.0)


def test_rejects_of_one_partition_stop_the_topic() -> None:
    rule = Poison()
    ranges = {("t", p): (0, 100) for p in range(4)}
    rule.passed(ranges, 0.0)
    for begin in range(100, 170):
        one = {("t", p): (begin, begin + 1) for p in range(4)}
        bad = {("t", 0): {begin: BAD}} if begin % 2 else {}
        if why := rule.may_reject(one, bad, 0.0):
            break
        rule.passed(one, 0.0, bad)
    assert why.endswith("topic 't', partition 0")


def test_fewer_rejects_stop_nothing() -> None:
    rule = Poison()
    for begin in range(0, 900, 10):
        ranges = {("t", 0): (begin, begin + 10)}
        bad = {("t", 0): dict.fromkeys([begin, begin + 3, begin + 6], BAD)}
        assert not rule.may_reject(ranges, bad, float(begin))
        rule.passed(ranges, float(begin), bad)


def test_person_is_asked_once_a_topic_error_and_hour() -> None:
    rule = Poison()
    for p in range(3):
        rule.failed({("t", p): (0, 1)}, 0.0, Failure("A: x"))
    rule.failed({("u", 0): (0, 1)}, 0.0, Failure("A: x"))
    asked: Counter[tuple[str, str]] = Counter()
    for second in range(0, 7_300, 10):
        for question in {(tp[0], kind) for tp, kind in rule.waiting(float(second)).items()}:
            asked[question] += 1
            rule.wait(*question, float(second))
        if second == 290:
            assert not asked, "nothing passes, so after five minutes"
    assert asked == {("t", "A"): 2, ("u", "A"): 2}


def test_person_is_asked_sooner_if_others_pass() -> None:
    rule = Poison()
    rule.failed({("t", 0): (0, 1)}, 0.0, Failure("A: x"))
    for second in range(0, 120, 10):
        rule.passed({("t", 1): (second, second + 1)}, float(second))
        assert rule.waiting(float(second)) == {}
    assert rule.waiting(120.0) == {("t", 0): "A"}


def test_weaker_rule_takes_good_records_for_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds above find a rule without the clauses that look at other records."""
    monkeypatch.setattr(
        Poison, "_is_poison", lambda _self, _topic, suspect, now: len(suspect.tries) >= 5 and now > 600
    )
    assert len(Flow(World(FOR_ALL["fails 0.9"])).good) > 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: no date", "ValueError"),
        ("org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.", "DIVIDE_BY_ZERO"),
        ("KeyError", "KeyError"),
    ],
)
def test_kind_of_an_error(text: str, kind: str) -> None:
    assert Failure(text).kind == kind
