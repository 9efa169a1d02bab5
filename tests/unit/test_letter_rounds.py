"""Rounds of the thread that writes dead letters: which letters land, and which offsets with them.

The real agent, planner, worker and fences, over a simulated producer and a simulated reader of single records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError as Reason
from confluent_kafka import KafkaException

from muster.consumer.committer import PlaceWorker
from muster.consumer.source.batch_size import Bounds
from muster.core.model import Seek, TopicPartition
from muster.core.parking import Answer
from muster.core.positions import Committed
from muster.core.turns import Failure
from muster.edges.dead_letters import Record
from muster.edges.kafka import KafkaError
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.record_reader import Found
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.support.planned_consumer import PLACE, PlannedConsumer, PlannedKafka

SETTINGS = KafkaSettings(config={"bootstrap.servers": "k:9092"})
TP = ("t", 1)


class Consumer(PlannedConsumer):
    """Its handler rejects the offsets in `rejects` of partition 1, and fails with those in `fails`."""

    def __init__(self, rejects: Collection[int] = (), fails: Collection[int] = ()) -> None:
        self.rejects, self.fails = rejects, fails
        super().__init__(PlannedKafka(2), Bounds(100_000))

    def process(self) -> None:
        plan = self.agent.batch_started()
        begin, end = plan.filled.get(TP, (0, 0))
        if any(begin <= at < end for at in self.fails):
            self.agent.batch_done(plan, Failure("ValueError: bad"))
            return
        batch = Batch(plan.filled)
        if bad := [(*TP, at) for at in self.rejects if begin <= at < end]:
            batch.reject(bad, ValueError("no date"))
        self.agent.batch_done(plan, None, batch.rejected)


class Letters:
    """`DeadLetters`, and the producer's transactions: what has `landed`, as value, headers and topic.

    Kafka has no records at the offsets in `gone`, and gives none of those in `withheld`.
    """

    name = "letters"

    def __init__(self, kafka: PlannedKafka) -> None:
        self.kafka = kafka
        self.topic: Any = self
        self.records: Any = self
        self.landed: list[tuple[int, dict[str, str], str]] = []
        self.gone: set[int] = set()
        self.withheld: set[int] = set()
        self.answers: dict[str, Reason] = {}
        """By call: the error that its next one has. `landed` is a commit that has landed nevertheless."""
        self.refusals: list[Reason] = []
        """Of the next letters."""
        self.produced = 0
        self.looked = 0
        """How often it was looked whether the topic is there."""
        self.there = False

    def ensure(self) -> None:
        self.looked += not self.there
        self.there = True

    def doubt(self) -> None:
        self.there = False

    def read_all(self, wanted: Mapping[TopicPartition, Collection[int]]) -> Found:
        found = Found({tp: {} for tp in wanted})
        for (topic, number), offsets in wanted.items():
            for at in sorted(offsets):
                if at in self.withheld:
                    found.failed[topic, number] = f"offset {at}: no answer in time"
                    break
                record = Record(topic, number, at, None, b"k", str(at).encode())
                found.records[topic, number][at] = None if at in self.gone else record
        return found


class Producer:
    """`confluent_kafka.Producer` of one partition."""

    def __init__(self, tp: TopicPartition, letters: Letters) -> None:
        self.tp, self.letters = tp, letters
        self.written: list[tuple[int, dict[str, str], str]] = []
        self.item: Any = None

    def _hear(self, call: str) -> None:
        if (error := self.letters.answers.pop(call, None)) is not None:
            raise KafkaException(error)

    def list_topics(self, *_: object, **__: object) -> None:
        """Settled at once."""

    def init_transactions(self, _timeout: float) -> None:
        """Nothing to do."""

    def begin_transaction(self) -> None:
        self.written, self.item = [], None

    def produce(self, topic: str, value: bytes, headers: Any, on_delivery: Any, **_: object) -> None:
        said = {name.removeprefix("muster."): text.decode() for name, text in headers}
        self.written.append((int(value), said, topic))
        self.letters.produced += 1
        refusals = self.letters.refusals
        on_delivery(refusals.pop(0) if refusals else self.letters.answers.pop("produce", None), None)

    def flush(self, _timeout: float) -> int:
        self._hear("flush")
        return 0

    def send_offsets_to_transaction(self, items: list[Any], _metadata: object, _timeout: float) -> None:
        (self.item,) = items

    def commit_transaction(self, _timeout: float) -> None:
        self._hear("commit")
        self.letters.landed += self.written
        self.letters.kafka.committed[self.tp] = self.item.offset
        self.letters.kafka.stamps[self.tp] = self.item.metadata
        self._hear("landed")

    def abort_transaction(self, _timeout: float) -> None:
        self._hear("abort")
        self.written = []


class Fenced(FencedCommits):
    letters: Letters

    def _open(self, tp: TopicPartition) -> Any:
        return Producer(tp, self.letters)


class Group:
    """`GroupOffsets`."""

    group_id = PLACE.group_id

    def __init__(self, kafka: PlannedKafka) -> None:
        self.kafka = kafka
        self.topics: Any = self
        self.looks = 0

    def positions(self, keys: Any) -> dict[TopicPartition, Committed | None]:
        self.looks += 1
        return self.kafka.positions(keys)

    def metadata(self) -> None:
        """Of no use here."""

    def answers(self) -> bool:
        return True


class Round:
    """A consumer, and the worker whose rounds it makes."""

    def __init__(self, consumer: Consumer, has_letters: bool = True) -> None:
        self.consumer = consumer
        self.kafka, self.agent = consumer.kafka, consumer.agent
        self.letters = Letters(consumer.kafka)
        group = self.group = cast("Any", Group(consumer.kafka))
        commits = Fenced(SETTINGS, "c", group)
        commits.letters = self.letters
        commits.claim([("t", 0), TP])
        letters: Any = self.letters if has_letters else None
        self.worker = PlaceWorker(self.agent, "c", PLACE, group, commits, threading.Event(), letters)

    def write(self) -> str:
        """Make one round; returns what is to be tried again."""
        self.agent.clock = time.monotonic  # the one of the fences
        try:
            self.worker.dead_letter()
        except KafkaError as error:
            return str(error)
        return ""

    def confirm(self) -> None:
        """Have ZooKeeper and Consul confirm once more who owns what."""
        number = self.agent.blocks.reading_wanted()
        assert number is not None
        self.agent.blocks.has_read(number)
        self.agent.blocks.is_registered(self.agent.clock())

    @property
    def landed(self) -> list[int]:
        return [at for at, _, _ in self.letters.landed]

    @property
    def committed(self) -> int | None:
        return self.kafka.committed.get(TP)


@pytest.fixture
def rejecting() -> Round:
    """A batch of 100 records was processed, of which 7 and 70 were rejected."""
    made = Round(Consumer(rejects={7, 70}))
    made.consumer.go(1)
    return made


@pytest.fixture
def parked() -> Round:
    """The handler fails with the record at 70, and a person has answered that it is dead-lettered."""
    made = Round(Consumer(fails={70}))
    made.consumer.pass_time(60)
    assert made.agent.answers.answer(TP, 70, Answer.DEAD_LETTER, "ann (keep it)")
    return made


def test_rejected_records_land_with_the_offset_of_their_batch(rejecting: Round) -> None:
    assert rejecting.write() == ""
    about = {"topic": "t", "partition": "1", "error": "ValueError: no date", "attempts": "1"}
    about |= {"by": "the handler, which rejected it", "cluster": "c", "consumer": "me", "timestamp": ""}
    assert rejecting.letters.landed == [(at, about | {"offset": str(at)}, "letters") for at in (7, 70)]
    assert (rejecting.committed, rejecting.kafka.stamps[TP]) == (100, "muster:c:A")
    assert rejecting.agent.view().counters.dead_lettered == {"t": 2}
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.letters.looked) == ([7, 70], 1)


def test_letters_before_an_unread_record_land_without_it(rejecting: Round) -> None:
    rejecting.letters.withheld.add(70)
    said = rejecting.write()
    assert "writing dead letters for group g: t [1]: offset 70: no answer in time" in said
    assert (rejecting.landed, rejecting.committed) == ([7], 70)
    rejecting.letters.withheld.clear()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.committed) == ([7, 70], 100)


def test_letters_land_only_when_their_records_are_read(rejecting: Round) -> None:
    rejecting.letters.withheld |= {7, 70}
    assert "no answer in time" in rejecting.write()
    assert (rejecting.landed, rejecting.committed) == ([], None)


def test_rejected_record_that_kafka_lost_holds_up_no_other(rejecting: Round) -> None:
    rejecting.letters.gone.add(7)
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.committed) == ([70], 100)


def test_answered_record_lands_with_the_offset_after_it(parked: Round) -> None:
    attempts = parked.agent.answers.failing[TP].attempts
    assert parked.write() == ""
    ((_, said, _),) = parked.letters.landed
    assert (said["offset"], said["error"], said["by"]) == ("70", "ValueError: bad", "ann (keep it)")
    assert int(said["attempts"]) == attempts > 1
    assert parked.committed == 71
    assert TP not in parked.agent.answers.failing


def test_answered_record_that_kafka_lost_is_skipped(parked: Round) -> None:
    parked.letters.gone.add(70)
    assert parked.write() == ""
    assert (parked.landed, parked.committed) == ([], 70)
    assert "Kafka" in parked.agent.answers.answered_by(TP)
    parked.worker.commit()
    assert (parked.landed, parked.committed) == ([], 71)
    assert parked.agent.view().counters.skipped == {"t": 1}


def test_refused_letter_keeps_its_offset_and_doubts_the_topic(rejecting: Round) -> None:
    rejecting.letters.answers["produce"] = Reason(Reason.TOPIC_AUTHORIZATION_FAILED, "no")
    assert "the dead letter could not be written to topic 'letters'" in rejecting.write()
    assert (rejecting.landed, rejecting.committed) == ([], None)
    assert not rejecting.letters.there


def test_batch_with_too_large_letter_counts_as_not_processed(rejecting: Round) -> None:
    rejecting.letters.answers["produce"] = Reason(Reason.MSG_SIZE_TOO_LARGE, "no")
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.committed) == ([], None)
    (refusal,) = rejecting.agent.view().refusals
    assert refusal == TP
    assert "raise max.message.bytes of topic 'letters'" in rejecting.agent.view().problems["fenced t [1]"]
    assert not rejecting.letters.there


def test_answer_with_too_large_letter_is_taken_back(parked: Round) -> None:
    parked.letters.answers["produce"] = Reason(Reason.MSG_SIZE_TOO_LARGE, "no")
    assert parked.write() == ""
    failing = parked.agent.answers.failing[TP]
    assert (failing.offset, failing.answer, failing.parked) == (70, "", True)
    assert failing.error.startswith(
        "ValueError: bad; the dead letter could not be written to topic 'letters': no"
    )
    assert parked.agent.answers.answered_by(TP) == ""
    assert parked.write() == ""
    assert parked.letters.produced == 1
    assert parked.agent.answers.answer(TP, 70, Answer.SKIP, "ann (too large)")
    parked.worker.commit()
    assert (parked.landed, parked.committed) == ([], 71)


def test_letters_land_once_though_their_commit_times_out(rejecting: Round) -> None:
    rejecting.letters.answers["commit"] = Reason(Reason._TIMED_OUT, "no answer in time", retriable=True)
    assert "no answer in time" in rejecting.write()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.letters.produced, rejecting.committed) == ([7, 70], 2, 100)


def test_letters_dropped_beside_a_refused_one_are_written_again(rejecting: Round) -> None:
    """The broker has answered, so its producer is known there."""
    dropped, denied = Reason(Reason._PURGE_QUEUE, "dropped"), Reason(Reason.INVALID_RECORD, "denied")
    rejecting.letters.refusals = [dropped, denied]
    assert "denied" in rejecting.write()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.letters.produced, rejecting.committed) == ([7, 70], 4, 100)


@pytest.mark.parametrize("call", ["flush", "produce", "commit"])
def test_letters_of_an_aborted_transaction_are_written_again(rejecting: Round, call: str) -> None:
    rejecting.letters.answers[call] = Reason(Reason.TOPIC_AUTHORIZATION_FAILED, "denied")
    assert "denied" in rejecting.write()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.letters.produced, rejecting.committed) == ([7, 70], 4, 100)


@pytest.mark.parametrize(
    ("call", "code", "why"),
    [
        ("flush", Reason._TRANSPORT, "its transaction failed"),
        ("flush", Reason.UNKNOWN_PRODUCER_ID, "Kafka has forgotten its producer"),
        ("produce", Reason._PURGE_QUEUE, "its transaction failed"),
    ],
)
def test_letters_in_doubt_await_the_owner_and_land_once(
    rejecting: Round, call: str, code: int, why: str
) -> None:
    """A letter may have left, and an abort could reach a broker that has forgotten the producer."""
    rejecting.letters.answers[call] = Reason(code, "gone")
    assert "gone" in rejecting.write()
    said = rejecting.write()
    assert f"t [1]: {why}" in said
    assert ", and it waits until ZooKeeper and Consul confirm" in said
    rejecting.confirm()
    assert "its producer was replaced, and it waits until" in rejecting.write()
    assert rejecting.landed == []
    rejecting.confirm()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.committed) == ([7, 70], 100)


def test_replacement_writes_only_letters_that_have_not_landed(rejecting: Round) -> None:
    rejecting.letters.withheld.add(70)
    rejecting.letters.answers["landed"] = Reason(Reason.UNKNOWN_PRODUCER_ID, "forgotten")
    assert "forgotten" in rejecting.write()
    assert (rejecting.landed, rejecting.committed) == ([7], 70)
    rejecting.letters.withheld.clear()
    for _ in range(2):
        assert "confirm the owner" in rejecting.write()
        rejecting.confirm()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.committed) == ([7, 70], 100)


def test_replacement_writes_no_letter_again_that_has_landed(rejecting: Round) -> None:
    rejecting.letters.answers["landed"] = Reason(Reason.UNKNOWN_PRODUCER_ID, "forgotten")
    assert "forgotten" in rejecting.write()
    for _ in range(2):
        assert "confirm the owner" in rejecting.write()
        rejecting.confirm()
    assert rejecting.write() == ""
    assert (rejecting.landed, rejecting.committed) == ([7, 70], 100)
    assert rejecting.agent.view().counters.dead_lettered == {"t": 2}


def test_commit_notes_seek_and_stop_with_the_offset() -> None:
    made = Round(Consumer())
    made.consumer.assign({0, 1}, 2, {0: Seek("s1", 40)})
    made.consumer.go(2, commits=False)
    with made.agent.shared.change() as own:
        own.stop("t", True)
    made.worker.commit()
    assert made.kafka.stamps == {("t", 0): "muster:c:A:s1:stopped", TP: "muster:c:A::stopped"}


@pytest.mark.parametrize("what", ["commit", "letters"])
def test_group_is_not_looked_at_right_after_a_failed_commit(what: str) -> None:
    """The commit may still be under way, and Kafka would not tell."""
    made = Round(Consumer(rejects={107}))
    made.consumer.go(1)
    made.kafka.ends |= dict.fromkeys(made.kafka.ends, 200)
    made.consumer.go(1, commits=False)
    made.letters.answers["commit"] = Reason(Reason._TIMED_OUT, "no answer in time", retriable=True)
    if what == "letters":
        assert "no answer in time" in made.write()
    else:
        with pytest.raises(KafkaError, match="committing offsets for group g: t"):
            made.worker.commit()
    looks = made.group.looks
    made.worker.commit()
    assert made.group.looks == looks
    assert made.agent.view().counters.commits_took.seconds < 60
    assert made.kafka.committed["t", 0] == 200
    made.write()
    made.kafka.ends |= dict.fromkeys(made.kafka.ends, 300)
    made.consumer.go(1, commits=False)
    made.worker.commit()
    assert made.group.looks == looks + 1
    assert made.agent.view().counters.failed_commits == (what == "commit")


def test_letters_without_a_topic_name_the_settings() -> None:
    made = Round(Consumer(rejects={7}), has_letters=False)
    made.consumer.go(1)
    assert "'fencing: true' and a topic" in made.write()
    assert made.committed is None


def test_round_without_letters_asks_kafka_nothing() -> None:
    made = Round(Consumer())
    made.consumer.go(1)
    assert made.write() == ""
    assert made.letters.looked == 0
