"""The agent plans the batches that the connector reads, over a Kafka whose answers the test changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient

from muster.consumer.agent import StaleTokenError
from muster.consumer.local_api import make_local_api
from muster.consumer.plannings import Plannings
from muster.consumer.source import planner
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.protocol import NEXT_PATH, GoneRange, NextBatch, NextQuestion
from muster.core.model import TopicAssignment
from muster.core.ownership import Place, PlanRefusedError
from muster.core.parking import Answer
from muster.core.positions import Committed, Why
from muster.core.turns import Failure
from muster.core.unread import RETRY, Kind, ReadFailure
from muster.settings.connections import KafkaSettings
from tests.support.claiming import ClaimingAgent

TopicPartition = tuple[str, int]
KAFKA = KafkaSettings(config={"bootstrap.servers": "elsewhere:1", "client.rack": "r"})


class Kafka:
    """`GroupOffsets`: four partitions of a topic."""

    def __init__(self) -> None:
        self.ends = {("t", p): 1000 for p in range(4)}
        self.begins = dict.fromkeys(self.ends, 0)
        self.committed: dict[TopicPartition, Committed] = {}

    def positions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return {key: self.committed.get(key) for key in keys}

    def beginning_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.begins[key] for key in keys}

    def end_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.ends[key] for key in keys}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "A")

    def close(self) -> None:
        """Nothing to let go of."""


class Query:
    """One query; `go` is one planning and its batch."""

    def __init__(self, source_options: Mapping[str, str] | None = None, interval: float = 0.0) -> None:
        self.kafka = Kafka()
        self.agent = ClaimingAgent("me")
        self.plannings = Plannings(
            self.agent,
            KAFKA,
            Bounds(400),
            interval=interval,
            source_options=source_options,
            open_offsets=lambda *_: self.kafka,
        )
        self.topic_id = "A"
        self.assign(0, 1, 2, 3)
        self.start()

    def assign(self, *partitions: int) -> None:
        self.epoch = getattr(self, "epoch", 0) + 1
        owners = {p: "me" if p in partitions else "you" for p in range(4)}
        self.agent.assigned(
            "t", TopicAssignment("k:9092", "g", owners, self.epoch, topic_id=self.topic_id), self.epoch
        )

    def start(self) -> None:
        self.token = self.agent.query_started()
        self.stands: dict[str, Any] = {}
        self.agent.batch_done(self.agent.batch_started(), None)

    def ask(self, *gone: GoneRange, parallelism: int = 2) -> NextBatch:
        question = NextQuestion(finished=self.stands, parallelism=parallelism, gone=list(gone))
        return self.plannings.next(self.token, question)

    def go(self, *gone: GoneRange) -> NextBatch:
        batch = self.ask(*gone)
        if batch.offset != self.stands:
            self.agent.batch_done(self.agent.batch_started(), None)
            self.stands = batch.offset
            self.agent.committed(self.agent.due(Place("k:9092", "g")))
        return batch


@pytest.fixture
def query() -> Query:
    return Query()


def test_question_asked_again_gets_the_same_batch(query: Query) -> None:
    first = query.ask()
    assert query.ask() == first
    assert query.go().offset == first.offset
    assert query.go().offset == {"t": {str(p): (100, 200) for p in range(4)}}


def test_plan_says_who_reads_what_and_how(query: Query) -> None:
    batch = query.go()
    assert batch.offset == {"t": {str(p): (0, 100) for p in range(4)}}
    assert [sorted(task["k:9092"]["t"]) for task in batch.tasks] == [["0", "2"], ["1", "3"]]
    assert batch.kafka == {
        "k:9092": {
            "bootstrap.servers": "k:9092",
            "client.rack": "r",
            "isolation.level": "read_committed",
        }
    }
    assert batch.metrics["maxOffsetsBehindLatest"] == "900"
    assert "client.rack" not in repr(batch)


def test_planning_that_is_not_due_plans_nothing_unless_partitions_are_to_be_taken_up_or_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "LONGEST_WAIT", 0.01)
    query = Query(interval=1000.0)
    first = query.go()
    early = query.ask()
    assert (early.offset, early.tasks, early.metrics) == (query.stands, [], first.metrics)
    query.assign(0, 1, 2)
    assert sorted(query.go().offset["t"]) == ["0", "1", "2"]
    query.assign(0, 1, 2, 3)
    assert "3" in query.go().offset["t"]
    assert query.ask().offset == query.stands


def test_options_of_the_source_win_over_the_connection() -> None:
    options = {"kafka.Max.Poll.Records": "7", "kafka.client.rack": "other"}
    query = Query(options)
    assert query.go().kafka["k:9092"] == {
        "bootstrap.servers": "k:9092",
        "client.rack": "other",
        "isolation.level": "read_committed",
        "max.poll.records": "7",
    }


def test_partition_stays_in_its_slot_while_others_come_and_go(query: Query) -> None:
    query.go()
    query.assign(1, 2, 3)
    query.go()
    query.assign(0, 1, 2, 3)
    # Nothing commits what comes back, so it begins at its first record.
    slots = [sorted(task["k:9092"]["t"]) for task in query.go().tasks]
    assert "2" in slots[0]
    assert {"1", "3"} <= set(slots[1])


def test_plan_without_anything_new_is_where_spark_stands(query: Query) -> None:
    query.kafka.ends = dict.fromkeys(query.kafka.ends, 10)
    first = query.go()
    again = query.go()
    assert again.offset == first.offset
    assert again.tasks == []
    assert again.metrics["maxOffsetsBehindLatest"] == "0"


def test_query_without_partitions_has_a_batch_without_tasks(query: Query) -> None:
    query.go()
    query.assign()
    assert query.go() == NextBatch(offset={}, metrics={"recordsLost": "0"})


def test_deleted_records_that_a_task_missed_count_as_lost(query: Query) -> None:
    query.go()
    batch = query.go(GoneRange(topic="t", partition=1, begin=20, end=60, deleted=True))
    assert query.agent.view().counters.lost == {("t", 1): {Why.RETENTION: 40}}
    assert batch.metrics["recordsLost"] == "40"
    assert query.go().metrics["recordsLost"] == "0"


def test_records_that_two_tasks_missed_count_as_lost_once(query: Query) -> None:
    query.go()
    missed = [GoneRange(topic="t", partition=1, begin=20, end=end, deleted=True) for end in (60, 70)]
    assert query.go(*missed).metrics["recordsLost"] == "50"
    assert query.go(missed[0]).metrics["recordsLost"] == "0", (
        "a task that goes on after its batch reports it later"
    )
    assert query.agent.view().counters.lost == {("t", 1): {Why.RETENTION: 50}}


def test_losses_in_the_parts_of_a_partition_all_count_whichever_task_says_so_first(query: Query) -> None:
    query.go()
    missed = [
        GoneRange(topic="t", partition=1, begin=begin, end=end, deleted=True)
        for begin, end in ((50, 80), (0, 20), (20, 50))
    ]
    assert query.go(*missed).metrics["recordsLost"] == "80"
    assert query.agent.view().counters.lost == {("t", 1): {Why.RETENTION: 80}}


def test_loss_that_a_failed_batch_missed_is_counted_once_when_the_next_planning_finds_it(
    query: Query,
) -> None:
    query.ask()
    query.agent.batch_done(query.agent.batch_started(), Failure("it raised"))
    query.stands = {"t": {str(p): (0, 100) for p in range(4)}}
    query.kafka.begins["t", 1] = 60
    missed = GoneRange(topic="t", partition=1, begin=0, end=50, deleted=True)
    assert query.go(missed).metrics["recordsLost"] == "60", "what is gone by now, each once"
    for _ in range(9):
        query.go()
    assert query.agent.view().counters.lost == {("t", 1): {Why.RETENTION: 60}}


@pytest.mark.parametrize("why", [Why.RETENTION, Why.TRUNCATION])
def test_loss_is_counted_once_when_its_query_fails_before_the_batch_is_processed(
    query: Query, why: Why
) -> None:
    query.go()
    if why is Why.RETENTION:
        query.kafka.begins["t", 1] = 130
        query.ask()
    else:
        query.ask(GoneRange(topic="t", partition=1, begin=70, end=100, deleted=False))
    query.agent.query_ended(True, "gone")
    query.kafka.committed = {("t", p): Committed(100) for p in range(4)}
    query.kafka.ends["t", 1] = 1000 if why is Why.RETENTION else 70
    query.start()
    after = query.agent.due(Place("k:9092", "g"))["t", 1].offset
    assert after == (130 if why is Why.RETENTION else 70), "due at once"
    assert "1" not in query.ask().offset["t"], "not begun again before it is committed"
    query.agent.batch_done(query.agent.batch_started(), None)
    query.kafka.committed["t", 1] = Committed(after)
    query.agent.committed(query.agent.due(Place("k:9092", "g")))
    query.agent.query_ended(True, "gone")
    query.start()
    assert query.go().offset["t"]["1"][0] == after
    assert query.agent.view().counters.lost == {("t", 1): {why: 30}}


def test_loss_in_a_topic_that_was_created_again_is_counted_though_its_offsets_are_low(query: Query) -> None:
    query.go()
    query.go(GoneRange(topic="t", partition=1, begin=20, end=60, deleted=True))
    query.agent.view()
    query.assign(0, 2, 3)
    query.go()
    query.topic_id = "B"
    query.assign(0, 1, 2, 3)
    query.go()
    query.go(GoneRange(topic="t", partition=1, begin=10, end=30, deleted=True))
    assert query.agent.view().counters.lost == {("t", 1): {Why.RETENTION: 60}}


def test_records_that_a_planning_finds_lost_are_in_the_sources_metrics(query: Query) -> None:
    query.go()
    query.kafka.begins["t", 2] = 130
    assert query.go().metrics["recordsLost"] == "30"


def unread(query: Query, kind: Kind, partition: int, offset: int = 0) -> None:
    """The next batch cannot be read."""
    query.agent.batch_unread(
        query.agent.batch_started(), [ReadFailure(kind, ("t", partition), offset, "why")]
    )


def read(batch: NextBatch) -> dict[str, tuple[int, int]]:
    """What a batch holds of each partition that it has records of."""
    return {number: (begin, end) for number, (begin, end) in batch.offset["t"].items() if end > begin}


def test_unread_partition_is_left_out_then_tried_alone(query: Query) -> None:
    now = 0.0
    query.agent.clock = lambda: now
    query.kafka.ends = dict.fromkeys(query.kafka.ends, 10_000)
    query.stands = query.ask().offset
    unread(query, Kind.LEADER, 1)
    view = query.agent.view()
    assert "partition 1: it cannot be read at offset 0: why" in view.problems["unread t (leader)"]
    assert not view.failing
    assert not view.counters.handler_failures
    while "1" not in (batch := read(query.go())):
        assert set(batch) <= {"0", "2", "3"}
        now += 1.0
    assert set(batch) == {"1"}
    assert RETRY <= now <= RETRY + 2
    assert "unread t (leader)" not in query.agent.view().problems
    assert {"0", "1", "2", "3"} == set(read(query.go()))


def test_right_that_lacks_leaves_out_the_whole_topic(query: Query) -> None:
    query.stands = query.ask().offset
    unread(query, Kind.RIGHT, 1)
    view = query.agent.view()
    assert view.unread.keys() == {("t", p) for p in range(4)}
    assert "topic 't', partitions [0, 1, 2, 3]: they cannot be read" in view.problems["unread t (right)"]


def test_damaged_record_is_parked_by_its_offset(query: Query) -> None:
    query.stands = query.ask().offset
    unread(query, Kind.CORRUPT, 1, 60)
    for _ in range(6):
        query.go()
    failing = query.agent.view().failing["t", 1]
    assert (failing.offset, failing.parked) == (60, True)
    assert query.stands["t"]["1"][1] == 60
    assert query.stands["t"]["0"][1] > 100
    assert "parked at offset 60" in query.agent.view().problems["parked t [1]"]
    assert not query.agent.answers.answer(("t", 1), 60, Answer.DEAD_LETTER, "me"), "it cannot be written"
    assert query.agent.answers.answer(("t", 1), 60, Answer.SKIP, "me")
    for _ in range(4):
        query.go()
    assert query.stands["t"]["1"][1] > 61
    assert not query.agent.view().failing


def test_damaged_record_that_is_mended_is_read_after_retry(query: Query) -> None:
    query.stands = query.ask().offset
    unread(query, Kind.CORRUPT, 1, 0)
    query.go()
    query.go()
    assert query.agent.view().failing["t", 1].parked
    assert query.agent.answers.answer(("t", 1), 0, Answer.RETRY, "me")
    query.go()
    query.go()
    assert query.stands["t"]["1"][1] > 0


def test_bytes_that_tasks_read_are_counted(query: Query) -> None:
    query.assign()
    for read in (7, 12, 12):
        query.plannings.next(query.token, NextQuestion(finished=query.stands, read=read, held=2 * read))
    assert query.agent.view().counters.read_bytes == 12
    assert query.agent.view().counters.read_ahead_bytes == 24


def test_partition_that_ended_under_a_task_goes_on_there_at_once(query: Query) -> None:
    query.go()
    # It was truncated, and has grown beyond its old position since.
    batch = query.go(GoneRange(topic="t", partition=1, begin=70, end=100, deleted=False))
    assert batch.offset["t"]["1"][0] == 70
    assert batch.offset["t"]["0"][0] == 100
    assert query.agent.view().counters.lost == {("t", 1): {Why.TRUNCATION: 30}}
    assert query.go().offset["t"]["1"][0] == batch.offset["t"]["1"][1]


def test_partition_whose_lost_records_were_processed_goes_on_where_it_was_truncated(query: Query) -> None:
    query.go()
    query.kafka.ends["t", 1] = 130
    query.go()
    batch = query.go(GoneRange(topic="t", partition=1, begin=70, end=130, deleted=False))
    assert batch.offset["t"]["1"][0] == 70
    assert query.agent.view().counters.lost == {("t", 1): {Why.TRUNCATION: 60}}


def test_query_that_ended_is_turned_away(query: Query) -> None:
    query.go()
    query.agent.query_ended(False)
    with pytest.raises(StaleTokenError):
        query.ask()
    query.kafka.committed = {("t", p): Committed(100) for p in range(4)}
    query.start()
    assert query.go().offset["t"]["0"] == (100, 200), "a new query begins at the committed offsets"


def test_plan_that_does_not_follow_from_the_last_is_refused(query: Query) -> None:
    query.go()
    query.stands = {"t": {"0": (0, 7)}}
    with pytest.raises(PlanRefusedError, match="has to be restarted"):
        query.ask()


def test_connector_is_answered_over_http_with_the_querys_token(query: Query) -> None:
    api = TestClient(make_local_api(query.agent, KAFKA, Bounds(400)))
    agent = query.agent
    agent.assigned("t", TopicAssignment("k:9092", "g", {}, 9, topic_id="A"), 9)
    headers = {"Authorization": f"Bearer {query.token}"}
    answer = api.post(NEXT_PATH, headers=headers, content=b'{"finished": {}, "parallelism": 2, "gone": []}')
    assert answer.status_code == 200
    assert answer.json() == {
        "offset": {},
        "tasks": [],
        "kafka": {},
        "state": "",
        "metrics": {"recordsLost": "0"},
        "failOnDataLoss": False,
    }
    assert api.post(NEXT_PATH, content=b"{}").status_code == 401
    wrong = api.post(NEXT_PATH, headers=headers, content=b'{"parallelism": 0}')
    assert wrong.status_code == 422
    assert "parallelism" in wrong.json()["detail"]
    refused = api.post(NEXT_PATH, headers=headers, content=b'{"finished": {"t": {"0": [0, 7]}}}')
    assert refused.status_code == 409
