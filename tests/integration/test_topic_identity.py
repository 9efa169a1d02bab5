"""Topics that are deleted and created again, or only deleted, under a consumer that reads them, on a real Kafka.

A consumer without Spark: the real planner, agent and committer; the handler takes down what it is given.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.jars import jars, java
from devstack.kafka import Kafka
from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.offsets import parse_offsets
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import OffsetsJson
from muster.core.model import TopicAssignment
from muster.core.parking import Answer
from muster.core.positions import Committed
from muster.edges.kafka import GroupOffsets, TopicLister, librdkafka_logger
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.only_long import only_long

pytestmark = pytest.mark.timeout(300)


class Cluster:
    """Topics of a real Kafka, as their owner deletes and creates them."""

    def __init__(self, kafka: KafkaSettings, eventually: Eventually) -> None:
        self.kafka = kafka
        self.admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
        self.lister = TopicLister(kafka)
        self.eventually = eventually

    def create(self, topic: str, records: int) -> str:
        """Create a topic of one partition with so many records; returns its id."""
        self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        found = self.eventually(lambda: self.lister.topic_ids([topic]), what=f"{topic} is there")
        self.produce(topic, records)
        return found[topic]

    def produce(self, topic: str, records: int) -> None:
        producer = Producer(dict(self.kafka.config), logger=librdkafka_logger())
        for number in range(records):
            producer.produce(topic, str(number).encode(), partition=0)
        assert producer.flush(30) == 0

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        self.eventually(lambda: topic not in self.lister.list_partitions(), what=f"{topic} is gone")

    def close(self) -> None:
        self.lister.close()


class Consumer:
    """One consumer of cluster `c`; `step` is one planning with its batch."""

    def __init__(self, name: str, cluster: Cluster, group: str, fencing: bool, of: str = "c") -> None:
        self.name, self.cluster, self.group = name, cluster, group
        self.agent = Agent(name, fencing=fencing)
        self.committer = Committer(self.agent, cluster.kafka, of, fencing)
        self.zxid = 0
        self.read: list[tuple[str, int, int]] = []
        self.stands: OffsetsJson = {}
        self.failures = 0
        self.token = self.agent.query_started()
        self.planner = Planner(self.agent, self.token, cluster.kafka, Bounds(100_000))
        self.first = True
        self.thread = threading.Thread(target=self.committer.run, args=(lambda: None,), daemon=True)
        self.thread.start()

    def assign(self, topic: str, topic_id: str) -> None:
        self.zxid += 1
        node = TopicAssignment(
            self.cluster.kafka.bootstrap_servers, self.group, {0: self.name}, self.zxid, topic_id=topic_id
        )
        self.agent.assigned(topic, node, self.zxid)

    def step(self) -> None:
        end = self.planner.next(self.stands, 2).offset
        if end == self.stands and not self.first:
            return
        self.first = False
        plan = self.agent.batch_started()
        for (topic, _), (begin, to) in parse_offsets(end).items():
            if to > begin:
                self.read.append((topic, begin, to))
        self.stands = end
        self.agent.batch_done(plan, None)

    def stepping(self, condition: Callable[[], object], what: str, timeout: float = 60.0) -> None:
        def met() -> bool:
            self.step()
            return bool(condition())

        self.cluster.eventually(met, timeout, what)

    def errors(self) -> str:
        return str(self.agent.view().problems)

    def close(self) -> None:
        self.planner.close()
        self.committer.stop()
        self.thread.join(10)


@pytest.fixture
def cluster(kafka: KafkaSettings, eventually: Eventually) -> Iterator[Cluster]:
    made = Cluster(kafka, eventually)
    yield made
    made.close()


@pytest.fixture
def offsets(kafka: KafkaSettings) -> Iterator[GroupOffsets]:
    made = GroupOffsets(kafka, f"g-{uuid4().hex[:8]}")
    yield made
    made.close()


@pytest.fixture(params=[True, False], ids=["fencing", "guarded"])
def fencing(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def consumer(cluster: Cluster, offsets: GroupOffsets, fencing: bool) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(name: str, of: str = "c") -> Consumer:
        made.append(Consumer(name, cluster, offsets.group_id, fencing, of))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:8]}"


@pytest.mark.parametrize("records", [150, 40], ids=["outgrown", "smaller"])
def test_a_topic_that_is_recreated_under_its_consumer_loses_nothing_of_the_new_one(
    cluster: Cluster, offsets: GroupOffsets, consumer: Callable[..., Consumer], topic: str, records: int
) -> None:
    other = f"{topic}-other"
    first, of_other = cluster.create(topic, 100), cluster.create(other, 10)

    def committed(name: str = topic) -> Committed | None:
        return offsets.positions([(name, 0)])[name, 0]

    one = consumer("one")
    one.assign(topic, first)
    one.assign(other, of_other)
    one.stepping(lambda: committed() == Committed(100, f"muster:c:{first}"), "the old topic is read")
    one.stepping(lambda: committed(other) == Committed(10, f"muster:c:{of_other}"), "the other one is read")

    cluster.delete(topic)
    second = cluster.create(topic, records)
    assert second != first
    one.stepping(lambda: f"under id {second}" in one.errors(), "it is noticed")
    cluster.produce(other, 5)
    one.stepping(lambda: (other, 10, 15) in one.read, "the other topic goes on")

    one.read.clear()
    one.assign(topic, second)
    one.stepping(
        lambda: committed() == Committed(records, f"muster:c:{second}"), "the new topic is read and committed"
    )
    assert [read for read in one.read if read[0] == topic] == [(topic, 0, records)], "all of it, once"
    assert one.agent.view().counters.refused_commits == 0
    one.stepping(lambda: one.errors() == "{}", "and all is well")


def test_an_offset_of_the_old_topic_is_no_start_for_the_next_owner(
    cluster: Cluster, offsets: GroupOffsets, consumer: Callable[..., Consumer], topic: str
) -> None:
    """As when the old topic's last commit lands in the new one."""
    topic_id = cluster.create(topic, 150)
    offsets.commit({(topic, 0): 100}, {(topic, 0): "muster:c:another-topic"})
    one = consumer("one")
    one.assign(topic, topic_id)
    one.stepping(
        lambda: offsets.positions([(topic, 0)])[topic, 0] == Committed(150, f"muster:c:{topic_id}"), "read"
    )
    assert one.read == [(topic, 0, 150)]
    assert one.agent.view().counters.recreated == 1


