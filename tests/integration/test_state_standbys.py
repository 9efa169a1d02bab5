"""Standbys of shards on a real Kafka: they follow the changelog, say how far they are, and take over in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.consumer.state import stores as stores_module
from muster.core.copies import ShardCopy, Warmth
from muster.core.model import Seek, SeekState
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.state_query import begin_at_the_first_record
from tests.support.stateful_consumer import Make, StatefulConsumer, made

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def consumer(kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path) -> Iterator[Make]:
    with made(kafka, group, tmp_path) as make:
        yield make


@pytest.fixture
def topic(kafka: KafkaSettings, group: GroupOffsets) -> str:
    name = make_topic(kafka, 1)
    produce(kafka, name, 0, 100)
    begin_at_the_first_record(group, name, 1)
    return name


def start(one: StatefulConsumer, topic: str, eventually: Eventually, zxid: int = 1) -> None:
    one.reads(topic, {0: one.agent.owner}, zxid, standbys={0: ("two",)} if one.agent.owner == "one" else None)
    eventually(lambda: one.readable(topic), 60, "taken up")


def process(
    one: StatefulConsumer, topic: str, eventually: Eventually, upto: int, changes: dict[bytes, bytes | None]
) -> int:
    """Return where the changelog ends after it."""
    one.batch(topic, upto, changes)
    eventually(lambda: one.states.status()[topic, 0].offset == upto, 60, "committed")
    return one.states._shards[topic, 0].mark.upto


def at_end(one: StatefulConsumer, topic: str, end: int) -> bool:
    copy = one.states.copies().get((topic, 0))
    return copy is not None and (copy.position, copy.end, copy.followed) == (end, end, True)


def found(one: StatefulConsumer, topic: str) -> ShardCopy:
    return one.states.copies().get((topic, 0), ShardCopy(0))


def test_standby_follows_and_restores_the_tail_alone(
    topic: str, consumer: Make, eventually: Eventually
) -> None:
    one, two = consumer("one"), consumer("two")
    start(one, topic, eventually)
    process(one, topic, eventually, 10, {f"k{n}".encode(): b"1" for n in range(5_000)})
    two.reads(topic, {0: "one"}, 1, standbys={0: ("two",)})
    end = process(one, topic, eventually, 20, {b"a": b"2"})
    eventually(lambda: at_end(two, topic, end), 60, "at the end")
    end = process(one, topic, eventually, 30, {b"a": b"3", b"k0": None})
    eventually(lambda: at_end(two, topic, end), 60, "at the end again")
    copy = two.states.copies()[topic, 0]
    assert copy.warmth is Warmth.WARM
    assert copy.rate > 0
    read = two.restored()
    one.reads(topic, {0: "two"}, 2)
    start(two, topic, eventually, 2)
    assert max(total or 0 for _, total in read) <= 2, "an abort marker of the claim at most"
    state = two.state(topic)
    assert (len(state), state[b"a"]) == (5_000, b"3")
    process(two, topic, eventually, 40, {b"a": b"4"})


def test_disk_is_reported_before_anything_is_assigned(
    topic: str, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    start(one, topic, eventually)
    end = process(one, topic, eventually, 10, {b"a": b"1"})
    one.close()
    again = consumer("one")
    again.reads(topic, {}, 1)  # the topic is known, and nobody has it
    eventually(lambda: found(again, topic).end is not None, 60, "found")
    copy = again.states.copies()[topic, 0]
    assert (copy.position, copy.lag, copy.followed, copy.warmth) == (end, 0, False, Warmth.WARM)
    assert copy.bytes > 0


def test_standby_begins_again_after_a_seek(topic: str, consumer: Make, eventually: Eventually) -> None:
    one, two = consumer("one"), consumer("two")
    start(one, topic, eventually)
    two.reads(topic, {0: "one"}, 1, standbys={0: ("two",)})
    end = process(one, topic, eventually, 10, {b"a": b"1"})
    eventually(lambda: at_end(two, topic, end), 60, "at the end")
    seek = Seek("again", 0, state=SeekState.AGAIN)
    one.reads(topic, {0: "one"}, 2, {0: seek}, {0: ("two",)})
    eventually(lambda: one.readable(topic), 60, "may be planned")
    plan = one.plan(topic, 0, seek)
    one.agent.batch_done(plan, None)
    eventually(lambda: one.states.status()[topic, 0].offset == 0, 60, "sought")
    end = process(one, topic, eventually, 20, {b"a": b"2"})
    eventually(lambda: at_end(two, topic, end), 60, "at the end again")
    one.reads(topic, {0: "two"}, 3)
    start(two, topic, eventually, 3)
    assert two.state(topic) == {b"a": b"2"}


def test_store_of_a_shard_that_went_is_removed_later(
    topic: str, consumer: Make, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = consumer("one"), consumer("two")
    start(one, topic, eventually)
    two.reads(topic, {0: "one"}, 1, standbys={0: ("two",)})
    end = process(one, topic, eventually, 10, {b"a": b"1"})
    eventually(lambda: at_end(two, topic, end), 60, "at the end")
    two.reads(topic, {0: "one"}, 2)
    eventually(lambda: not two.states.copies()[topic, 0].followed, 60, "not followed")
    file = two.states.stores.folder((topic, 0)) / "data.mdb"
    two.states.stores.tidy()
    assert file.exists()
    monkeypatch.setattr(stores_module, "KEPT", -1.0)
    two.states.stores.tidy()
    assert not file.exists()
    assert (topic, 0) not in two.states.copies()
    assert one.states.copies()[topic, 0].followed, "it runs, and stays"
