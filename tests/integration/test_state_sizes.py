"""State by key of great sizes on a real Kafka: many shards in one process, many keys in one shard, long keys."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from muster.consumer.state.position import KEY
from muster.consumer.state.shards import Computed
from muster.edges import state_changelog
from muster.edges.kafka import GroupOffsets
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long
from tests.support.state_query import begin_at_the_first_record
from tests.support.stateful_consumer import CLUSTER, GENERATION, Make, made

pytestmark = pytest.mark.timeout(1800)

MANY = 5_000_000
SHARDS = 300


@pytest.fixture
def consumer(kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path) -> Iterator[Make]:
    with made(kafka, group, tmp_path) as make:
        yield make


def begun(kafka: KafkaSettings, group: GroupOffsets, partitions: int, records: int) -> str:
    topic = make_topic(kafka, partitions)
    begin_at_the_first_record(group, topic, partitions)
    for partition in range(partitions):
        produce(kafka, topic, partition, records)
    return topic


def test_long_keys_and_late_rows_go_through_the_changelog(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Make, eventually: Eventually
) -> None:
    topic = begun(kafka, group, 1, 20)
    keys = [b"k" * 600, b"k" * 601, b"k" * 100_000, b"k" * 100_001, b""]
    one, two = consumer("one"), consumer("two")
    one.reads(topic, {0: "one"}, 1)
    eventually(lambda: one.readable(topic), 60, "taken up")
    plan, computed = one.compute(topic, one.plan(topic, 10), {key: key[-3:] for key in keys})
    one.done(topic, (plan, replace(computed, late=3)))
    eventually(lambda: one.readable(topic), 60, "committed")
    one.batch(topic, 20, {keys[0]: None, keys[3]: b"new"})
    eventually(lambda: one.readable(topic), 60, "committed")
    assert one.states.status()[topic, 0].late == 3, "counted with the batch that was committed, once"
    expected = {b"": b"", keys[1]: b"kkk", keys[2]: b"kkk", keys[3]: b"new"}
    assert one.state(topic) == expected
    two.reads(topic, {0: "two"}, 2)
    eventually(lambda: two.readable(topic), 60, "taken up")
    assert two.state(topic) == expected


def test_changelog_is_read_in_bounded_parts(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = make_topic(kafka, 1)
    producer = Producer(dict(kafka.config))
    for n in range(1000):
        producer.produce(topic, b"x" * 100, b"%d" % n, 0)
    assert producer.flush(60) == 0
    monkeypatch.setattr(state_changelog, "TAKEN", 50)
    for name, bound in (("AT_ONCE", 100), ("BYTES_AT_ONCE", 10_000)):
        with monkeypatch.context() as patch, closing(ChangelogReader(kafka, "look", topic, 0)) as reader:
            patch.setattr(state_changelog, name, bound)
            reads = list(reader.read(0))
        assert [key for read in reads for key, _ in read.records] == [b"%d" % n for n in range(1000)]
        assert [read.upto for read in reads][-1] == 1000
        assert max(len(read.records) for read in reads) <= 150, name


@only_long
def test_five_million_keys_are_restored(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Make, eventually: Eventually
) -> None:
    topic, at_once = begun(kafka, group, 1, 20), MANY // 10
    one, two = consumer("one"), consumer("two")
    one.reads(topic, {0: "one"}, 1)
    for number in range(10):
        eventually(lambda: one.readable(topic), 300, "committed")
        names = range(number * at_once, (number + 1) * at_once)
        one.batch(topic, 2 * (number + 1), {b"%016d" % (n * 7919 % MANY): b"%d" % n for n in names})
    eventually(lambda: one.readable(topic), 300, "committed")
    assert one.states.status()[topic, 0].keys == MANY
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    two.reads(topic, {0: "two"}, 2)
    eventually(lambda: two.readable(topic), 900, "restored")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert two.states.status()[topic, 0].keys == MANY
    with closing(two.states.reader((topic, 0))) as reader:
        for n in range(0, MANY, 99_991):
            assert reader.get(GENERATION + b"%016d" % (n * 7919 % MANY)) == b"%d" % n
    print(f"restored within {grown >> 10} MB more than the most before")


@only_long
def test_three_hundred_shards_run_in_one_process(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Make, eventually: Eventually
) -> None:
    topic = begun(kafka, group, SHARDS, 1)
    places = [(topic, partition) for partition in range(SHARDS)]
    one, two = consumer("one"), consumer("two")
    one.reads(topic, dict.fromkeys(range(SHARDS), "one"), 1)
    eventually(lambda: one.offered() == {*range(SHARDS)}, 600, "all are taken up")
    eventually(lambda: one.agent.failing.turn(places).keys() == {*places}, 600, "all may be planned")
    offer = one.agent.offer(one._token)
    ranges = {topic: dict.fromkeys(range(SHARDS), (0, 1))}
    one.agent.planned(one._token, offer.asked, {}, ranges, {}, [])
    plan = one.agent.batch_started()
    assert {*plan.ranges} == {*places}
    computed = {}
    for tp in places:
        view = one.states.view(tp, {topic: 0})
        after = replace(view.position, time=view.now, time_mode="None")
        computed[tp] = Computed({topic: (0, 1)}, after, [GENERATION + b"k"], [b"%d" % tp[1]])
    one.states.computed(computed)
    one.agent.batch_done(plan, None)
    eventually(lambda: set(group.committed(places).values()) == {1}, 600, "all are committed")
    assert one.errors() == {}
    two.reads(topic, dict.fromkeys(range(SHARDS), "two"), 2)
    eventually(lambda: two.offered() == {*range(SHARDS)}, 600, "all are restored")
    for tp in places:
        with closing(two.states.reader(tp)) as reader:
            assert reader.get(GENERATION + b"k") == b"%d" % tp[1]
    with closing(ChangelogReader(kafka, "look", changelog_topic(CLUSTER, topic), SHARDS - 1)) as reader:
        records = [record for read in reader.read(0) for record in read.records]
        assert [key for key, _ in records if key != KEY] == [GENERATION + b"k"]
