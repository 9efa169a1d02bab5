"""The planner and the agent together, over a Kafka whose answers the test changes: what one plans the other
accepts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.planner import Planner
from muster.core.model import Seek, TopicAssignment, TopicPartition
from muster.core.ownership import REBUILDING, Place
from muster.core.positions import Committed, Why, format_stamp, noted
from muster.core.turns import Failure
from muster.settings.connections import KafkaSettings
from tests.support.claiming import ClaimingAgent

PLACE = Place("k:9092", "g")


class Kafka:
    """`GroupOffsets`: two partitions of a topic."""

    def __init__(self) -> None:
        self.topic_id = "A"
        self.ends = {("t", 0): 600, ("t", 1): 50}
        self.committed: dict[TopicPartition, Committed] = {}

    def positions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return {key: self.committed.get(key) for key in keys}

    def beginning_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(keys, 0)

    def end_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.ends[key] for key in keys}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.topic_id)

    def close(self) -> None:
        """Nothing to let go of."""


class Consumer:
    """One query after the other; `go` is one planning, its batch and the commit."""

    def __init__(self, kafka: Kafka, seeks: Mapping[int, Seek] | None = None) -> None:
        self.kafka = kafka
        self.now = 0.0
        self.agent = ClaimingAgent("me")
        self.read: list[tuple[int, int, int]] = []
        self.assign("A", 1, seeks=seeks)
        self.start()

    def assign(
        self,
        topic_id: str,
        epoch: int,
        paused: Collection[int] = (),
        seeks: Mapping[int, Seek] | None = None,
    ) -> None:
        node = TopicAssignment(
            "k:9092",
            "g",
            {0: "me", 1: "me"},
            epoch,
            topic_id=topic_id,
            paused=frozenset(paused),
            seeks=seeks or {},
        )
        self.agent.assigned("t", node, epoch)

    def start(self) -> None:
        self.token = self.agent.query_started()
        self.planner = Planner(
            self.agent,
            self.token,
            KafkaSettings(config={"bootstrap.servers": "elsewhere:1"}),
            Bounds(100_000),
            open_offsets=lambda *_: self.kafka,
            clock=lambda: self.now,
        )
        self.stands: dict[str, Any] = {}
        self.agent.batch_done(self.agent.batch_started(), None)

    def go(self, seconds: float = 0.0) -> None:
        self.now += seconds
        end = self.plan()
        if end == self.stands:
            return
        plan = self.agent.batch_started()
        self.read += [(p, *held) for p, held in plan.offsets.get("t", {}).items() if held[1] > held[0]]
        self.agent.batch_done(plan, None)
        self.stands = end
        self.commit()

    def plan(self) -> dict[str, Any]:
        return self.planner.next(self.stands, 2).offset

    def fail(self) -> None:
        """One planning whose batch fails."""
        self.stands = self.plan()
        self.agent.batch_done(self.agent.batch_started(), Failure("it raised"))

    def commit(self) -> None:
        due = self.agent.due(PLACE)
        for key, one in due.items():
            self.kafka.committed[key] = Committed(one.offset, format_stamp("c", one.topic_id, one.note))
        self.agent.committed(due)

    def restart(self) -> None:
        self.agent.query_ended(True, "why")
        self.start()


@pytest.fixture
def consumer() -> Consumer:
    made = Consumer(Kafka())
    made.go()
    assert made.read == [(0, 0, 600), (1, 0, 50)]
    made.read.clear()
    return made


def test_paused_partition_is_not_read_and_goes_on_where_it_stopped(consumer: Consumer) -> None:
    consumer.assign("A", 1, paused={0})
    consumer.kafka.ends = {("t", 0): 700, ("t", 1): 60}
    consumer.go()
    consumer.go()
    assert consumer.read == [(1, 50, 60)]
    status = consumer.agent.view().topics["t"]
    assert (set(status.running), set(status.paused)) == ({0, 1}, {0})
    consumer.restart()
    consumer.go()
    assert consumer.read == [(1, 50, 60)], "a new query does not read it either"
    assert consumer.agent.view().topics["t"].running == {0, 1}
    consumer.assign("A", 1)
    consumer.go()
    assert consumer.read == [(1, 50, 60), (0, 600, 700)]


def test_paused_consumption_leaves_nothing_to_plan(consumer: Consumer) -> None:
    consumer.assign("A", 1, paused={0, 1})
    consumer.kafka.ends = {("t", 0): 700, ("t", 1): 60}
    stands = consumer.stands
    consumer.go()
    consumer.go()
    assert (consumer.stands, consumer.read) == (stands, [])
    assert consumer.agent.view().topics["t"].paused == {0, 1}


def committed(consumer: Consumer, partition: int) -> tuple[int, str]:
    there = consumer.kafka.committed["t", partition]
    return there.offset, noted(there, "A").sought


def test_sought_partition_gives_just_the_range_again_and_commits_the_id(consumer: Consumer) -> None:
    consumer.assign("A", 1, seeks={0: Seek("s1", 400)})
    consumer.go()
    assert consumer.read == [(0, 400, 600)]
    assert (committed(consumer, 0), committed(consumer, 1)) == ((600, "s1"), (50, ""))
    consumer.kafka.ends = {("t", 0): 610, ("t", 1): 60}
    consumer.go()
    assert consumer.read == [(0, 400, 600), (0, 600, 610), (1, 50, 60)]
    consumer.assign("A", 1)
    consumer.kafka.ends["t", 0] = 620
    consumer.go()
    assert committed(consumer, 0) == (620, "s1"), "the id stays with the partition"


def test_records_of_a_rebuild_wait_until_its_number_is_committed(consumer: Consumer) -> None:
    """Also where it begins at the very place at which the partition stands."""
    for number, offset in enumerate((400, 600), 1):
        consumer.read.clear()
        consumer.kafka.ends = {("t", 0): 600 + 10 * number, ("t", 1): 60 * number}
        consumer.assign("A", number, seeks={0: Seek(f"s{number}", offset, 7)})
        for _ in range(2):
            end = consumer.plan()
            plan = consumer.agent.batch_started() if end != consumer.stands else None
            if plan is not None:
                assert {p for p, (begin, to) in plan.offsets["t"].items() if begin < to} <= {1}
                consumer.agent.batch_done(plan, None)
                consumer.stands = end
        with consumer.agent.shared.locked() as own:
            assert own.not_read(consumer.now)["t", 0] == REBUILDING
        consumer.commit()
        assert noted(consumer.kafka.committed["t", 0], "A").rebuild == 6 + number
        consumer.go()
        assert [each for each in consumer.read if each[0] == 0] == [(0, offset, 600 + 10 * number)]


def test_batch_has_the_numbers_of_its_partitions(consumer: Consumer) -> None:
    consumer.assign("A", 1, seeks={0: Seek("s1", 400, 7)})
    consumer.go()
    consumer.kafka.ends["t", 1] = 60
    for _ in range(2):  # as planned, and as the next query finds it in the group
        consumer.kafka.ends["t", 0] += 10
        consumer.kafka.ends["t", 1] += 10
        consumer.plan()
        plan = consumer.agent.batch_started()
        assert (set(plan.filled), plan.rebuilds) == ({("t", 0), ("t", 1)}, {("t", 0): 7})
        consumer.agent.batch_done(plan, None)
        consumer.commit()
        consumer.restart()


def test_seek_to_the_beginning_of_the_last_batch_reads_it_again(consumer: Consumer) -> None:
    consumer.assign("A", 1, seeks={0: Seek("s1", 0)})
    consumer.go()
    consumer.go()
    assert consumer.read == [(0, 0, 600)], "though Spark takes equal offsets for no batch"


def test_seek_forth_leaves_records_out_and_is_committed_with_nothing_to_read(consumer: Consumer) -> None:
    consumer.kafka.ends = {("t", 0): 700, ("t", 1): 60}
    consumer.assign("A", 1, paused={0, 1}, seeks={0: Seek("s1", 700), 1: Seek("s1", 50)})
    consumer.go()
    consumer.commit()
    assert (committed(consumer, 0), committed(consumer, 1)) == ((700, "s1"), (50, "s1"))
    consumer.assign("A", 1)
    consumer.go()
    assert consumer.read == [(1, 50, 60)]


def test_seek_of_an_owner_that_dies_before_the_commit_is_carried_out_by_the_next_once(
    consumer: Consumer,
) -> None:
    consumer.assign("A", 1, seeks={0: Seek("s1", 400)})
    consumer.plan()
    assert committed(consumer, 0) == (600, ""), "it died before anything was committed"
    following = Consumer(consumer.kafka, seeks={0: Seek("s1", 400)})
    following.plan()
    following.commit()
    assert committed(consumer, 0) == (400, "s1"), "committed at once, before the batch"
    third = Consumer(consumer.kafka, seeks={0: Seek("s1", 400)})
    third.go()
    assert third.read == [(0, 400, 600)], "it goes on at what is committed"
    last = Consumer(consumer.kafka, seeks={0: Seek("s1", 400)})
    last.go()
    assert last.read == [], "the seek is not carried out again"


def test_newer_seek_replaces_an_older_one(consumer: Consumer) -> None:
    consumer.assign("A", 1, seeks={0: Seek("s1", 400)})
    consumer.go()
    consumer.assign("A", 1, seeks={0: Seek("s2", 590)})
    consumer.go()
    assert consumer.read == [(0, 400, 600), (0, 590, 600)]
    assert committed(consumer, 0) == (600, "s2")


def test_seek_ends_the_suspicion_of_a_record_that_fails(consumer: Consumer) -> None:
    consumer.kafka.ends["t", 0] = 610
    consumer.fail()
    assert consumer.agent.view().problems
    consumer.assign("A", 1, seeks={0: Seek("s1", 610)})
    for _ in range(3):
        consumer.go(seconds=2)
    assert consumer.agent.view().problems == {}
    assert consumer.read == [], "the record that fails is left out"
    assert committed(consumer, 0) == (610, "s1")


def test_a_truncated_partition_goes_on_and_stops_neither_the_query_nor_the_others(consumer: Consumer) -> None:
    consumer.kafka.ends["t", 0] = 595
    consumer.go()
    consumer.kafka.ends["t", 1] = 60
    for _ in range(5):
        consumer.go(seconds=4)
    consumer.kafka.ends["t", 0] = 605
    consumer.go()
    assert consumer.read == [(1, 50, 60), (0, 595, 605)]
    assert consumer.kafka.committed["t", 0].offset == 605
    assert consumer.agent.view().counters.lost == {("t", 0): {Why.TRUNCATION: 5}}
    assert consumer.agent.view().problems == {}
    consumer.restart()
    consumer.go()
    assert consumer.stands["t"]["0"] == (605, 605), "a new query begins there, too"


@pytest.mark.parametrize("end", [1500, 200], ids=["outgrown", "smaller"])
def test_a_recreated_topic_is_read_from_its_beginning_once_its_id_is_assigned(
    consumer: Consumer, end: int
) -> None:
    consumer.kafka.topic_id = "B"
    consumer.kafka.ends["t", 0] = consumer.kafka.ends["t", 1] = end
    consumer.agent.outside.identified(PLACE, {"t": "B"}, ())
    for _ in range(5):
        consumer.go(seconds=4)
    assert consumer.read == []
    assert consumer.kafka.committed["t", 0] == Committed(600, "muster:c:A"), "as the old topic left it"
    consumer.assign("B", 2)
    consumer.go()
    assert consumer.read == [(0, 0, end), (1, 0, end)]
    assert consumer.kafka.committed["t", 0] == Committed(end, "muster:c:B")
    assert consumer.agent.view().counters.recreated == 2


def test_a_new_query_does_not_begin_a_recreated_topic_at_the_old_offset(consumer: Consumer) -> None:
    consumer.kafka.topic_id = "B"
    consumer.kafka.ends["t", 0] = 1800
    consumer.agent.query_ended(True, "why")
    consumer.assign("B", 2)
    consumer.start()
    consumer.go()
    assert (0, 0, 1800) in consumer.read
