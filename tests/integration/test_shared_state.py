"""Two topics that share their state on a real Kafka: one producer, one commit of both offsets, one owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from muster.core.model import Seek, SeekState
from muster.core.positions import parse_stamp
from muster.core.state_topics import StateTopics
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.state_query import begin_at_the_first_record, committed_records
from tests.support.stateful_consumer import Make, StatefulConsumer, made

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def pair(kafka: KafkaSettings, group: GroupOffsets) -> tuple[str, str]:
    """Two topics with a partition each, which the group begins at their first records."""
    first, second = sorted(make_topic(kafka, 1) for _ in range(2))
    for topic in (first, second):
        produce(kafka, topic, 0, 50)
        begin_at_the_first_record(group, topic, 1)
    return first, second


@pytest.fixture
def consumer(
    kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path, pair: tuple[str, str]
) -> Iterator[Make]:
    with made(kafka, group, tmp_path, topics=StateTopics([pair])) as make:
        yield make


def positions(group: GroupOffsets, pair: tuple[str, str]) -> dict[str, tuple[int, int, str]]:
    """Offset, number of the commit and last seek of each topic."""
    found = {}
    for (topic, _), at in group.positions([(topic, 0) for topic in pair]).items():
        assert at is not None
        stamp = parse_stamp(at.metadata)
        assert stamp is not None
        found[topic] = (at.offset, stamp.seq, stamp.note.sought)
    return found


def take_up(one: StatefulConsumer, pair: tuple[str, str], zxid: int, eventually: Eventually) -> None:
    for topic in pair:
        one.reads(topic, {0: one.agent.owner}, zxid)
    eventually(lambda: all(one.readable(topic) for topic in pair), 60, "taken up")


def test_batch_of_one_topic_commits_both_offsets(
    consumer: Make, pair: tuple[str, str], group: GroupOffsets, eventually: Eventually
) -> None:
    one, (first, second) = consumer("one"), pair
    take_up(one, pair, 1, eventually)
    assert {at[1] for at in positions(group, pair).values()} == {1}
    one.done(first, one.compute(first, one.plan_all({first: 10, second: 0}), {b"a": b"1"}))
    eventually(lambda: positions(group, pair) == {first: (10, 2, ""), second: (0, 2, "")}, 60, "committed")
    eventually(lambda: one.readable(second), 60, "on")
    one.done(first, one.compute(first, one.plan_all({first: 10, second: 7}), {b"a": b"2"}))
    eventually(lambda: positions(group, pair) == {first: (10, 3, ""), second: (7, 3, "")}, 60, "committed")
    eventually(lambda: one.state(first) == {b"a": b"2"}, 60, "in the store")


def test_next_owner_waits_for_both_topics_and_is_named(
    consumer: Make, pair: tuple[str, str], group: GroupOffsets, eventually: Eventually
) -> None:
    one, two, (first, second) = consumer("one"), consumer("two"), pair
    take_up(one, pair, 1, eventually)
    one.done(first, one.compute(first, one.plan_all({first: 10, second: 5}), {b"a": b"1"}))
    one.reads(second, {0: "two"}, 2)
    two.reads(second, {0: "two"}, 2)
    eventually(lambda: one.offered() == set(), 60, "closed as a whole")
    one.plan_all({})
    eventually(lambda: one.agent.view().topics[first].running == {0}, 60, "given to it still")
    said = (
        f"topic {second!r}, partition 0 waits, because it shares its state with topic {first!r}, partition 0"
    )
    eventually(lambda: said in two.errors().get(f"state {second} [0]", ""), 60, "named")
    assert two.offered() == set()
    assert {at[0] for at in positions(group, pair).values()} == {10, 5}, "nothing is claimed or lost"
    for consumer_ in (one, two):
        consumer_.reads(first, {0: "two"}, 3)
    eventually(lambda: all(two.readable(topic) for topic in pair), 60, "taken up as a whole")
    assert two.state(first) == {b"a": b"1"}
    assert f"state {second} [0]" not in two.errors()
    two.done(first, two.compute(first, two.plan_all({first: 20, second: 9}), {b"a": b"2"}))
    eventually(lambda: positions(group, pair)[second][0] == 9, 60, "committed")


def test_letter_of_one_topic_goes_with_both_offsets(
    consumer: Make, pair: tuple[str, str], kafka: KafkaSettings, group: GroupOffsets, eventually: Eventually
) -> None:
    letters, (first, second) = make_topic(kafka, 1), pair
    one = consumer("one", dead_letter_topic=letters)
    take_up(one, pair, 1, eventually)
    plan, computed = one.compute(first, one.plan_all({first: 10, second: 5}), {b"a": b"1"})
    one.states.computed({(first, 0): computed})
    one.agent.batch_done(plan, None, {(second, 0): {3: "ValueError: no date"}})
    eventually(lambda: positions(group, pair) == {first: (10, 2, ""), second: (5, 2, "")}, 60, "committed")
    assert len(committed_records(kafka, letters)) == 1
    eventually(lambda: one.readable(first) and one.state(first) == {b"a": b"1"}, 60, "goes on")


def test_seek_waits_until_both_topics_have_it(
    consumer: Make, pair: tuple[str, str], group: GroupOffsets, eventually: Eventually
) -> None:
    one, (first, second) = consumer("one"), pair
    take_up(one, pair, 1, eventually)
    one.done(first, one.compute(first, one.plan_all({first: 10, second: 5}), {b"a": b"1"}))
    eventually(lambda: one.readable(first), 60, "committed")
    seek = Seek("s1", 0, 7, SeekState.REBUILD)
    one.reads(first, {0: "one"}, 2, seeks={0: seek})
    assert one.agent.offer(one._token).seeks == {}
    one.reads(second, {0: "one"}, 2, seeks={0: seek})
    assert one.agent.offer(one._token).seeks.keys() == {(first, 0), (second, 0)}
    one.agent.batch_done(one.plan_all(dict.fromkeys(pair, 0), dict.fromkeys(pair, seek)), None)
    eventually(lambda: {at[::2] for at in positions(group, pair).values()} == {(0, "s1")}, 60, "moved")
    eventually(lambda: one.readable(first) and one.state(first) == {}, 60, "emptied once")


def test_topics_that_are_not_co_partitioned_are_not_read(
    consumer: Make, pair: tuple[str, str], kafka: KafkaSettings, eventually: Eventually
) -> None:
    first, second = pair
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(second, 3)])[second].result(30)
    one = consumer("one")
    for topic in pair:
        one.reads(topic, {0: "one"}, 1)
    said = f"not co-partitioned: of their partitions {first!r} has 1, {second!r} has 3"
    eventually(lambda: said in one.errors().get(f"state {first} [0]", ""), 60, "named")
    assert one.offered() == set()
