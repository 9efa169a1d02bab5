"""Rounds of a committer's threads, whole: what Kafka is asked, what the consumer knows then, and what is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from muster.consumer import committer
from muster.consumer.agent import Agent
from muster.consumer.committer import PlaceWorker
from muster.core.model import TopicAssignment, TopicPartition
from muster.core.ownership import Due, Place
from muster.core.positions import Committed, Note
from muster.edges.commit_outcome import Claims, CommitOutcome
from muster.edges.kafka import Identities, KafkaError, PartitionError

PLACE = Place("k:9092", "g")
TPS = [("t", number) for number in range(4)]


class Kafka:
    """`GroupOffsets` and `Commits` of one group: notes in `asked` what it is asked, and answers as it is given."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.offsets: dict[TopicPartition, Committed] = {}
        self.errors: dict[TopicPartition, str] = {}
        self.failed: dict[TopicPartition, str] = {}
        self.unwanted: set[TopicPartition] = set()
        self.outcome = CommitOutcome()
        self.ids = {"t": "A"}
        self.topics: Any = self

    def positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        self.asked.append(("positions", set(keys)))
        found = {key: self.offsets.get(key) for key in keys if key not in self.errors}
        if errors := {key: why for key, why in self.errors.items() if key in keys}:
            raise PartitionError("some failed", found, errors)
        return found

    def identities(self, topics: Collection[str]) -> Identities:
        self.asked.append(("identities", set(topics)))
        return Identities({topic: self.ids[topic] for topic in topics})

    def claim(
        self, partitions: Collection[TopicPartition], begin: Callable[[TopicPartition], bool]
    ) -> Claims:
        self.asked.append(("claim", set(partitions)))
        begun = {tp for tp in partitions if tp not in self.unwanted and begin(tp)}
        return Claims(frozenset(begun - self.failed.keys()), dict(self.failed))

    def commit(
        self, offsets: Mapping[TopicPartition, int], stamps: Mapping[TopicPartition, str]
    ) -> CommitOutcome:
        self.asked.append(("commit", dict(offsets), dict(stamps)))
        return self.outcome

    def release(
        self, partitions: Collection[TopicPartition], ended: Callable[[TopicPartition], None]
    ) -> None:
        self.asked.append(("release", set(partitions)))
        for tp in partitions:
            ended(tp)

    def close(self) -> None:
        self.asked.append("close")

    def questions(self) -> list[object]:
        """Return what was asked since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def agent() -> Agent:
    made = Agent("me", fencing=True)
    made.assigned("t", TopicAssignment("k:9092", "g", dict.fromkeys(range(4), "me"), 1, {}, "A"), 1)
    return made


@pytest.fixture
def worker(agent: Agent, kafka: Kafka) -> PlaceWorker:
    group: Any = kafka
    return PlaceWorker(agent, "c", PLACE, group, group, threading.Event())


def test_lower_number_is_not_committed_after_a_higher_one(worker: PlaceWorker, kafka: Kafka) -> None:
    """It became due for one thread before another one has committed the rebuild."""

    def committed(number: int, claim_epoch: int = 1, *, lands: bool = True) -> list[object]:
        kafka.outcome = CommitOutcome(done={TPS[0]: 5} if lands else {})
        worker._commit({TPS[0]: Due(5, "A", claim_epoch, Note(rebuild=number))})
        ((_, offsets, _),) = kafka.questions()  # type: ignore[misc]
        return list(offsets)

    assert committed(7) == [TPS[0]]
    assert committed(0, lands=False) == []
    assert committed(8) == [TPS[0]]
    assert committed(7, lands=False) == []
    assert committed(0, claim_epoch=2) == [TPS[0]], "of another owner's time, or another topic"


def claimed(agent: Agent) -> set[TopicPartition]:
    with agent.shared.locked() as own:
        return set(own.held) - own.unclaimed().get(PLACE, {}).keys()


def test_round_of_claims_is_whole(worker: PlaceWorker, agent: Agent, kafka: Kafka) -> None:
    """0 is claimed; 1 fails; the group's offset of 2 is not answered, and that of 3 is another cluster's."""
    kafka.failed = {TPS[1]: "timed out"}
    kafka.errors = {TPS[2]: "no coordinator"}
    kafka.offsets = {TPS[3]: Committed(7, "muster:other:A")}
    with pytest.raises(KafkaError) as raised:
        worker.claim()
    said = str(raised.value)
    assert said.startswith("Kafka at k:9092: taking up for group g: "), said
    assert said.endswith("; it is tried again")
    assert ("timed out" in said, "no coordinator" in said, "cluster 'other'" in said) == (True, True, True)
    assert "give cluster 'c' a 'group_id' of its own" in said
    assert "kafka-consumer-groups --group g --all-topics" in said
    assert kafka.questions() == [("claim", set(TPS)), ("positions", {TPS[0], TPS[2], TPS[3]})]
    assert claimed(agent) == {TPS[0]}
    assert (worker._claims, worker._fenced) == (
        dict(zip(TPS, range(1, 5), strict=True)),
        {TPS[2]: 3, TPS[3]: 4},
    )
    kafka.failed, kafka.errors, kafka.offsets = {}, {}, {}
    worker.claim()
    assert kafka.questions() == [("claim", {TPS[1]}), ("positions", set(TPS[1:]))], "no second claim"
    assert (claimed(agent), worker._fenced) == (set(TPS), {})
    worker.claim()
    assert kafka.questions() == []


def test_claims_that_were_never_begun_are_released(worker: PlaceWorker, agent: Agent, kafka: Kafka) -> None:
    kafka.unwanted = {TPS[1]}
    worker.claim()
    assert kafka.questions() == [
        ("claim", set(TPS)),
        ("release", {TPS[1]}),
        ("positions", {TPS[0], TPS[2], TPS[3]}),
    ]
    assert worker._claims == {TPS[0]: 1, TPS[2]: 3, TPS[3]: 4}


def test_claims_out_of_use_are_released_before_others(
    worker: PlaceWorker, agent: Agent, kafka: Kafka
) -> None:
    worker.claim()
    kafka.questions()
    agent.assigned("t", TopicAssignment("k:9092", "g", {0: "me", 1: "x", 5: "me"}, 2, {}, "A"), 2)
    worker.commit()
    kafka.questions()
    worker.claim()
    assert kafka.questions() == [
        *(("release", {tp}) for tp in TPS[1:]),
        ("claim", {("t", 5)}),
        ("positions", {("t", 5)}),
    ]
    assert worker._claims == {TPS[0]: 1, ("t", 5): 5}


def processed(worker: PlaceWorker, agent: Agent, kafka: Kafka) -> None:
    """Up to 10 of partitions 0 to 2, which are not yet committed; 3 has nothing to commit."""
    worker.claim()
    with agent.shared.change() as own:
        for tp in TPS[:3]:
            own.held[tp].processed = 10
    kafka.questions()


def test_round_of_commits_is_whole(worker: PlaceWorker, agent: Agent, kafka: Kafka) -> None:
    processed(worker, agent, kafka)
    kafka.outcome = CommitOutcome({TPS[0]: 10}, {TPS[1]: "fenced"}, {TPS[2]: "timed out"})
    with pytest.raises(KafkaError) as raised:
        worker.commit()
    assert str(raised.value) == (
        "Kafka at k:9092: committing offsets for group g: t [2]: timed out; it is tried again"
    )
    commit = ("commit", dict.fromkeys(TPS[:3], 10), dict.fromkeys(TPS[:3], "muster:c:A"))
    assert kafka.questions()[-1] == commit
    assert (
        "topic 't', partition 1: commit of offset 10 refused: fenced; this consumer closes it without committing, "
        "and takes it up again only if ZooKeeper still assigns it and Consul still has it registered"
    ) in agent.view().problems.values()
    counted = agent.view().counters
    assert (counted.commits, counted.failed_commits, counted.refused_commits) == (1, 1, 1)
    assert agent.due(PLACE).keys() == {TPS[2]}
    kafka.outcome = CommitOutcome({TPS[2]: 10})
    worker.commit()
    assert kafka.questions() == [("commit", {TPS[2]: 10}, {TPS[2]: "muster:c:A"})], "no look after a failure"
    assert agent.view().counters.failed_commits == 1
    assert agent.due(PLACE) == {}
    worker.commit()
    assert kafka.questions() == []


def test_idle_partitions_are_looked_at_alone(worker: PlaceWorker, agent: Agent, kafka: Kafka) -> None:
    """1 was set by a stranger, 2 deleted; 0 has something to commit, which another look precedes."""
    processed(worker, agent, kafka)
    kafka.outcome = CommitOutcome(dict.fromkeys(TPS[:3], 10))
    worker.commit()
    with agent.shared.change() as own:
        own.held[TPS[0]].processed = 20
    kafka.offsets = {TPS[0]: Committed(3), TPS[1]: Committed(3)}
    kafka.questions()
    worker.look_at_topics()
    assert kafka.questions() == [
        ("identities", {"t"}),
        ("positions", set(TPS[1:3])),
        ("identities", {"t"}),
    ]
    assert agent.view().counters.foreign_commits == 2
    assert agent.due(PLACE).keys() == set(TPS[:3]), "what this consumer has stands"
    worker.look_at_topics()
    assert kafka.questions() == [("identities", {"t"})], "the next look at commits is not due"


def test_first_look_asks_of_topics_alone(worker: PlaceWorker, kafka: Kafka) -> None:
    worker.look_at_topics()
    assert kafka.questions() == [("identities", {"t"})]


def test_look_at_a_place_without_partitions_asks_nothing(agent: Agent, kafka: Kafka) -> None:
    group: Any = kafka
    elsewhere = PlaceWorker(agent, "c", Place("other:9092", "g"), group, group, threading.Event())
    elsewhere.claim()
    elsewhere.commit()
    elsewhere.look_at_topics()
    assert kafka.questions() == []


def test_worker_waits_until_something_is_due(
    worker: PlaceWorker, agent: Agent, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "LOOK_UP", 0.01)
    assert (worker._wait_for_claims(), worker._wait_for_due()) == (True, False)
    processed(worker, agent, kafka)
    assert (worker._wait_for_claims(), worker._wait_for_due()) == (False, True)
    kafka.outcome = CommitOutcome(dict.fromkeys(TPS[:3], 10))
    worker.commit()
    kafka.offsets = dict.fromkeys(TPS[:3], Committed(10, "muster:c:A"))
    agent.assigned("t", TopicAssignment("k:9092", "g", {}, 2, {}, "A"), 2)
    assert worker._wait_for_due(), "a last look at what is closed"
    worker.commit()
    assert worker._wait_for_claims(), "claims to be given up"
    worker._wait_for_release(60.0)
    worker.claim()
    assert not worker._wait_for_claims(), "nothing is held here"
    began = time.monotonic()
    worker._wait_for_release(0.1)
    assert time.monotonic() - began >= 0.1


def test_deleted_offset_of_another_topic_stays(worker: PlaceWorker, agent: Agent, kafka: Kafka) -> None:
    processed(worker, agent, kafka)
    kafka.outcome = CommitOutcome(dict.fromkeys(TPS[:3], 10))
    worker.commit()
    worker._of_the_same_topics({})
    kafka.questions()
    kafka.ids = {"t": "B"}
    worker._look({TPS[0]: "A", TPS[1]: ""})
    assert kafka.questions() == [("positions", set(TPS[:2])), ("identities", {"t"})]
    assert agent.view().counters.foreign_commits == 0


def test_worker_lets_go_of_its_connections(worker: PlaceWorker, kafka: Kafka) -> None:
    worker.close()
    assert kafka.questions() == ["close", "close"]
