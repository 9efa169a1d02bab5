"""State by key on a real Kafka: changes, position, output and offset are one commit, where an owner begins."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from muster.consumer.state.position import KEY, Place, Position
from muster.core.model import Seek, SeekState
from muster.core.positions import Note, parse_stamp
from muster.edges.dead_letters import ToWrite
from muster.edges.kafka import GroupOffsets
from muster.edges.state_changelog import ChangelogReader, changelog_topic, last_value
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long
from tests.support.state_query import begin_at_the_first_record
from tests.support.stateful_consumer import CLUSTER, GENERATION, Make, StatefulConsumer, made

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def consumer(kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path) -> Iterator[Make]:
    with made(kafka, group, tmp_path) as make:
        yield make


@pytest.fixture
def topic(kafka: KafkaSettings, group: GroupOffsets) -> str:
    """A topic with one partition, which the group begins at its first record."""
    name = make_topic(kafka, 1)
    produce(kafka, name, 0, 100)
    begin_at_the_first_record(group, name, 1)
    return name


class World:
    """What Kafka has of a topic's state."""

    def __init__(self, kafka: KafkaSettings, group: GroupOffsets, topic: str) -> None:
        self.kafka, self.group, self.topic = kafka, group, topic

    def log(self) -> list[tuple[bytes, bytes | None]]:
        reader = ChangelogReader(self.kafka, "look", changelog_topic(CLUSTER, self.topic), 0)
        with closing(reader):
            return [record for read in reader.read(0) for record in read.records]

    def state(self) -> dict[bytes, bytes]:
        there = dict(self.log())
        there.pop(KEY, None)
        return {key[4:]: value for key, value in there.items() if value is not None}

    def position(self) -> Position | None:
        text = dict(self.log()).get(KEY)
        return None if text is None else Position.of(text)

    def committed(self) -> tuple[int, int, str] | None:
        found = self.group.positions([(self.topic, 0)])[self.topic, 0]
        stamp = None if found is None else parse_stamp(found.metadata)
        return None if found is None or stamp is None else (found.offset, stamp.seq, stamp.note.sought)

    def agrees(self, offset: int) -> bool:
        found = self.position()
        if found is None:
            return False
        place = found.places[self.topic]
        return (place.offset, found.seq, place.move) == self.committed() and place.offset == offset

    def values(self, topic: str) -> list[bytes | None]:
        """The records of another topic that a reader of committed records sees."""
        settings = {
            **self.kafka.config,
            "group.id": "look",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        with closing(KafkaConsumer(settings)) as reader:
            reader.assign([KafkaPartition(topic, 0, 0)])
            found: list[bytes | None] = []
            while (message := reader.poll(30)) is not None and message.error() is None:
                found.append(message.value())
            return found


@pytest.fixture
def world(kafka: KafkaSettings, group: GroupOffsets, topic: str) -> World:
    return World(kafka, group, topic)


def start(one: StatefulConsumer, world: World, eventually: Eventually, zxid: int = 1) -> None:
    one.reads(world.topic, {0: one.agent.owner}, zxid)
    eventually(lambda: one.readable(world.topic), 60, "taken up")


def process(
    one: StatefulConsumer, world: World, eventually: Eventually, upto: int, changes: dict[bytes, bytes | None]
) -> None:
    one.batch(world.topic, upto, changes)
    eventually(lambda: one.readable(world.topic) and world.agrees(upto), 60, "committed")


def test_batch_changes_store_changelog_and_group_together(
    world: World, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1", b"b": b"2"})
    process(one, world, eventually, 20, {b"a": b"3", b"b": None})
    assert one.state(world.topic) == world.state() == {b"a": b"3"}
    position = world.position()
    assert position is not None
    assert position.seq == 3, "one when it was taken up, and one a batch"
    assert position.time > 0


def test_state_is_shown_while_it_runs_and_is_restored(
    world: World, consumer: Make, eventually: Eventually
) -> None:
    tp = (world.topic, 0)
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1", b"b": b"2"})
    process(one, world, eventually, 20, {b"a": b"3", b"b": None})
    found = one.states.status()[tp]
    assert (found.keys, found.offset, found.commit) == (1, 20, 3)
    assert found.bytes > 0
    two = consumer("two")
    read = two.restored()
    one.reads(world.topic, {0: "two"}, 2)
    start(two, world, eventually, 2)
    end = two.states._shards[tp].mark.upto
    assert read[0][0] == 0
    assert read[-1] == (read[-1][1], read[-1][1])
    assert read[-1][1] in {end, end - 2}, "all that was there at the claim"
    eventually(lambda: two.states.status()[tp].commit == 4, 60, "its first commit")
    assert two.states.status()[tp].keys == 1


def test_output_is_seen_once_with_its_batch(
    world: World, kafka: KafkaSettings, consumer: Make, eventually: Eventually
) -> None:
    to, one = make_topic(kafka, 1), consumer("one")
    start(one, world, eventually)
    one.batch(world.topic, 10, {b"a": b"1"}, (ToWrite(to, b"k", b"v", ()),))
    eventually(lambda: world.agrees(10), 60, "committed")
    assert world.values(to) == [b"v"]


def test_next_owner_with_no_store_restores_it(world: World, consumer: Make, eventually: Eventually) -> None:
    one, two = consumer("one"), consumer("two")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1", b"b": b"2", b"long" * 200: b"3"})
    process(one, world, eventually, 20, {b"b": None})
    one.reads(world.topic, {0: "two"}, 2)
    eventually(lambda: one.offered() == set(), 60, "closed")
    start(two, world, eventually, 2)
    assert two.state(world.topic) == {b"a": b"1", b"long" * 200: b"3"}
    process(two, world, eventually, 30, {b"c": b"4"})


@pytest.mark.parametrize("records", [0, 1])
def test_shard_with_so_few_records_is_restored(
    world: World, consumer: Make, eventually: Eventually, records: int
) -> None:
    one, two = consumer("one"), consumer("two")
    start(one, world, eventually)
    if records:
        process(one, world, eventually, 10, {b"a": b"1"})
    two.reads(world.topic, {0: "two"}, 2)
    eventually(lambda: two.readable(world.topic), 60, "taken up")
    assert two.state(world.topic) == ({b"a": b"1"} if records else {})


def test_restarted_owner_reads_only_what_its_store_lacks(
    world: World, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {str(n).encode(): b"1" for n in range(1000)})
    one.close()
    again = consumer("one")
    read = again.restored()
    start(again, world, eventually, 2)
    assert read == [(0, 0)]
    assert len(again.state(world.topic)) == 1000


def test_commit_of_a_zombie_changes_nothing(
    world: World, kafka: KafkaSettings, consumer: Make, eventually: Eventually
) -> None:
    to = make_topic(kafka, 1)
    old, new, newest = consumer("old", confirms=False), consumer("new"), consumer("newest")
    start(old, world, eventually)
    process(old, world, eventually, 10, {b"a": b"1"})
    output = (ToWrite(to, b"k", b"of a zombie", ()),)
    late = old.compute(world.topic, old.plan(world.topic, 20), {b"a": b"zombie", b"z": b"z"}, output)
    start(new, world, eventually, 2)  # of which `old` hears nothing
    process(new, world, eventually, 15, {b"a": b"2"})
    start(newest, world, eventually, 3)
    old.done(world.topic, late)
    eventually(lambda: old.agent.view().counters.refused_commits == 1, 60, "refused")
    process(newest, world, eventually, 20, {b"a": b"3"})
    assert world.state() == newest.state(world.topic) == {b"a": b"3"}


@pytest.mark.parametrize(
    ("seek", "state"),
    [
        (Seek("s1", 10, state=SeekState.AGAIN), {b"a": b"1"}),
        (Seek("s1", 4, state=SeekState.SKIP), {b"a": b"1"}),
        (Seek("s1", 0, 1_764_000_000, SeekState.REBUILD), {}),
    ],
    ids=["back", "the group's", "rebuild"],
)
def test_position_that_differs_waits_for_a_choice(
    world: World,
    group: GroupOffsets,
    kafka: KafkaSettings,
    consumer: Make,
    eventually: Eventually,
    seek: Seek,
    state: dict[bytes, bytes],
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1"})
    one.close()
    group.commit({(world.topic, 0): 4}, {})
    two = consumer("two")
    two.reads(world.topic, {0: "two"}, 2)
    key = f"state {world.topic} [0]"
    eventually(lambda: key in two.errors(), 60, "named")
    said = two.errors()[key]
    assert "is at offset 10, commit 2; the group is at offset 4, commit without state" in said
    assert "muster seek --to=changelog --state=again" in said
    assert "--to=committed" in said
    assert "--state=rebuild" in said
    changelog = changelog_topic(CLUSTER, world.topic)
    text = last_value(kafka, "look", changelog, 0, KEY)
    assert text is not None
    assert Position.of(text).places[world.topic].offset == 10, "which --to=changelog takes"
    assert two.states.status()[world.topic, 0].differs in said
    assert not two.readable(world.topic)
    two.reads(world.topic, {0: "two"}, 3, seeks={0: seek})
    eventually(lambda: two.offered() == {0}, 60, "offered for the seek")
    move(two, world, eventually, seek)
    assert two.state(world.topic) == state
    process(two, world, eventually, 20, {b"a": b"2"})
    assert world.committed() == (20, 4, "s1")


def move(one: StatefulConsumer, world: World, eventually: Eventually, seek: Seek) -> Place:
    """Carry a seek out; returns where changelog and group are."""
    one.agent.batch_done(one.plan(world.topic, 0, seek), None)
    eventually(lambda: one.readable(world.topic) and world.agrees(seek.offset), 60, "moved")
    position = world.position()
    assert position is not None
    return position.places[world.topic]


def test_seeks_move_both_positions_and_a_rebuild_empties(
    world: World, group: GroupOffsets, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 30, {b"a": b"1"})
    skip = move(one, world, eventually, Seek("s1", 5, state=SeekState.SKIP))
    assert (skip.offset, skip.done, skip.move) == (5, 30, "s1")
    again = move(one, world, eventually, Seek("s2", 7, state=SeekState.AGAIN))
    assert (again.offset, again.done) == (7, 0)
    assert one.state(world.topic) == {b"a": b"1"}
    number = 1_764_000_000
    move(one, world, eventually, Seek("s3", 0, number, SeekState.REBUILD))
    assert (rebuilt := world.position()) is not None
    assert rebuilt.rebuild == number
    assert one.state(world.topic) == {}
    assert world.state() == {}, "what is read no more is deleted"
    process(one, world, eventually, 10, {b"b": b"1"})
    one.reads(world.topic, {0: "two"}, 2)
    eventually(lambda: one.offered() == set(), 60, "closed")
    two = consumer("two")
    start(two, world, eventually, 2)
    assert two.state(world.topic) == {b"b": b"1"}
    found = group.positions([(world.topic, 0)])[world.topic, 0]
    assert found is not None
    assert parse_stamp(found.metadata).note == Note("s3", rebuild=number)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "harm",
    [
        "wiped",
        "torn",
        "older",
        *(pytest.param(harm, marks=only_long) for harm in ("newer", "of another boot", "too old")),
    ],
)
def test_store_that_is_not_to_be_trusted_is_restored(
    world: World, consumer: Make, eventually: Eventually, tmp_path: Path, harm: str
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1", b"b": b"1"})
    store = tmp_path / "one" / CLUSTER / "one" / world.topic / "0"
    one.close()
    shutil.copytree(store, tmp_path / "older")
    two = consumer("one")
    start(two, world, eventually, 2)
    process(two, world, eventually, 20, {b"a": b"2", b"b": None})
    two.close()
    do_harm(harm, store, tmp_path / "older")
    three = consumer("one")
    if harm == "too old":
        three.states.wall = lambda: 1e11
    start(three, world, eventually, 3)
    assert three.state(world.topic) == {b"a": b"2"}
    process(three, world, eventually, 30, {b"a": b"3"})


def do_harm(harm: str, store: Path, older: Path) -> None:
    data = store / "data.mdb"
    if harm == "wiped":
        shutil.rmtree(store)
    elif harm == "torn":
        data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    elif harm == "older":
        shutil.rmtree(store)
        shutil.copytree(older, store)
    elif harm in {"newer", "of another boot"}:
        with lmdb.open(str(store), map_size=1 << 30) as environment, environment.begin(write=True) as txn:
            mark = json.loads(txn.get(b"\x00meta"))
            mark |= {"upto": 10**6} if harm == "newer" else {"boot": "before"}
            txn.put(b"\x00meta", json.dumps(mark).encode())
            txn.put(b"\x01" + GENERATION + b"x", b"\x00of nobody")


def test_clock_far_ahead_sets_no_processing_time(
    world: World, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    one.states.wall = lambda: time.time() + 10**7
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1"})
    position = world.position()
    assert position is not None
    assert abs(position.time / 1000 - time.time()) < 3600, "it goes by the broker's clock"


def test_compacted_changelog_restores_the_same_state(
    world: World, kafka: KafkaSettings, consumer: Make, eventually: Eventually
) -> None:
    one, two = consumer("one"), consumer("two")
    start(one, world, eventually)
    changelog = ConfigResource(ConfigResource.Type.TOPIC, changelog_topic(CLUSTER, world.topic))
    for name, value in (("segment.ms", "100"), ("min.cleanable.dirty.ratio", "0.01")):
        changelog.add_incremental_config(
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        )
    admin = AdminClient(dict(kafka.config))
    admin.incremental_alter_configs([changelog])[changelog].result(30)
    for n in range(20):
        changes: dict[bytes, bytes | None] = {b"a": str(n).encode(), b"b": b"x" if n % 2 else None}
        process(one, world, eventually, 5 * (n + 1), {**changes, str(n).encode(): b"y"})
    eventually(lambda: len(world.log()) < 50, 120, "compacted, of 81 records")
    start(two, world, eventually, 2)
    assert (
        two.state(world.topic)
        == world.state()
        == {
            b"a": b"19",
            b"b": b"x",
            **{str(n).encode(): b"y" for n in range(20)},
        }
    )


def test_changelog_that_another_program_writes_to_stops_the_shard(
    world: World, kafka: KafkaSettings, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1"})
    produce_to(kafka, changelog_topic(CLUSTER, world.topic))
    one.batch(world.topic, 20, {b"a": b"2"})
    eventually(lambda: one.agent.view().counters.refused_commits == 1, 60, "refused")
    assert world.agrees(10)
    assert world.state()[b"a"] == b"1"


def produce_to(kafka: KafkaSettings, topic: str) -> None:
    producer = Producer(dict(kafka.config))
    producer.produce(topic, b"value", GENERATION + b"foreign", 0)
    assert producer.flush(30) == 0


def test_changelog_with_another_number_of_partitions_is_refused(
    world: World, kafka: KafkaSettings, consumer: Make, eventually: Eventually
) -> None:
    one = consumer("one")
    start(one, world, eventually)
    process(one, world, eventually, 10, {b"a": b"1"})
    one.close()
    admin = AdminClient(dict(kafka.config))
    admin.create_partitions([NewPartitions(world.topic, 2)])[world.topic].result(30)
    two = consumer("two")
    two.reads(world.topic, {0: "two"}, 2)
    key = f"state {world.topic} [0]"
    eventually(lambda: "it has 1 partitions, and topic" in two.errors().get(key, ""), 60, "named")
