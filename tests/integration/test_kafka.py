"""`TopicLister` and `GroupOffsets` against a real Kafka."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, Uuid
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from devstack.jars import jars, java
from devstack.kafka import Kafka
from muster.edges.kafka import (
    GroupOffsets,
    KafkaError,
    PartitionError,
    TopicLister,
    librdkafka_logger,
    topic_id_text,
)
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.servers import running


@pytest.fixture
def topic(kafka: KafkaSettings) -> str:
    return make_topic(kafka, 4)


@pytest.fixture
def offsets(kafka: KafkaSettings) -> Iterator[GroupOffsets]:
    group = GroupOffsets(kafka, f"g-{uuid4().hex[:8]}")
    yield group
    group.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Kafka]:
    with running(Kafka(tmp_path / "kafka", guarded=True)) as server:
        yield server


def test_partitions_are_those_of_all_topics(kafka: KafkaSettings, topic: str, eventually: Eventually) -> None:
    lister = TopicLister(kafka)
    try:
        eventually(lambda: lister.list_partitions().get(topic) == frozenset(range(4)))
        assert lister.list_topics().errors == {}
        assert "never-made" not in lister.list_partitions(), "asking makes no topic"
    finally:
        lister.close()
    with pytest.raises(KafkaError, match="closed"):
        lister.list_partitions()


def test_topic_ids_are_those_of_kafkas_own_tools_and_change_when_a_topic_is_created_again(
    kafka: KafkaSettings, kafka_server: Kafka, topic: str, eventually: Eventually
) -> None:
    lister = TopicLister(kafka)
    first = eventually(lambda: lister.topic_ids([topic, "never-made"]), what=f"{topic} has an id")
    command = [
        *(java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"),
        *("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic),
        *("--bootstrap-server", kafka_server.address),
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"TopicId: {first[topic]}" in told
    assert lister.topic_ids([]) == {}

    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in lister.list_partitions())
    assert lister.topic_ids([topic]) == {}, "a topic that is gone is left out"
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    second = eventually(lambda: lister.topic_ids([topic]))
    assert second.keys() == {topic}
    assert second != first
    lister.close()


def test_topic_id_text_is_in_kafkas_alphabet() -> None:
    assert topic_id_text(Uuid(-1, -5)) == "____________________-w"
    assert topic_id_text(Uuid(0, 0)) == "", "the id of no topic, from brokers that have none"


def test_offsets_of_a_group_there_and_back(kafka: KafkaSettings, topic: str, offsets: GroupOffsets) -> None:
    produce(kafka, topic, 0, 10)
    produce(kafka, topic, 2, 3)
    partitions = [(topic, n) for n in range(4)]
    assert offsets.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
    assert offsets.end_offsets(partitions) == {(topic, 0): 10, (topic, 1): 0, (topic, 2): 3, (topic, 3): 0}
    assert offsets.committed(partitions) == dict.fromkeys(partitions)

    offsets.commit({(topic, 0): 7, (topic, 2): 3})
    assert offsets.committed(partitions) == {(topic, 0): 7, (topic, 1): None, (topic, 2): 3, (topic, 3): None}
    offsets.commit({(topic, 0): 0})
    assert offsets.committed([(topic, 0)]) == {(topic, 0): 0}, "0 is an offset, not the absence of one"

    other = GroupOffsets(kafka, f"{offsets.group_id}-other")
    assert other.committed([(topic, 0)]) == {(topic, 0): None}
    other.close()
    assert (offsets.committed([]), offsets.end_offsets([])) == ({}, {})
    offsets.commit({})


def test_records_deleted_by_retention_are_before_the_beginning(
    kafka: KafkaSettings, topic: str, offsets: GroupOffsets
) -> None:
    produce(kafka, topic, 0, 10)
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    for future in admin.delete_records([KafkaPartition(topic, 0, 6)]).values():
        future.result(30)
    assert offsets.beginning_offsets([(topic, 0)]) == {(topic, 0): 6}


def test_a_consumer_of_the_group_goes_on_from_what_was_committed(
    kafka: KafkaSettings, topic: str, offsets: GroupOffsets
) -> None:
    produce(kafka, topic, 1, 5)
    offsets.commit({(topic, 1): 3})
    consumer = Consumer(
        {**kafka.config, "group.id": offsets.group_id, "enable.auto.commit": False},
        logger=librdkafka_logger(),
    )
    try:
        assert consumer.committed([KafkaPartition(topic, 1)], timeout=30)[0].offset == 3
    finally:
        consumer.close()


def test_many_partitions_in_one_go_and_from_many_threads(
    kafka: KafkaSettings, eventually: Eventually
) -> None:
    topic = make_topic(kafka, 200)
    group = GroupOffsets(kafka, f"g-{uuid4().hex[:8]}")
    partitions = [(topic, n) for n in range(200)]

    def ready() -> bool:
        try:
            return len(group.end_offsets(partitions)) == 200
        except KafkaError:
            return False

    eventually(ready)
    wanted = {key: key[1] for key in partitions}
    slices = [dict(list(wanted.items())[n::8]) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(group.commit, slices))
    assert group.committed(partitions) == wanted
    group.close()


def test_partition_that_was_added_is_found_by_a_group_that_is_connected_already(
    kafka: KafkaSettings, topic: str, offsets: GroupOffsets
) -> None:
    assert offsets.end_offsets([(topic, 0)]) == {(topic, 0): 0}
    offsets.commit({(topic, 0): 0})
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    produce(kafka, topic, 4, 3)

    assert offsets.end_offsets([(topic, 0), (topic, 4)]) == {(topic, 0): 0, (topic, 4): 3}
    assert offsets.beginning_offsets([(topic, 4)]) == {(topic, 4): 0}
    assert offsets.committed([(topic, 4)]) == {(topic, 4): None}
    offsets.commit({(topic, 4): 2})
    assert offsets.committed([(topic, 4)]) == {(topic, 4): 2}


def test_an_unknown_topic_or_partition_does_not_spoil_the_others(
    kafka: KafkaSettings, topic: str, offsets: GroupOffsets
) -> None:
    produce(kafka, topic, 0, 2)
    with pytest.raises(PartitionError, match=r"no-such-topic \[0\].*; .*") as caught:
        offsets.end_offsets([(topic, 0), ("no-such-topic", 0), (topic, 99)])
    assert caught.value.offsets == {(topic, 0): 2}
    assert caught.value.errors.keys() == {("no-such-topic", 0), (topic, 99)}

    with pytest.raises(PartitionError, match=r"no-such-topic \[0\]"):
        offsets.end_offsets([("no-such-topic", 0)])

    with pytest.raises(PartitionError, match=r"no-such-topic \[3\]") as caught:
        offsets.commit({(topic, 0): 1, ("no-such-topic", 3): 1})
    assert caught.value.errors.keys() == {("no-such-topic", 3)}
    assert caught.value.offsets == {(topic, 0): 1}
    assert offsets.committed([(topic, 0)]) == {(topic, 0): 1}


def test_a_transaction_under_way_hides_its_records_and_its_offsets(
    kafka: KafkaSettings, topic: str, offsets: GroupOffsets
) -> None:
    produce(kafka, topic, 0, 2)
    offsets.commit({(topic, 0): 1, (topic, 1): 5})
    all_of_it = GroupOffsets(
        KafkaSettings(config=kafka.config | {"isolation.level": "read_uncommitted"}), offsets.group_id
    )
    producer = Producer({**kafka.config, "transactional.id": uuid4().hex}, logger=librdkafka_logger())
    member = Consumer({**kafka.config, "group.id": offsets.group_id}, logger=librdkafka_logger())
    try:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"pending", partition=0)
        assert producer.flush(30) == 0
        producer.send_offsets_to_transaction(
            [KafkaPartition(topic, 0, 2)], member.consumer_group_metadata(), 30
        )

        assert offsets.end_offsets([(topic, 0)]) == {(topic, 0): 2}
        assert all_of_it.end_offsets([(topic, 0)]) == {(topic, 0): 3}
        impatient = GroupOffsets(kafka.model_copy(update={"operation_timeout": 1.0}), offsets.group_id)
        with pytest.raises(PartitionError, match="a transaction that has not ended holds its offset") as held:
            impatient.committed([(topic, 0), (topic, 1)])
        assert held.value.offsets == {(topic, 1): 5}
        assert "kafka-transactions.sh finds and aborts one that hangs" in str(held.value)
        impatient.close()

        producer.commit_transaction(30)
        assert offsets.committed([(topic, 0)]) == {(topic, 0): 2}
    finally:
        member.close()
        all_of_it.close()


def test_every_call_has_a_deadline_while_the_broker_is_away_and_works_again_afterwards(
    own_server: Kafka, eventually: Eventually
) -> None:
    settings = KafkaSettings(config={"bootstrap.servers": own_server.address}, operation_timeout=1.0)
    patient = KafkaSettings(config={"bootstrap.servers": own_server.address})
    topic = make_topic(patient, 1)
    produce(patient, topic, 0, 3)
    lister, group = TopicLister(settings), GroupOffsets(settings, "g")
    calls: dict[str, Callable[[], object]] = {
        "list_partitions": lister.list_partitions,
        "topic_ids": lambda: lister.topic_ids(["t"]),
        "end_offsets": lambda: group.end_offsets([(topic, 0)]),
        "beginning_offsets": lambda: group.beginning_offsets([(topic, 0)]),
        "committed": lambda: group.committed([(topic, 0)]),
        "commit": lambda: group.commit({(topic, 0): 1}),
    }

    def works() -> bool:
        try:
            return [call() for call in calls.values()] and group.committed([(topic, 0)]) == {(topic, 0): 1}
        except KafkaError as error:
            raise AssertionError(str(error)) from error

    eventually(works, 60)
    for away, back in ((own_server.pause, own_server.resume), (own_server.kill, own_server.start)):
        away()
        eventually(lambda: not own_server.healthy())
        for name, call in calls.items():
            began = time.monotonic()
            with pytest.raises(KafkaError, match=f"Kafka at {own_server.address}: .*brokers run"):
                call()
            assert time.monotonic() - began < 10.0, name
        back()
        eventually(works, 60)
    lister.close()
    group.close()


def test_clients_that_are_still_connecting_get_their_answer(kafka: KafkaSettings, topic: str) -> None:
    def ask(number: int) -> dict[tuple[str, int], int]:
        group = GroupOffsets(kafka, f"fresh-{number}")
        try:
            return group.end_offsets([(topic, 0)])
        finally:
            group.close()

    # A few in a thousand fail without `Admin.connect`.
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(1000))) == [{(topic, 0): 0}] * 1000


def test_a_broker_that_was_never_there_is_named_with_what_was_heard() -> None:
    settings = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:1"}, operation_timeout=1.0)
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1: listing topics: .*refused"):
        TopicLister(settings).list_partitions()


def test_refused_connections_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:2"}, operation_timeout=2.0)
    lister = TopicLister(settings)
    with caplog.at_level(logging.DEBUG, logger="muster.librdkafka"):
        for _ in range(2):
            with pytest.raises(KafkaError):
                lister.list_partitions()
    refused = [r for r in caplog.records if "127.0.0.1:2/bootstrap" in r.getMessage()]
    assert len(refused) == 1


def test_settings_that_librdkafka_does_not_know_are_an_error_of_ours() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"}
    with pytest.raises(KafkaError, match=r"no\.such\.setting"):
        TopicLister(KafkaSettings(config=config))
