"""Records that a handler rejects: a letter each, with the batch's offset, until that is too much."""

from __future__ import annotations

import pytest

from muster.consumer.source.batch_size import Bounds
from muster.core.model import FailingRecord, Seek
from muster.core.ownership import LETTERS
from muster.core.parking import Answer
from muster.core.turns import Failure
from muster.sinks import Batch, RejectionRefusedError
from tests.support.planned_consumer import PLACE, PlannedConsumer, PlannedKafka

TP = ("t", 1)


class Consumer(PlannedConsumer):
    """Its handler rejects the offsets `bad` of partition 1."""

    def __init__(self, kafka: PlannedKafka, bad: set[int]) -> None:
        self.bad = bad
        self.read: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
        super().__init__(kafka, Bounds(100_000))

    def process(self) -> None:
        plan = self.agent.batch_started()
        batch = Batch(plan.filled, may_reject=lambda rejected: self.agent.may_reject(plan, rejected))
        begin, end = plan.filled.get(TP, (0, 0))
        try:
            if bad := sorted(at for at in self.bad if begin <= at < end):
                batch.reject([(*TP, at) for at in bad], ValueError("no date"))
        except RejectionRefusedError as error:
            failure = Failure(f"RejectionRefusedError: {error}", of_record=False)
            self.agent.batch_done(plan, failure, batch.rejected)
            return
        for (_, p), held in plan.filled.items():
            self.read[p].append(held)
        self.agent.batch_done(plan, None, batch.rejected)

    def write_letters(self) -> dict[int, str]:
        """Write what is due with its letters; returns those of partition 1."""
        due = self.agent.letters(PLACE)
        self.acknowledge(due)
        return dict(due[TP].letters) if TP in due else {}


@pytest.fixture
def kafka() -> PlannedKafka:
    return PlannedKafka(3)


def test_rejected_records_get_letters_with_the_batch(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {7, 70})
    consumer.go(1)
    assert kafka.committed == {("t", 0): 100, ("t", 2): 100}, "not without the letters"
    assert TP not in consumer.agent.due(PLACE)
    assert consumer.read[1] == [(0, 100)], "no search"
    assert consumer.write_letters() == dict.fromkeys((7, 70), "ValueError: no date")
    assert kafka.committed[TP] == 100
    assert consumer.write_letters() == {}
    assert consumer.agent.view().counters.dead_lettered == {"t": 2}
    assert consumer.failing is None


def test_letters_of_several_batches_are_written_together(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {7, 170})
    consumer.go(1)
    kafka.ends[TP] = 200
    consumer.go(1)
    assert consumer.write_letters().keys() == {7, 170}
    assert kafka.committed[TP] == 200


def test_acknowledged_letters_are_not_written_again(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {7, 170})
    consumer.go(1)
    late = consumer.agent.letters(PLACE)
    kafka.ends[TP] = 200
    consumer.go(1)
    consumer.acknowledge(late)
    assert consumer.write_letters().keys() == {170}


def test_letter_of_a_record_behind_a_seek_waits_for_its_next_reading(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {3, 7, 70})
    consumer.go(1)
    consumer.assign({0, 1, 2}, 2, {1: Seek("s1", 7)})
    assert consumer.plan()
    assert consumer.write_letters().keys() == {3}
    assert kafka.committed[TP] == 7
    consumer.process()
    assert consumer.write_letters().keys() == {7, 70}
    assert kafka.committed[TP] == 100


def test_very_many_letters_are_written_in_parts(kafka: PlannedKafka) -> None:
    kafka.ends[TP] = 100_000
    consumer = Consumer(kafka, set())
    consumer.go(1)
    with consumer.agent.shared.change() as own:
        own.held[TP].rejected = dict.fromkeys(range(2 * LETTERS), "no")
        own.held[TP].committed = 0
    assert len(consumer.write_letters()) == LETTERS
    assert kafka.committed[TP] == LETTERS
    assert len(consumer.write_letters()) == LETTERS
    assert kafka.committed[TP] == 100_000


