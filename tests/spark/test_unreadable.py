"""A partition that cannot be read, beside others: it is named, the others flow, and no record counts as failing."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession

from devstack.brokers import Brokers
from devstack.kafka import Kafka
from devstack.place import HERE
from devstack.secured import SecureKafka
from muster.consumer.query import QuerySupervisor
from muster.core.model import TopicPartition
from muster.core.parking import Answer
from muster.settings.connections import KafkaSettings
from muster.sinks.batch import Batch
from tests.conftest import Eventually
from tests.support.connected_query import Holder
from tests.support.only_long import only_long
from tests.support.secured import CONSUMER, GROUP, Passwords
from tests.support.servers import running
from tests.support.spark_topics import create_topic, leader_of, numbered, produce

pytestmark = pytest.mark.spark

FLOW = 10.0
"""Seconds within which another partition's record arrives: a batch that fails, one without the partition, and the
load of the machine."""
READ_AHEAD = 1 << 20
"""Bytes, so that records which are planned have not been read yet."""
BACK = 30.0
"""Seconds within which a partition is read again once it can be."""


class Reader:
    """A consumer's query with a handler that notes what it gets; before that it does what `before` says."""

    def __init__(self, spark: SparkSession, holder: Holder) -> None:
        self.agent = holder.agent
        self.got: list[tuple[str, int, int]] = []
        self.before: Callable[[Batch], None] = lambda _: None
        self._supervisor = QuerySupervisor(
            spark, holder.agent, self._handle, holder.url, "unreadable", READ_AHEAD
        )

    def _handle(self, frame: DataFrame, batch: Batch) -> None:
        self.before(batch)
        rows = frame.select("topic", "partition", "offset").collect()
        self.got.extend((row.topic, row.partition, row.offset) for row in rows)

    def run(self) -> None:
        self._supervisor.run(lambda: None)

    def stop(self) -> None:
        self._supervisor.stop()

    def has(self, tp: TopicPartition, count: int) -> Callable[[], bool]:
        return lambda: len({offset for *of, offset in self.got if tuple(of) == tp}) >= count

    def problem(self, key: str) -> Callable[[], str]:
        return lambda: self.agent.view().problems.get(key, "")


@contextmanager
def reading(spark: SparkSession, kafka: KafkaSettings, group: str) -> Iterator[tuple[Holder, Reader]]:
    with Holder(kafka, group) as holder:
        reader = Reader(spark, holder)
        thread = threading.Thread(target=reader.run, daemon=True)
        thread.start()
        try:
            yield holder, reader
        finally:
            reader.stop()
            thread.join(60)


