"""`failOnDataLoss`: a partition whose next records Kafka has no more is parked until a person has decided."""

from __future__ import annotations

import pytest

from muster.consumer.poison_answers import PoisonAnswers
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.protocol import GoneRange
from muster.core.model import Seek, TopicPartition
from muster.core.parking import Answer
from muster.core.positions import Why
from muster.core.turns import Failure
from muster.edges.consul_answers import GivenAnswer
from tests.support.planned_consumer import PLACE, PlannedConsumer, PlannedKafka

TP = ("t", 1)


class Consumer(PlannedConsumer):
    """Its batches hold at most 20 records, and the handler takes all of them."""

    def __init__(self, kafka: PlannedKafka) -> None:
        self.read: list[int] = []
        """Offsets of partition 1, in the order in which they were read."""
        super().__init__(kafka, Bounds(20), fail_on_data_loss=True)

    def process(self) -> None:
        plan = self.agent.batch_started()
        begin, end = plan.filled.get(TP, (0, 0))
        self.read += range(begin, end)
        self.agent.batch_done(plan, None)

    @property
    def lost(self) -> dict[Why, int]:
        return self.agent.view().counters.lost.get(TP, {})

    @property
    def committed(self) -> int:
        return self.kafka.committed[TP]


@pytest.fixture
def kafka() -> PlannedKafka:
    return PlannedKafka(2)


@pytest.fixture
def parked(kafka: PlannedKafka) -> Consumer:
    """It has read up to offset 10; 40 records from there on were deleted."""
    made = Consumer(kafka)
    assert made.plan()
    made.process()
    made.commit()
    kafka.begins[TP] = 50
    made.go()
    assert made.failing is not None
    return made


def test_partition_with_a_gap_is_parked_before_it_and_the_others_go_on(parked: Consumer) -> None:
    parked.kafka.ends["t", 0] = 500
    parked.go()
    failing = parked.failing
    assert failing is not None
    assert (failing.offset, failing.lost, failing.attempts, failing.parked) == (10, 40, 0, True)
    assert failing.error.startswith("40 records from offset 10 on were deleted by retention")
    assert parked.read == [*range(10)], "nothing behind the gap"
    assert (parked.committed, parked.kafka.committed["t", 0]) == (10, 500)
    assert parked.lost == {}, "not before a person has accepted it"
    (error,) = parked.page.get("/status").json()["errors"]
    assert error.startswith("parked t [1]: topic 't', partition 1: 40 records from offset 10 on were deleted")
    assert "'muster skip-record t 1 10'" in error
    assert 1 in parked.agent.view().topics["t"].running


def test_accepted_loss_is_counted_and_committed_once_and_its_partition_goes_on(parked: Consumer) -> None:
    parked.kafka.begins[TP] = 60  # retention has gone on while the person thought about it
    parked.go()
    assert parked.failing is not None
    assert parked.failing.lost == 50
    assert parked.agent.answers.answer(TP, 10, Answer.SKIP, "ann (known)")
    assert parked.failing.answer == "skip" if parked.failing else False
    assert not parked.agent.answers.answer(TP, 10, Answer.RETRY, "bob (no)"), "it is under way"
    parked.plan()
    assert parked.agent.due(PLACE)[TP].offset == 60, "at once, before any record behind it"
    parked.process()
    parked.go()
    assert parked.read == [*range(10), *range(60, 100)]
    assert (parked.failing, parked.lost, parked.committed) == (None, {Why.RETENTION: 50}, 100)
    assert parked.page.get("/status").json()["errors"] == []
    assert parked.agent.view().counters.skipped == {}, "no record that the handler failed with"


def test_next_owner_does_not_ask_about_a_loss_that_was_accepted(parked: Consumer) -> None:
    parked.agent.answers.answer(TP, 10, Answer.SKIP, "ann (known)")
    parked.plan()
    parked.commit()
    other = Consumer(parked.kafka)
    other.go()
    assert other.failing is None
    assert other.read == [*range(50, 100)]


def test_next_owner_parks_the_partition_again_and_it_runs_there(parked: Consumer) -> None:
    other = Consumer(parked.kafka)
    other.go()
    assert other.failing is not None
    assert (other.failing.offset, other.failing.lost) == (10, 40)
    assert other.read == []
    assert other.committed == 10
    assert 1 in other.agent.view().topics["t"].running


