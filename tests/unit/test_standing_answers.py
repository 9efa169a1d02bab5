"""Standing answers: a consumer gives them to records that fail as they say, and stops where they match too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.consumer import poison_answers
from muster.consumer.poison_answers import PoisonAnswers
from muster.consumer.query import QuerySupervisor
from muster.core.failures import MOST, Failures
from muster.core.model import TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer, OnPoison
from muster.core.poison import HOUR, Poison
from muster.core.turns import Failure
from muster.core.wire import parse_status
from muster.edges.consul import ConsulError
from muster.edges.consul_answers import GivenAnswer
from tests.support.planned_consumer import PLACE, PlannedKafka
from tests.support.poisoned_consumer import POISON, Consumer

SKIP = StandingAnswer(
    by="ann", at=1.0, why="known", topic="t", answer=Answer.SKIP, error="ValueError", text="poi"
)
TP = ("t", 0)


class Box:
    """`AnswerBox` with standing answers; `left` of the limited ones."""

    def __init__(self, *standing: StandingAnswer, left: int = 0) -> None:
        self.given = standing
        self.left = left
        self.reads = 0
        self.away = False

    def standing(self) -> tuple[StandingAnswer, ...]:
        self.reads += 1
        if self.away:
            raise ConsulError("Consul does not answer")
        return self.given

    def take(self, _one: StandingAnswer, _now: float) -> bool:
        self.left -= 1
        return self.left >= 0

    def all(self) -> dict[TopicPartition, GivenAnswer]:
        return {}


class Answered(Consumer):
    """Its answers are looked at between batches."""

    def __init__(self, kafka: PlannedKafka, box: Box, on_poison: OnPoison = OnPoison.PARK) -> None:
        self.box, self.answers = box, None
        super().__init__(kafka, on_poison)
        self.answers = PoisonAnswers(self.agent, box)  # type: ignore[arg-type]

    def process(self) -> None:
        super().process()
        if self.answers is not None:
            self.answers.look_at_standing()

    @property
    def skipped(self) -> int:
        return self.agent.view().counters.skipped.get("t", 0)


@pytest.fixture
def kafka() -> PlannedKafka:
    return PlannedKafka(3)


def test_record_that_matches_is_skipped_after_three_failures(kafka: PlannedKafka) -> None:
    consumer = Answered(kafka, Box(SKIP))
    consumer.poisoned = {70, 75}
    consumer.go(60)
    assert consumer.kafka.committed[POISON] == 100
    assert consumer.skipped == 2
    assert consumer.offsets_of(1) == set(range(100)) - {70, 75}
    assert consumer.agent.answers.failing == {}


@pytest.mark.parametrize(
    "other", [replace(SKIP, topic="u"), replace(SKIP, error="KeyError"), replace(SKIP, text="Poi")], ids=str
)
def test_record_that_does_not_match_waits_for_a_person(kafka: PlannedKafka, other: StandingAnswer) -> None:
    consumer = Answered(kafka, Box(other))
    consumer.go(5)
    consumer.pass_time(130)
    assert consumer.skipped == 0
    assert consumer.failing is not None
    assert consumer.failing.parked


def test_sinks_own_error_is_given_no_answer(kafka: PlannedKafka) -> None:
    consumer = Answered(kafka, Box(SKIP))
    consumer.error = Failure("ValueError: poison", of_record=False)
    consumer.go(60)
    assert consumer.skipped == 0
    assert consumer.kafka.committed[POISON] == 70


def test_letter_is_written_by_the_standing_answer(kafka: PlannedKafka) -> None:
    consumer = Answered(kafka, Box(replace(SKIP, answer=Answer.DEAD_LETTER)))
    consumer.go(30)
    assert {tp: due.offset for tp, due in consumer.agent.letters(PLACE).items()} == {POISON: 71}
    assert consumer.agent.answers.answered_by(POISON) == "the standing answer of ann (known)"


@pytest.mark.parametrize("on_poison", [OnPoison.PARK, OnPoison.DEAD_LETTER])
def test_record_that_is_retried_is_not_asked_about(kafka: PlannedKafka, on_poison: OnPoison) -> None:
    consumer = Answered(kafka, Box(replace(SKIP, answer=Answer.RETRY)), on_poison)
    consumer.go(5)
    consumer.pass_time(900)
    assert consumer.failing is not None
    assert not consumer.failing.parked
    assert consumer.agent.letters(PLACE) == {}
    consumer.box.given = ()
    consumer.pass_time(130)
    assert consumer.failing.parked, "it was taken back"


def test_limit_is_counted_before_the_answer_is_given(kafka: PlannedKafka) -> None:
    consumer = Answered(kafka, Box(replace(SKIP, records=2), left=2))
    consumer.poisoned = {10, 20, 30}
    consumer.go(60)
    assert consumer.skipped == 2
    consumer.pass_time(130)
    assert consumer.failing is not None
    assert (consumer.failing.offset, consumer.failing.parked) == (30, True)


def test_page_names_what_failed_within_the_hour(kafka: PlannedKafka) -> None:
    consumer = Answered(kafka, Box(SKIP))
    consumer.go(60)
    unasked = parse_status(consumer.page.get("/status").content, "u").on("t")
    assert unasked.failures is None
    found = parse_status(consumer.page.get("/status?failures=true").content, "u").on("t").failures
    assert found is not None
    assert [(one.partition, one.offset, one.error) for one in found] == [(1, 70, "ValueError: poison")]


def test_failures_are_kept_for_an_hour_and_bounded() -> None:
    failures = Failures()
    for offset in range(MOST + 5):
        failures.note(TP, offset, "x" * 5_000, float(offset))
    kept = failures.of("t", 0.0)
    assert [one.offset for one in kept] == [*range(5, MOST + 5)]
    assert len(kept[0].error) < 1_000
    assert failures.of("u", 0.0) == ()
    assert failures.of("t", MOST + HOUR) == kept[-5:]


def _standing(rule: Poison, tp: TopicPartition, offset: int, now: float) -> bool:
    """Whether a record that fails three times alone is given the standing answer; it is passed over then."""
    for _ in range(4):
        rule.failed({tp: (offset, offset + 1)}, now, Failure("ValueError: poison"))
    if rule.stands(tp, now) is None:
        return False
    rule.stood(tp, now)
    rule.passed_over(tp, offset + 1, now)
    return True


def test_standing_answer_stops_at_a_third_of_the_records() -> None:
    rule = Poison()
    rule.stand([SKIP])
    given = [_standing(rule, TP, offset, 1.0) for offset in range(34)]
    assert given == [True] * 32 + [False] * 2
    assert rule.stopped == {"t": "33 of the last 100 records of topic 't' were to be left out"}
    assert rule.waiting(1.0) == {TP: "ValueError"}, "at once"
    rule.answered("t")
    assert _standing(rule, TP, 40, 1.0)


def test_suspended_answer_stays_so_at_the_next_owner(kafka: PlannedKafka) -> None:
    first = Answered(kafka, Box(SKIP))
    first.poisoned = {*range(100)}
    first.pass_time(300)
    assert (first.skipped, kafka.committed[POISON]) == (32, 32)
    assert "33 of the last 100" in first.agent.failing.poison.stopped["t"]
    second = Answered(kafka, Box(SKIP))
    second.poisoned = {*range(100)}
    second.pass_time(60)
    assert (second.skipped, kafka.committed[POISON]) == (0, 32)
    assert "another owner" in second.agent.failing.poison.stopped["t"]
    second.agent.answers.answer(POISON, 32, Answer.SKIP, "ann")
    second.pass_time(60)
    assert second.skipped > 1, "until a person answers"


@pytest.mark.parametrize(
    ("passed", "left_out", "stops"), [(2, 0, False), (3, 0, True), (3, 3, False), (4, 3, True)]
)
def test_standing_answer_stops_where_more_pass(passed: int, left_out: int, stops: bool) -> None:
    rule = Poison()
    rule.stand([SKIP])
    for offset in range(left_out):
        assert _standing(rule, TP, 200 * offset, 1.0)
        rule.passed({TP: (200 * offset + 1, 200 * offset + 200)}, 1.0)
    for offset in range(passed):
        tp = ("t", 1 + offset)
        for _ in range(2):
            rule.failed({tp: (0, 1)}, 1.0, Failure("ValueError: poison"))
        rule.passed({tp: (0, 1)}, 2.0)
    assert _standing(rule, TP, 1_000, 3.0) is not stops
    assert bool(rule.stopped) is stops


def test_rejects_without_a_limit_go_by_the_standing_answer() -> None:
    rule, ranges = Poison(), {TP: (0, 100_000)}
    bad = {TP: {100 * at: "ValueError: poison" for at in range(900)}}
    assert not rule.may_reject(ranges, bad, 0.0)
    rule.passed(ranges, 0.0, bad)
    assert "more than 1000" in rule.may_reject(ranges, bad, 1.0)
    rule.answered("t")
    for standing in (
        replace(SKIP, records=5_000),
        replace(SKIP, hourly=5_000),
        replace(SKIP, answer=Answer.RETRY),
    ):
        rule.stand([standing])
        rule.passed(ranges, 1.0, bad)
        assert "more than 1000" in rule.may_reject(ranges, bad, 1.0), (
            "limited, or none that leaves anything out"
        )
        rule.answered("t")
    rule.stand([SKIP])
    for _ in range(5):
        assert not rule.may_reject(ranges, bad, 1.0)
        rule.passed(ranges, 1.0, bad)


def test_longest_text_decides_which_answer_counts() -> None:
    rule = Poison()
    letter = replace(SKIP, answer=Answer.DEAD_LETTER, text="poison")
    rule.stand([SKIP, letter])
    assert rule.matching("t", "ValueError: poison") == letter
    assert rule.matching("t", "ValueError: poi") == SKIP
    assert rule.matching("t", "ValueError: other") is None


class Rejecting(Consumer):
    """Rejects offset 70 of partition 1, in batches as a query makes them."""

    def __init__(self, kafka: PlannedKafka, box: Box) -> None:
        super().__init__(kafka)
        self.answers = PoisonAnswers(self.agent, box)  # type: ignore[arg-type]
        self.query = QuerySupervisor.__new__(QuerySupervisor)
        self.query._agent, self.query._tried, self.query._states = self.agent, {}, None
        self.query._before_rejects = self.answers.before_rejects

    def process(self) -> None:
        plan = self.agent.batch_started()
        batch = self.query._batch_of(plan)
        begin, end = plan.filled.get(POISON, (0, 0))
        if begin <= 70 < end:
            batch.reject([(*POISON, 70)], ValueError("poison"))
        self.agent.batch_done(plan, None, batch.rejected)


def test_rejects_go_by_the_standing_answers_of_then(kafka: PlannedKafka) -> None:
    box = Box(SKIP)
    consumer = Rejecting(kafka, box)
    kafka.ends[POISON] = 60
    consumer.go()
    assert box.reads == 0, "nothing was rejected"
    kafka.ends[POISON] = 100
    consumer.go()
    assert box.reads == 1
    assert consumer.agent.view().counters.skipped == {"t": 1}
    assert kafka.committed[POISON] == 100, "without a letter"


def test_rejects_read_standing_answers_once_in_ten_seconds(
    kafka: PlannedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box()
    consumer = Rejecting(kafka, box)
    for _ in range(5):
        consumer.answers.before_rejects()
    assert box.reads == 1
    monkeypatch.setattr(poison_answers, "REJECTS_LOOK", 0.0)
    consumer.answers.before_rejects()
    assert box.reads == 2


def test_rejects_go_by_what_is_known_without_consul(kafka: PlannedKafka) -> None:
    box = Box(SKIP)
    consumer = Rejecting(kafka, box)
    consumer.agent.answers.stand([SKIP])
    box.away = True
    consumer.go()
    assert consumer.agent.view().counters.skipped == {"t": 1}
    assert consumer.agent.view().problems["answers"] == (
        "what people answered is unknown: Consul does not answer"
    )