def flows(
    kafka: KafkaSettings, reader: Reader, tp: TopicPartition, eventually: Eventually, seconds: float = 15.0
) -> None:
    """For so long, each record that is written to a partition arrives in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        count = 1 + len({offset for *of, offset in reader.got if tuple(of) == tp})
        produce(kafka, tp[0], {tp[1]: ["v"]})
        eventually(reader.has(tp, count), FLOW, f"a record of {tp} arrives")


def no_record_failed(reader: Reader) -> None:
    view = reader.agent.view()
    assert view.counters.read_failures > 0
    assert view.counters.handler_failures == 0
    assert view.counters.poison == 0


@only_long
def test_topic_without_right_is_named_while_others_flow(
    spark: SparkSession, secure_kafka: SecureKafka, passwords: Passwords, eventually: Eventually
) -> None:
    kafka = KafkaSettings(config=secure_kafka.client_settings())
    admin = AdminClient(dict(kafka.config))
    good, bad = create_topic(kafka, 2), create_topic(kafka, 2)

    def right(topic: str, operation: AclOperation) -> AclBinding:
        who, pattern = f"User:{CONSUMER}", ResourcePatternType.LITERAL
        return AclBinding(ResourceType.TOPIC, topic, pattern, who, "*", operation, AclPermissionType.ALLOW)

    def allow(*rights: AclBinding) -> None:
        for future in admin.create_acls(list(rights)).values():
            future.result(10)

    for topic in (good, bad):
        allow(right(topic, AclOperation.READ), right(topic, AclOperation.DESCRIBE))
    settings = KafkaSettings(config=secure_kafka.settings_of(CONSUMER, passwords.users()[CONSUMER]))
    with reading(spark, settings, GROUP) as (holder, reader):
        for topic in (good, bad):
            holder.hold(topic, [0, 1])
            produce(kafka, topic, {p: numbered("v", 10) for p in range(2)})
        eventually(lambda: len(reader.got) == 40, 60)
        refused = AclBindingFilter(
            ResourceType.TOPIC,
            bad,
            ResourcePatternType.LITERAL,
            f"User:{CONSUMER}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for future in admin.delete_acls([refused]).values():
            future.result(10)
        flows(kafka, reader, (good, 0), eventually, 5)
        produce(kafka, bad, {p: numbered("w", 5) for p in range(2)})
        said = str(eventually(reader.problem(f"unread {bad} (right)"), 30))
        assert f"topic '{bad}', partitions [0, 1]: they cannot be read, the first at offset 10" in said
        assert "give the consumer's user the right to read the topic" in said
        flows(kafka, reader, (good, 0), eventually)
        no_record_failed(reader)
        allow(right(bad, AclOperation.READ))
        for partition in range(2):
            eventually(reader.has((bad, partition), 15), BACK, "it is read again")
        assert not reader.problem(f"unread {bad} (right)")()
    assert len(reader.got) == len(set(reader.got)), "nothing came twice"


def test_damaged_record_is_parked_while_others_flow(
    spark: SparkSession, tmp_path: Path, eventually: Eventually
) -> None:
    with running(Kafka(tmp_path / "kafka", guarded=True)) as server:
        kafka = KafkaSettings(config={"bootstrap.servers": server.address})
        topic = create_topic(kafka, 2)
        for value in ("before", "damaged", "after"):
            produce(kafka, topic, {0: [value]})
        (segment,) = (tmp_path / "kafka").rglob(f"{topic}-0/{0:020d}.log")
        content = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(content.index(b"damaged"))
            file.write(b"DAMAGED")
        with reading(spark, kafka, f"group-{uuid.uuid4().hex[:8]}") as (holder, reader):
            holder.hold(topic, [0, 1])
            eventually(lambda: reader.agent.view().failing, 60, "it is parked")
            record = reader.agent.view().failing[topic, 0]
            assert (record.offset, record.parked) == (1, True)
            assert "muster skip-record" in reader.problem(f"parked {topic} [0]")()
            flows(kafka, reader, (topic, 1), eventually, 5)
            assert reader.has((topic, 0), 1)()
            no_record_failed(reader)
            assert reader.agent.answers.answer((topic, 0), 1, Answer.SKIP, "a test")
            eventually(reader.has((topic, 0), 2), BACK, "what is behind it is read")
            assert not reader.agent.view().failing
    assert sorted(offset for of, partition, offset in reader.got if partition == 0) == [0, 2]


@only_long
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_partition_without_leader_is_named_while_others_flow(
    spark: SparkSession, tmp_path: Path, eventually: Eventually, fault: str
) -> None:
    brokers = Brokers(tmp_path / "kafka", [HERE] * 3)
    brokers.start()
    try:
        kafka = KafkaSettings(config={"bootstrap.servers": brokers.servers})
        topic = create_topic(kafka, 6, {"min.insync.replicas": "1"})
        leaders = {partition: leader_of(kafka, topic, partition) for partition in range(6)}
        lost = brokers[leaders[1]]
        gone = [partition for partition, leader in leaders.items() if leader == lost.number]
        good = next(partition for partition in leaders if partition not in gone)
        with reading(spark, kafka, f"group-{uuid.uuid4().hex[:8]}") as (holder, reader):
            holder.hold(topic, [*gone, good])
            produce(kafka, topic, {p: numbered("v", 10) for p in (*gone, good)})
            eventually(lambda: len(reader.got) == 10 * (len(gone) + 1), 60)

            produced, lost_at = threading.Event(), threading.Event()

            def lose(batch: Batch) -> None:
                """Wait for the backlog, and once it is planned, lose its broker."""
                assert produced.wait(60)
                if any(partition in gone for _, partition in batch.ranges) and not lost_at.is_set():
                    lost.kill() if fault == "killed" else lost.pause()
                    lost_at.set()

            reader.before = lose
            produce(kafka, topic, {good: ["w"]})
            produce(kafka, topic, {partition: ["x" * 10_000] * 300 for partition in gone})
            produced.set()
            assert lost_at.wait(60)
            flows(kafka, reader, (topic, good), eventually, 30)
            no_record_failed(reader)
            lost.start() if fault == "killed" else lost.resume()
            for partition in gone:
                eventually(reader.has((topic, partition), 310), BACK, "it is read again")
            no_record_failed(reader)
    finally:
        for broker in brokers:
            broker.kill()
