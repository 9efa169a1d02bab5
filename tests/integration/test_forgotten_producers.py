"""A broker that drops idle producers after some seconds: consumers that were quiet for longer go on, and those
that were fenced before stay out.

Kafka drops a transactional id that was idle for `transactional.id.expiration.ms`, 7 days by default, and who was
fenced last under it. The next one that initialises it is taken for the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from devstack.kafka import Kafka
from muster.core.turns import Failure
from muster.edges.dead_letters import ToWrite
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_fencing import FencedCommits, _Phase, transactional_id
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.committing_consumer import Consumer
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long
from tests.support.servers import running
from tests.support.transactional_ids import known_ids

pytestmark = pytest.mark.timeout(300)


class ForgetsSoon(Kafka):
    def settings(self) -> dict[str, str]:
        return {
            **super().settings(),
            "transactional.id.expiration.ms": "5000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    """The broker that forgets, in place of the one that all tests share."""
    with running(ForgetsSoon(tmp_path_factory.mktemp("forgets") / "kafka", guarded=True)) as server:
        yield KafkaSettings(config={"bootstrap.servers": server.address})


class World:
    """What the consumers of a test share: Kafka, and who owns what by ZooKeeper and Consul."""

    def __init__(self, kafka: KafkaSettings, group: GroupOffsets, eventually: Eventually) -> None:
        self.kafka, self.group = kafka, group
        self.topic = make_topic(kafka, 2)
        self.consumers: list[Consumer] = []
        self.owners: dict[int, str] = {}
        self.epoch = 0
        self._eventually = eventually

    def start(self, name: str, **agent_settings: Any) -> Consumer:
        self.consumers.append(Consumer(name, self.kafka, self.group, True, **agent_settings))
        return self.consumers[-1]

    def give(self, owners: dict[int, str], *heard_by: Consumer) -> None:
        """ZooKeeper says so, which only some have heard."""
        self.owners, self.epoch = owners, self.epoch + 1
        for one in heard_by:
            self.tell(one)

    def tell(self, one: Consumer) -> None:
        one.reads(self.topic, self.owners, self.epoch)

    def confirm(self, *those: Consumer) -> None:
        """ZooKeeper and Consul answer these consumers, if they ask."""
        for one in those:
            number = one.agent.blocks.reading_wanted()
            if number is not None:
                self.tell(one)
                one.agent.blocks.has_read(number)
            one.agent.blocks.is_registered(time.monotonic())

    def committed(self, partition: int = 0) -> int | None:
        return self.group.committed([(self.topic, partition)])[self.topic, partition]

    def forget(self) -> None:
        """Wait until the broker has dropped the producers of the group."""
        self._eventually(lambda: not self.ids() & known_ids(self.kafka), 60, "forgotten")

    def ids(self, group: str = "") -> set[str]:
        """The transactional ids of a group's partitions."""
        return {transactional_id("c", group or self.group.group_id, self.topic, n) for n in (0, 1)}

    def until(self, reached: Callable[[], bool], *confirmed: Consumer, what: str = "") -> None:
        def try_it() -> bool:
            self.confirm(*confirmed)
            return reached()

        self._eventually(try_it, 60, what)


@pytest.fixture
def world(kafka: KafkaSettings, group: GroupOffsets, eventually: Eventually) -> Iterator[World]:
    made = World(kafka, group, eventually)
    yield made
    for one in made.consumers:
        one.close()


def quiet(world: World) -> Consumer:
    """A consumer that was quiet for so long after its take-up that its producers are forgotten."""
    one = world.start("one")
    world.give({0: "one", 1: "one"}, one)
    world.until(lambda: one.offered() == {0, 1}, what="claimed")
    world.forget()
    return one


def test_first_record_after_the_expiry_is_committed_once_the_owner_is_confirmed(world: World) -> None:
    one = quiet(world)
    one.batch(world.topic, {0: 3})
    world.until(lambda: "Kafka has forgotten its producer" in str(one.status(world.topic)["errors"]))
    assert "ZooKeeper and Consul confirm the owner" in str(one.status(world.topic)["errors"])
    assert world.committed() is None, "not before that is known"
    world.until(lambda: world.committed() == 3, one, what="committed by another producer")
    one.batch(world.topic, {0: 5, 1: 2})
    world.until(lambda: (world.committed(0), world.committed(1)) == (5, 2), one, what="and on")
    assert one.status(world.topic)["refused"] == 0


def test_partition_parked_before_its_first_commit_keeps_its_producer(world: World) -> None:
    one = world.start("one", longest_renewal=1.0)
    world.give({0: "one", 1: "one"}, one)
    world.until(lambda: one.offered() == {0, 1}, what="claimed")
    one.agent.batch_done(one.plan(world.topic, {0: 3}), Failure("ValueError: no number"))
    other = GroupOffsets(world.kafka, f"{world.group.group_id}-other")
    commits = FencedCommits(world.kafka, "c", other)
    world.until(lambda: not commits.claim([(world.topic, 0), (world.topic, 1)]).failed)
    world.until(lambda: not world.ids(other.group_id) & known_ids(world.kafka), what="idle for too long")
    assert world.ids() <= known_ids(world.kafka)
    assert world.committed() == 0
    assert one.agent.view().counters.failed_commits == 0
    commits.close()
    other.close()