def test_rejects_stop_before_the_first_if_too_many(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {*range(20, 60)})
    consumer.go(2)
    assert consumer.read[1] == [(0, 20)]
    assert kafka.committed == {("t", 0): 100, TP: 20, ("t", 2): 100}
    failing = consumer.failing
    assert failing is not None
    assert (failing.offset, failing.attempts, failing.parked) == (20, 0, True), "asked at once"
    assert failing.error.startswith("the handler rejects it: ValueError: no date; ")
    assert "33 of the last 100 records of topic 't'" in failing.error
    assert consumer.write_letters() == {}


@pytest.mark.parametrize("answer", [Answer.SKIP, Answer.DEAD_LETTER, Answer.RETRY])
def test_answer_lets_a_stopped_topic_go_on(kafka: PlannedKafka, answer: Answer) -> None:
    consumer = Consumer(kafka, {*range(20, 60)})
    consumer.go(2)
    consumer.bad = {20, 21, 22, 23}
    assert consumer.agent.answers.answer(TP, 20, answer, "ann (known)")
    if answer is Answer.DEAD_LETTER:
        consumer.go(1)
        assert consumer.write_letters() == {}
    consumer.go(2)
    assert consumer.write_letters().keys() == ({20, 21, 22, 23} if answer is Answer.RETRY else {21, 22, 23})
    assert kafka.committed[TP] == 100
    assert consumer.failing is None


def test_skip_waits_for_letters_before_it(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {7})
    consumer.go(1)
    kafka.ends[TP] = 200
    consumer.bad |= {*range(120, 160)}
    consumer.go(2)
    assert consumer.failing == FailingRecord(120, consumer.failing.error if consumer.failing else "", 0, True)
    assert consumer.agent.answers.answer(TP, 120, Answer.SKIP, "ann (known)")
    assert TP not in consumer.agent.due(PLACE)
    assert consumer.write_letters() == {7: "ValueError: no date"}
    assert kafka.committed[TP] == 120
    assert consumer.agent.due(PLACE)[TP].offset == 121


def test_partition_that_closes_writes_its_letters_first(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {7})
    consumer.go(1)
    consumer.assign({0, 2}, 2)
    consumer.go(1)
    assert 1 in consumer.agent.view().topics["t"].closing
    assert consumer.write_letters().keys() == {7}
    consumer.go(1)
    assert 1 not in consumer.agent.view().topics["t"].held


def test_reject_is_refused_without_fencing(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {7})
    consumer.agent.fencing = False
    consumer.go(2)
    assert consumer.failing is not None
    assert "'fencing: false'" in consumer.failing.error
    assert kafka.committed[TP] == 7


@pytest.mark.parametrize("offset", [-1, 100])
def test_record_outside_the_batch_cannot_be_rejected(offset: int) -> None:
    batch = Batch({TP: (0, 100)})
    with pytest.raises(ValueError, match=f"offset {offset} of topic 't', partition 1 is not in the batch"):
        batch.reject([(*TP, offset)], "no")
    with pytest.raises(ValueError, match="partition 2 is not in the batch"):
        batch.reject([("t", 2, 5)], "no")


def test_topic_stays_stopped_with_another_owner(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {*range(20, 60)})
    consumer.go(2)
    assert kafka.stamps[TP] == "muster:c:A::stopped"
    assert kafka.stamps["t", 0] == "muster:c:A::stopped", "one without a bad record as well"
    other = Consumer(kafka, {50})
    other.go(2)
    assert other.failing is not None
    assert other.failing.offset == 50, "not a single one more"
    assert "had another owner" in other.failing.error
    assert other.agent.answers.answer(TP, 50, Answer.RETRY, "ann (known)")
    other.go(2)
    assert other.write_letters().keys() == {50}
    other.go(1)
    assert set(kafka.stamps.values()) == {"muster:c:A"}


def test_stop_is_committed_of_a_partition_at_its_beginning(kafka: PlannedKafka) -> None:
    consumer = Consumer(kafka, {*range(40)})
    consumer.go(2)
    assert (kafka.committed[TP], kafka.stamps[TP]) == (0, "muster:c:A::stopped::::?")


@pytest.mark.parametrize("row", [(7,), ("t", 1), ("t", 1, None), ("t", [1], 7), 7], ids=str)
def test_row_that_is_no_place_cannot_be_rejected(row: object) -> None:
    with pytest.raises(ValueError, match="names no record to reject; give rows of topic, partition and"):
        Batch({TP: (0, 10)}).reject([row], "no")  # type: ignore[list-item]
