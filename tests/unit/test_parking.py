"""A record that a handler fails with for good: its partition is parked, and what a person answers is carried out."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from muster.consumer.poison_answers import PoisonAnswers
from muster.consumer.problems import HANDLER
from muster.core.model import FailingRecord, TopicAssignment, TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer, OnPoison
from muster.core.turns import Failure
from muster.edges.consul_answers import GivenAnswer
from tests.support.planned_consumer import PLACE, PlannedKafka
from tests.support.poisoned_consumer import POISON, Consumer

ASKED = 130
"""Seconds after which a person is asked about a record if others pass."""
JUDGED = 700
"""Seconds after which a record is poison."""


@pytest.fixture
def kafka() -> PlannedKafka:
    return PlannedKafka(3)


@pytest.fixture
def parked(kafka: PlannedKafka) -> Consumer:
    made = Consumer(kafka)
    made.go(5)
    made.pass_time(ASKED)
    assert made.failing == FailingRecord(70, "ValueError: poison", made.tried, parked=True)
    return made


def test_record_that_fails_holds_up_its_partition_alone(parked: Consumer) -> None:
    tried = parked.agent.view().counters.handler_failures
    before = {p: max(end for _, end in parked.read_of(p)) for p in range(3)}
    parked.pass_time(300)
    assert parked.agent.view().counters.handler_failures <= tried + 5, "once a minute"
    assert max(end for _, end in parked.read_of(1)) == before[1] == 70
    assert all(max(end for _, end in parked.read_of(p)) > before[p] + 80 for p in (0, 2))
    assert parked.kafka.committed[POISON] == 70
    (error,) = parked.page.get("/status").json()["errors"]
    assert "topic 't', partition 1 (its next record, at offset 70, failed " in error
    assert parked.metric("muster_consumer_parked") == 1
    assert parked.page.get("/health").status_code == 200


def test_record_is_never_judged_by_default(parked: Consumer) -> None:
    parked.pass_time(2 * JUDGED)
    assert parked.metric("muster_consumer_poison_records_total") == 0
    assert parked.agent.letters(PLACE) == {}
    assert parked.failing is not None
    assert parked.failing.answer == ""


def test_person_that_waits_is_asked_again_after_an_hour(parked: Consumer) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.WAIT, "ann (later)")
    parked.pass_time(3450)
    assert parked.failing is not None
    assert not parked.failing.parked
    parked.pass_time(160)
    assert parked.failing.parked


def test_paused_partition_is_not_asked_about(parked: Consumer) -> None:
    owners = dict.fromkeys(range(3), "me")
    node = TopicAssignment("k:9092", "g", owners, 2, topic_id="A", paused=frozenset({1}))
    parked.agent.assigned("t", node, 2)
    assert parked.failing is not None
    assert not parked.failing.parked


@pytest.mark.parametrize("on_poison", OnPoison)
def test_error_of_the_sink_is_no_records_fault(kafka: PlannedKafka, on_poison: OnPoison) -> None:
    consumer = Consumer(kafka, on_poison)
    consumer.error = Failure("SinkError: no room", of_record=False)
    consumer.go(5)
    consumer.pass_time(2 * JUDGED)
    assert consumer.failing is None
    assert consumer.agent.letters(PLACE) == {}
    assert "SinkError: no room" in consumer.agent.view().problems[HANDLER]
    assert consumer.kafka.committed["t", 0] > 300, "the others go on"


def test_skipped_record_is_committed_past_and_never_given_to_the_handler(parked: Consumer) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.SKIP, "ann (known)")
    due = parked.agent.due(PLACE)
    assert due[POISON].offset == 71
    parked.go(10, commits=False)
    assert parked.failing == FailingRecord(
        70,
        "ValueError: poison",
        parked.tried,
        parked=True,
        answer="skip",
        decided_for=pytest.approx(10, abs=1),
    )
    assert max(end for _, end in parked.read_of(1)) == 70, "not before Kafka has acknowledged it"
    parked.go(5)
    assert parked.offsets_of(1) == {*range(70), *range(71, 100)}
    assert parked.kafka.committed[POISON] == 100
    assert parked.failing is None
    assert parked.page.get("/status").json()["errors"] == []
    assert parked.metric("muster_consumer_skipped_records_total") == 1


def test_retried_record_is_tried_as_often_again_and_read_if_it_is_mended(parked: Consumer) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.RETRY, "ann (try)")
    parked.go(0.4)
    assert parked.failing == FailingRecord(70, "ValueError: poison", 1)
    parked.go(5)
    parked.pass_time(ASKED)
    assert parked.failing.parked
    parked.poisoned.clear()
    assert parked.agent.answers.answer(POISON, 70, Answer.RETRY, "ann (mended)")
    parked.go(5)
    assert parked.read_of(1)[-1][1] == 100
    assert parked.failing is None


def test_dead_letter_is_due_alone_and_its_partition_goes_on_when_it_is_written(parked: Consumer) -> None:
    assert parked.agent.letters(PLACE) == {}
    assert parked.agent.answers.answer(POISON, 70, Answer.DEAD_LETTER, "ann (keep it)")
    assert not parked.agent.answers.answer(POISON, 70, Answer.RETRY, "bob (no)"), (
        "its letter may be on the way"
    )
    assert parked.agent.answers.answered_by(POISON) == "ann (keep it)"
    assert POISON not in parked.agent.due(PLACE)
    letters = parked.agent.letters(PLACE)
    assert letters[POISON].offset == 71
    parked.acknowledge(letters)
    assert parked.agent.letters(PLACE) == {}
    parked.go(5)
    assert parked.kafka.committed[POISON] == 100
    assert parked.metric("muster_consumer_dead_letters_total") == 1


def test_poison_gets_a_letter_if_the_settings_say_so(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, OnPoison.DEAD_LETTER)
    consumer.go(5)
    consumer.pass_time(JUDGED)
    assert consumer.agent.letters(PLACE)[POISON].offset == 71
    assert consumer.metric("muster_consumer_poison_records_total") == 1
    assert consumer.agent.answers.answered_by(POISON) == "on_poison"


def test_letter_waits_until_what_was_processed_before_it_is_committed(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka)
    consumer.go(20, commits=False)
    assert consumer.agent.answers.answer(POISON, 70, Answer.DEAD_LETTER, "ann (keep it)")
    assert consumer.agent.letters(PLACE) == {}
    assert consumer.agent.due(PLACE)[POISON].offset == 70
    consumer.commit()
    assert consumer.agent.letters(PLACE)[POISON].offset == 71


def test_acknowledgement_in_the_middle_of_a_batch_does_not_take_the_partition_back(parked: Consumer) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.DEAD_LETTER, "ann (keep it)")
    letters = parked.agent.letters(PLACE)
    parked.kafka.ends["t", 0] += 5
    assert parked.plan()
    batch = parked.agent.batch_started()
    assert batch.ranges[POISON] == (70, 70)
    parked.acknowledge(letters)
    parked.agent.batch_done(batch, None)
    assert POISON not in parked.agent.due(PLACE), "offset 70 is not to be committed after 71"
    parked.go(5)
    assert parked.offsets_of(1) == {*range(70), *range(71, 100)}


@pytest.mark.parametrize("moment", ["before the turn", "after the turn"])
def test_acknowledgement_in_the_middle_of_a_planning_is_heeded_by_the_next(
    parked: Consumer, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.DEAD_LETTER, "ann (keep it)")
    letters = parked.agent.letters(PLACE)
    turn = parked.agent.failing.turn

    def meanwhile(ready: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        monkeypatch.undo()
        if moment == "before the turn":
            parked.acknowledge(letters)
            return turn(ready)
        found = turn(ready)
        parked.acknowledge(letters)
        return found

    monkeypatch.setattr(parked.agent.failing, "turn", meanwhile)
    parked.go(5)
    assert parked.offsets_of(1) == {*range(70), *range(71, 100)}
    assert parked.kafka.committed[POISON] == 100
    assert parked.agent.view().counters.dead_lettered == {"t": 1}


def test_letter_that_waits_keeps_its_partition_from_beginning_again(parked: Consumer) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.DEAD_LETTER, "ann (keep it)")
    parked.restart()
    parked.go(5)
    letters = parked.agent.letters(PLACE)
    assert letters[POISON].offset == 71
    parked.acknowledge(letters)
    parked.go(5)
    assert parked.offsets_of(1) == {*range(70), *range(71, 100)}


def test_batch_of_others_that_fails_meanwhile_does_not_take_the_partition_back(parked: Consumer) -> None:
    assert parked.agent.answers.answer(POISON, 70, Answer.SKIP, "ann (known)")
    parked.kafka.ends["t", 0] += 5
    assert parked.plan()
    batch = parked.agent.batch_started()
    parked.commit()
    parked.agent.batch_done(batch, Failure("ValueError: another"))
    parked.go(20)
    assert parked.kafka.committed[POISON] == 100
    assert parked.offsets_of(1) == {*range(70), *range(71, 100)}


def test_partition_stays_parked_when_the_query_is_started_again(parked: Consumer) -> None:
    parked.restart()
    parked.go(5)
    parked.pass_time(ASKED)
    assert parked.failing == FailingRecord(70, "ValueError: poison", parked.tried, parked=True)
    assert parked.agent.answers.answer(POISON, 70, Answer.SKIP, "ann (known)")
    parked.go(5)
    assert parked.kafka.committed[POISON] == 100


def test_record_is_skipped_while_no_query_runs(parked: Consumer) -> None:
    parked.agent.query_ended(failed=True, error="gone")
    assert parked.agent.answers.answer(POISON, 70, Answer.SKIP, "ann (known)")
    parked.commit()
    assert parked.kafka.committed[POISON] == 71
    parked.start()
    parked.go(5)
    assert parked.offsets_of(1) == {*range(70), *range(71, 100)}


def test_next_owner_tries_the_record_again_and_parks_it_again(parked: Consumer) -> None:
    parked.assign({0, 2}, 2)
    parked.go(1)
    assert parked.failing is None
    assert 1 not in parked.agent.view().topics["t"].held
    assert parked.page.get("/status").json()["errors"] == []
    other = Consumer(parked.kafka)
    other.go(5)
    other.pass_time(ASKED)
    assert other.failing == FailingRecord(70, "ValueError: poison", other.tried, parked=True)


def test_partition_is_read_again_when_retention_has_deleted_the_record(parked: Consumer) -> None:
    parked.kafka.ends[POISON] = 300
    parked.kafka.beginning_offsets = lambda keys: {  # type: ignore[method-assign]
        key: 200 if key == POISON else 0 for key in keys
    }
    parked.go(5)
    assert parked.offsets_of(1) == {*range(70), *range(200, 300)}
    assert parked.failing is None


@pytest.mark.parametrize("answer", [Answer.SKIP, Answer.DEAD_LETTER])
def test_answer_about_a_record_that_retention_has_deleted_is_void(parked: Consumer, answer: Answer) -> None:
    assert parked.agent.answers.answer(POISON, 70, answer, "ann (known)")
    late = {**parked.agent.due(PLACE), **parked.agent.letters(PLACE)}
    parked.kafka.ends[POISON] = 300
    parked.kafka.beginning_offsets = lambda keys: {  # type: ignore[method-assign]
        key: 200 if key == POISON else 0 for key in keys
    }
    parked.go(5, commits=False)
    assert parked.offsets_of(1) == {*range(70), *range(200, 300)}
    parked.acknowledge({POISON: late[POISON]})
    parked.go(5)
    assert parked.kafka.committed[POISON] == 300
    assert parked.agent.letters(PLACE) == {}
    assert parked.offsets_of(1) == {*range(70), *range(200, 300)}


def test_consumer_that_is_to_stop_names_the_record(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, OnPoison.STOP)
    stopped: list[str] = []
    consumer.agent.failing.on_stop = stopped.append
    consumer.go(5)
    consumer.pass_time(JUDGED)
    (why,) = stopped
    assert why.startswith("topic 't', partition 1: the record at offset 70 failed ")
    assert "times alone: ValueError: poison" in why


def test_record_to_stop_for_is_logged_unless_taken(
    kafka: PlannedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(kafka, OnPoison.STOP)
    consumer.go(5)
    consumer.pass_time(JUDGED)
    (error,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert error.getMessage().startswith("topic 't', partition 1: the record at offset 70 failed ")


@pytest.mark.parametrize("on_poison", OnPoison)
def test_sink_that_is_down_makes_no_poison(kafka: PlannedKafka, on_poison: OnPoison) -> None:
    consumer = Consumer(kafka, on_poison)
    consumer.poisoned = set()
    stopped: list[str] = []
    consumer.agent.failing.on_stop = stopped.append
    while consumer.now < 600:
        if consumer.plan():
            consumer.agent.batch_done(consumer.agent.batch_started(), Failure("OSError: no sink"))
        for tp in kafka.ends:
            kafka.ends[tp] += 1
    assert all(record.parked for record in consumer.agent.answers.failing.values()), "a person is asked"
    assert all(record.answer == "" for record in consumer.agent.answers.failing.values())
    assert consumer.agent.letters(PLACE) == {}
    assert stopped == []
    assert "OSError: no sink" in consumer.agent.view().problems[HANDLER], "a person sees it"
    assert consumer.page.get("/health").status_code == 503


def test_person_may_answer_before_it_is_known_to_be_poison(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka)
    consumer.poisoned = {0}
    consumer.kafka.ends = {POISON: 100, ("t", 0): 0, ("t", 2): 0}
    while consumer.now < 300:
        if consumer.plan():
            consumer.process()
    failing = consumer.failing
    assert failing is not None
    assert failing.offset == 0
    assert not consumer.agent.answers.answer(POISON, 5, Answer.SKIP, "ann (another one)")
    assert consumer.agent.answers.answer(POISON, 0, Answer.SKIP, "ann (known)")
    consumer.go(5)
    assert consumer.kafka.committed[POISON] == 100


class Box:
    """`AnswerBox`, with what was deleted."""

    def __init__(self) -> None:
        self.given: dict[TopicPartition, GivenAnswer] = {}
        self.ended: list[TopicPartition] = []

    def standing(self) -> tuple[StandingAnswer, ...]:
        return ()

    def all(self) -> dict[TopicPartition, GivenAnswer]:
        return dict(self.given)

    def end(self, tp: TopicPartition, _: GivenAnswer) -> None:
        self.ended.append(tp)


def test_answer_is_carried_out_once_and_deleted_when_it_is_done(parked: Consumer) -> None:
    box = Box()
    answers = PoisonAnswers(parked.agent, box)  # type: ignore[arg-type]
    box.given = {POISON: GivenAnswer(69, Answer.SKIP, "ann", 1.0, "another record", 4)}
    answers.look()
    assert parked.agent.answers.answered_by(POISON) == ""
    box.given = {POISON: GivenAnswer(70, Answer.RETRY, "ann", 1.0, "mended", 5)}
    answers.look()
    assert box.ended == [POISON]
    parked.pass_time(ASKED)
    answers.look()
    assert parked.failing is not None
    assert parked.failing.parked, "an answer that could not be deleted is not carried out again"
    box.given = {POISON: GivenAnswer(70, Answer.SKIP, "ann", 2.0, "known", 6)}
    answers.look()
    assert parked.agent.answers.answered_by(POISON) == "ann (known)"
    assert box.ended == [POISON], "not committed yet"
    parked.commit()
    answers.look()
    assert box.ended == [POISON, POISON]


def test_answers_are_not_asked_for_while_nothing_fails(
    kafka: PlannedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(kafka)
    asked, beats = threading.Event(), threading.Semaphore(0)
    answers = PoisonAnswers(consumer.agent, Box())  # type: ignore[arg-type]
    monkeypatch.setattr("muster.consumer.poison_answers.LOOK", 0.01)
    monkeypatch.setattr(answers, "look", asked.set)
    monkeypatch.setattr(answers, "look_at_standing", asked.set)
    thread = threading.Thread(target=answers.run, args=(beats.release,))
    thread.start()
    for _ in range(3):
        assert beats.acquire(timeout=10)
    assert not asked.is_set()
    consumer.go(20)
    assert asked.wait(10)
    answers.stop()
    thread.join(10)
    assert not thread.is_alive()