def test_retry_looks_again(parked: Consumer) -> None:
    assert parked.agent.answers.answer(TP, 10, Answer.RETRY, "ann (restored?)")
    assert parked.failing is None
    parked.go()
    assert parked.failing is not None
    assert parked.read == [*range(10)]
    parked.kafka.begins[TP] = 0
    parked.go()
    assert parked.failing is None, "Kafka has them again"
    assert parked.read == [*range(100)]
    assert parked.lost == {}


def test_dead_letter_of_lost_records_is_refused(parked: Consumer) -> None:
    assert not parked.agent.answers.answer(TP, 10, Answer.DEAD_LETTER, "ann (keep it)")
    assert not parked.agent.answers.answer(TP, 11, Answer.SKIP, "ann (another one)")
    parked.go()
    assert parked.read == [*range(10)]


def test_partition_with_a_gap_stays_parked_while_its_query_is_started_again_and_kafka_is_away(
    parked: Consumer,
) -> None:
    parked.restart()
    parked.go()
    assert parked.failing is not None
    assert parked.agent.answers.answer(TP, 10, Answer.SKIP, "ann (known)")
    parked.kafka.away = True
    parked.go()
    assert parked.failing is not None
    parked.restart()
    parked.kafka.away = False
    for _ in range(100):
        parked.go(0.2)
        if parked.failing is None:
            break
    parked.go()
    assert parked.read == [*range(10), *range(50, 100)]


def test_seek_ends_the_question_about_a_gap(parked: Consumer) -> None:
    parked.assign({0, 1}, 2, {1: Seek("s", 80)})
    parked.go()
    assert parked.failing is None
    assert parked.read == [*range(10), *range(80, 100)]
    assert parked.lost == {}


def test_batch_whose_task_failed_for_a_gap_is_not_read_behind_it(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka)
    assert consumer.plan()
    kafka.begins[TP] = 5
    plan = consumer.agent.batch_started()
    assert plan.filled[TP] == (0, 10)
    consumer.agent.batch_done(
        plan, Failure("IOException: topic 't', partition 1: the records from offset 0 ...")
    )
    consumer.go(20)
    failing = consumer.failing
    assert failing is not None
    assert (failing.offset, failing.lost) == (0, 5)
    assert consumer.read == []
    assert kafka.committed["t", 0] == 100, "the other one is read on"
    assert consumer.agent.answers.answer(TP, 0, Answer.SKIP, "ann (known)")
    consumer.go(20)
    assert consumer.read == [*range(5, 100)]
    assert consumer.lost == {Why.RETENTION: 5}


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_truncated_partition_is_parked_and_goes_on_where_it_ended(
    kafka: PlannedKafka, grown: bool, restarts: bool
) -> None:
    consumer = Consumer(kafka)
    consumer.go()
    kafka.ends[TP] = 95
    consumer.go(20)
    failing = consumer.failing
    assert failing is not None
    assert (failing.offset, failing.lost) == (100, 5)
    if grown:
        kafka.ends[TP] = 120
    if restarts:
        consumer.restart()
    consumer.go(20)
    assert consumer.failing == failing, "what was written there since is not left out"
    assert consumer.read == [*range(100)]
    assert consumer.agent.answers.answer(TP, 100, Answer.SKIP, "ann (known)")
    consumer.go()
    assert consumer.failing is None
    assert consumer.read == [*range(100), *range(95, kafka.ends[TP])]
    assert (consumer.lost, consumer.committed) == ({Why.TRUNCATION: 5}, kafka.ends[TP])


def test_end_that_a_task_found_parks_the_partition_before_anything_behind_it(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka)
    assert consumer.plan()
    consumer.process()
    kafka.ends[TP] = 200
    consumer.planner.missed(GoneRange(topic="t", partition=1, begin=7, end=10, deleted=False))
    consumer.go()
    assert consumer.failing is not None
    assert (consumer.failing.offset, consumer.failing.lost) == (10, 3)
    assert consumer.read == [*range(10)]


def test_answer_about_a_gap_is_taken_from_consul_and_deleted_when_it_is_done(parked: Consumer) -> None:
    ended: list[TopicPartition] = []
    given = {TP: GivenAnswer(10, Answer.SKIP, "ann", 1.0, "known", 4)}

    class Box:
        """`AnswerBox`, with what was deleted."""

        def all(self) -> dict[TopicPartition, GivenAnswer]:
            return dict(given)

        def end(self, tp: TopicPartition, _: GivenAnswer) -> None:
            ended.append(tp)

    answers = PoisonAnswers(parked.agent, Box())  # type: ignore[arg-type]
    answers.look()
    assert parked.agent.answers.answered_by(TP) == "ann (known)"
    answers.look()
    assert ended == []
    parked.go()
    answers.look()
    assert ended == [TP]
