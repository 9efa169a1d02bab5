"""A partition carries out no seek from before the last one that was carried out or taken back."""

from __future__ import annotations

import pytest

from muster.consumer.source.batch_size import Bounds
from muster.core.model import Seek
from muster.core.ownership import Partition, Source
from muster.core.positions import NO_NOTE, Committed, Note, format_stamp, noted, passed_by
from muster.core.seeking import new_id
from tests.support.planned_consumer import PlannedConsumer, PlannedKafka

TP = ("t", 0)
FIRST, SECOND = Seek("s1", 10), Seek("s2", 50)
TAKEN_BACK = Seek("s2", None)


class Consumer(PlannedConsumer):
    def process(self) -> None:
        self.agent.batch_done(self.agent.batch_started(), None)


@pytest.fixture
def kafka() -> PlannedKafka:
    made = PlannedKafka(1)
    made.committed[TP], made.stamps[TP] = 80, format_stamp("c", "A")
    return made


def started(kafka: PlannedKafka) -> Consumer:
    made = Consumer(kafka, Bounds(records=1))
    made.go(0.2)
    return made


def stands(kafka: PlannedKafka) -> tuple[int, str]:
    return kafka.committed[TP], noted(Committed(kafka.committed[TP], kafka.stamps[TP]), "A").sought


def seek(consumer: Consumer, asked: Seek, epoch: int = 2) -> int:
    """Have the consumer read a node with a seek; returns how many seeks it has carried out then."""
    consumer.assign({0}, epoch, {0: asked})
    consumer.go(0.4)
    return consumer.agent.view().counters.seeks


def test_seek_before_another_owners_is_not_carried_out(kafka: PlannedKafka) -> None:
    """Two seeks were carried out, and ZooKeeper is restored to the first, with another owner."""
    consumer = started(kafka)
    assert [seek(consumer, FIRST), seek(consumer, SECOND, 3)] == [1, 2]
    assert seek(started(kafka), FIRST, 4) == 0
    assert stands(kafka)[1] == "s2"
    assert kafka.committed[TP] > 50


def test_seek_taken_back_moves_nothing_and_is_noted(kafka: PlannedKafka) -> None:
    consumer = started(kafka)
    before = kafka.committed[TP]
    seek(consumer, TAKEN_BACK)
    assert before <= kafka.committed[TP] <= before + 2
    assert stands(kafka)[1] == "s2"
    assert seek(started(kafka), FIRST, 3) == 0, "which was taken back, and a backup has it"


def test_seek_taken_back_accepts_no_loss(kafka: PlannedKafka) -> None:
    """What Kafka has no more waits for a person; that a seek was taken back is no answer."""
    kafka.begins[TP] = kafka.committed[TP] + 5
    consumer = Consumer(kafka, Bounds(records=1), fail_on_data_loss=True)
    seek(consumer, TAKEN_BACK)
    assert consumer.agent.parked.losses.keys() == {TP}
    assert stands(kafka) == (80, "")


@pytest.mark.parametrize(("now", "before"), [(100.0, ()), (100.0, ("",)), (50.0, (new_id(100.0),))])
def test_id_is_above_all_before(now: float, before: tuple[str, ...]) -> None:
    """By a clock that went back, too."""
    found = new_id(now, *before)
    assert len(found) == len(new_id(1e9))
    assert all(found > each for each in before)
    assert new_id(now + 1, found) > found
    assert Note(found).has(found)
    assert not Note().has(found)


def test_commit_from_before_a_seek_has_been_passed() -> None:
    """Without fences: of an owner that was replaced, and is further than the seek has gone back to."""
    present = Committed(10, format_stamp("c", "A", Note("s2")))
    assert "seek s2" in passed_by(present, Committed(80, format_stamp("c", "A", Note("s1"))))
    assert passed_by(present, Committed(80, format_stamp("c", "A", Note("s2")))) == ""


def test_seek_without_offset_cannot_be_carried_out() -> None:
    partition = Partition(TP, Source("kafka:9092", "g", "A"), processed=80)
    with pytest.raises(ValueError, match="topic 't', partition 0: seek 's2' has no offset"):
        partition.carry_out(TAKEN_BACK)
    assert (partition.processed, partition.note, partition.seek) == (80, NO_NOTE, None)