def test_partition_closes_in_order_whose_producer_was_forgotten(world: World) -> None:
    one = quiet(world)
    one.batch(world.topic, {0: 3, 1: 0})
    world.give({1: "one"}, one)
    one.batch(world.topic, {1: 1})
    assert one.status(world.topic)["closing"] == [0]
    world.until(lambda: one.status(world.topic)["closing"] == [], one, what="closed")
    assert world.committed() == 3
    two = world.start("two")
    world.give({0: "two", 1: "one"}, one, two)
    world.until(lambda: two.offered() == {0}, one, two, what="taken up")
    two.batch(world.topic, {0: 7})
    world.until(lambda: world.committed() == 7, one, two)


def test_forgotten_partition_given_to_another_closes_without_a_commit(world: World) -> None:
    one, two = quiet(world), world.start("two")
    one.batch(world.topic, {0: 3})
    world.give({0: "two", 1: "one"}, one)
    world.until(lambda: one.status(world.topic)["refused"] == 1, what="refused")
    one.batch(world.topic, {1: 1})
    assert one.status(world.topic)["closing"] == []
    world.tell(two)
    world.until(lambda: two.offered() == {0}, two)
    assert world.committed() is None


@pytest.mark.parametrize("next_owner", [pytest.param("is idle, too", marks=only_long), "goes on"])
def test_fenced_owner_that_wakes_after_the_expiry_lands_nothing(world: World, next_owner: str) -> None:
    a, b = world.start("a"), world.start("b")
    world.give({0: "a", 1: "a"}, a)
    world.until(lambda: a.offered() == {0, 1})
    a.batch(world.topic, {0: 10})
    world.until(lambda: world.committed() == 10, a)
    late = a.plan(world.topic, {0: 20})
    world.give({0: "b", 1: "a"}, b)
    world.until(lambda: b.offered() == {0}, b, what="taken over, and the old owner fenced")
    b.batch(world.topic, {0: 30})
    world.until(lambda: world.committed() == 30, b)
    world.forget()
    if next_owner == "goes on":
        b.batch(world.topic, {0: 40})
        world.until(lambda: world.committed() == 40, b)
    stood = world.committed()

    a.agent.batch_done(late, None)  # it hears nothing of ZooKeeper, and wakes up
    world.until(lambda: "Kafka has forgotten its producer" in str(a.status(world.topic)["errors"]))
    failed = a.agent.view().counters.failed_commits
    world.until(lambda: a.agent.view().counters.failed_commits > failed + 2, what="tried again")
    assert world.committed() == stood
    world.until(lambda: a.status(world.topic)["refused"] == 1, a, what="told that it is another one's")
    assert world.committed() == stood
    b.batch(world.topic, {0: 50})
    world.until(lambda: world.committed() == 50, b, what="the next owner goes on")
    assert b.status(world.topic)["refused"] == 0


def claim_and_commit(world: World, commits: FencedCommits, offset: int) -> None:
    key = (world.topic, 0)
    world.until(lambda: not commits.claim([key]).failed)
    world.until(lambda: commits.commit({key: offset}).done == {key: offset})


@pytest.mark.parametrize("stands_before", [pytest.param(_Phase.SEND, marks=only_long), _Phase.COMMIT])
def test_fenced_transaction_that_wakes_after_the_expiry_lands_nothing(
    world: World, stands_before: _Phase
) -> None:
    key = (world.topic, 0)
    a, b = (FencedCommits(world.kafka, "c", world.group) for _ in range(2))
    claim_and_commit(world, a, 10)
    fence = a._fences[key]
    fence.producer.begin_transaction()
    if stands_before is _Phase.COMMIT:
        fence.producer.send_offsets_to_transaction([KafkaPartition(*key, 20)], world.group.metadata(), 30)
        fence.sent = 20
    fence.phase = stands_before
    claim_and_commit(world, b, 30)
    world.forget()
    for _ in range(5):
        assert not a.commit({key: 20}, owned=lambda *_: None).done
    assert world.committed() == 30
    assert a.commit({key: 20}, owned=lambda *_: False).refused.keys() == {key}
    world.until(lambda: b.commit({key: 40}).done == {key: 40}, what="the next owner goes on")
    a.close()
    b.close()


def test_fenced_letter_that_wakes_after_the_expiry_lands_nothing(world: World) -> None:
    """Its producer writes a record, too, and not an offset alone."""
    key = (world.topic, 0)
    a, b = (FencedCommits(world.kafka, "c", world.group) for _ in range(2))
    letters = {key: {19: ToWrite(make_topic(world.kafka, 1), None, b"letter", ())}}
    claim_and_commit(world, a, 10)
    claim_and_commit(world, b, 30)
    world.forget()
    for _ in range(5):
        assert not a.commit({key: 20}, letters=letters, owned=lambda *_: None).done
    assert world.committed() == 30
    assert a.commit({key: 20}, letters=letters, owned=lambda *_: False).refused.keys() == {key}
    world.until(lambda: b.commit({key: 40}).done == {key: 40}, what="the next owner goes on")
    a.close()
    b.close()