@pytest.mark.parametrize(
    "fencing",
    [pytest.param(True, id="fencing"), pytest.param(False, id="guarded", marks=only_long)],
    indirect=True,
)
def test_a_topic_that_is_deleted_with_a_commit_outstanding_closes_and_holds_up_no_other(
    cluster: Cluster, offsets: GroupOffsets, consumer: Callable[..., Consumer], topic: str
) -> None:
    other = f"{topic}-other"
    topic_id, of_other = cluster.create(topic, 100), cluster.create(other, 10)
    one = consumer("one")
    one.assign(topic, topic_id)
    one.assign(other, of_other)
    cluster.eventually(
        lambda: len(one.agent.offer(one.token).topics) == 2,
        what="claimed",
    )
    end = one.planner.next({}, 2).offset
    plan = one.agent.batch_started()
    one.first, one.stands = False, end
    cluster.delete(topic)
    one.agent.batch_done(plan, None)
    one.stepping(lambda: not one.agent.view().topics[topic].held, "its partition is closed")
    assert "does not have it any more" in one.errors()
    cluster.produce(other, 5)
    one.stepping(lambda: offsets.committed([(other, 0)]) == {(other, 0): 15}, "the other topic goes on")
    assert one.agent.view().topics[other].running == {0}


def test_records_lost_to_retention_while_reading_are_counted(
    cluster: Cluster, offsets: GroupOffsets, consumer: Callable[..., Consumer], topic: str
) -> None:
    topic_id = cluster.create(topic, 100)
    offsets.commit({(topic, 0): 30})
    for future in cluster.admin.delete_records([KafkaPartition(topic, 0, 70)]).values():
        future.result(30)
    one = consumer("one")
    one.assign(topic, topic_id)
    one.stepping(lambda: one.read == [(topic, 70, 100)], "what is there is read")
    assert [sum(lost.values()) for lost in one.agent.view().counters.lost.values()] == [40]


def test_records_lost_to_retention_park_their_partition_until_a_person_accepts_the_loss(
    cluster: Cluster, offsets: GroupOffsets, consumer: Callable[..., Consumer], topic: str
) -> None:
    topic_id, key = cluster.create(topic, 100), (topic, 0)
    offsets.commit({key: 30})
    for future in cluster.admin.delete_records([KafkaPartition(topic, 0, 70)]).values():
        future.result(30)
    one = consumer("one")
    one.agent.parked.fail_on_data_loss = True
    one.assign(topic, topic_id)
    one.stepping(lambda: key in one.agent.answers.failing, "it is parked")
    for _ in range(10):
        one.step()
    assert one.read == []
    assert offsets.committed([key]) == {key: 30}
    assert (one.agent.answers.failing[key].offset, one.agent.answers.failing[key].lost) == (30, 40)
    assert one.agent.view().counters.lost == {}
    assert one.agent.answers.answer(key, 30, Answer.SKIP, "ann (known)")
    one.stepping(lambda: one.read == [(topic, 70, 100)], "what is there is read")
    one.stepping(lambda: offsets.committed([key]) == {key: 100}, "it is committed")
    assert [sum(lost.values()) for lost in one.agent.view().counters.lost.values()] == [40]


def test_a_group_that_another_cluster_commits_is_not_taken_up_until_its_name_is_taken_off(
    cluster: Cluster,
    offsets: GroupOffsets,
    consumer: Callable[..., Consumer],
    topic: str,
    kafka_server: Kafka,
) -> None:
    topic_id = cluster.create(topic, 20)
    first = consumer("one")
    first.assign(topic, topic_id)
    first.stepping(lambda: offsets.committed([(topic, 0)]) == {(topic, 0): 20}, "cluster c reads")
    second = consumer("two", of="d")
    second.assign(topic, topic_id)
    cluster.eventually(lambda: "committed by cluster 'c'" in second.errors(), what="it is told")
    cluster.produce(topic, 5)
    second.step()
    assert second.read == []
    first.stepping(lambda: offsets.committed([(topic, 0)]) == {(topic, 0): 25}, "cluster c is not disturbed")
    first.close()

    subprocess.run(
        [
            *(java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", kafka_server.address, "--group", offsets.group_id),
            *("--all-topics", "--reset-offsets", "--to-current", "--execute"),
        ],
        check=True,
        capture_output=True,
    )
    assert offsets.positions([(topic, 0)]) == {(topic, 0): Committed(25)}, "the advice does what it says"
    cluster.produce(topic, 5)
    second.stepping(lambda: second.read == [(topic, 25, 30)], "cluster d goes on where c stood")
