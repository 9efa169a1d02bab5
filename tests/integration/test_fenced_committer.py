"""Two consumers' agents and committers on a real Kafka, one of which does not know that it was replaced."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.jars import jars, java
from devstack.kafka import Kafka
from muster.consumer.committer import COMMITS_LOOK
from muster.core.ownership import PlanRefusedError
from muster.edges.kafka import GroupOffsets, TopicLister
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.committing_consumer import Consumer
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long

pytestmark = pytest.mark.timeout(300)

DELETED = pytest.mark.parametrize(
    ("consumer", "what"),
    [
        pytest.param(True, "the group", id="fencing-the group"),
        pytest.param(False, "one offset", id="epoch guard-one offset"),
        pytest.param(True, "one offset", id="fencing-one offset", marks=only_long),
        pytest.param(False, "the group", id="epoch guard-the group", marks=only_long),
    ],
    indirect=["consumer"],
)
"""Each kind of commit and each deletion once; with LONG=1 all pairs."""


@pytest.fixture(params=[True, False], ids=["fencing", "epoch guard"])
def consumer(
    request: pytest.FixtureRequest, kafka: KafkaSettings, group: GroupOffsets
) -> Iterator[Callable[[str], Consumer]]:
    made: list[Consumer] = []

    def make(name: str) -> Consumer:
        made.append(Consumer(name, kafka, group, request.param))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    "consumer",
    [pytest.param(True, id="fencing"), pytest.param(False, id="epoch guard", marks=only_long)],
    indirect=True,
)
def test_offset_that_kafkas_own_tool_sets_is_noticed_and_the_position_of_the_owner_stands(
    kafka: KafkaSettings,
    group: GroupOffsets,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
) -> None:
    topic = make_topic(kafka, 2)
    one = consumer("one")

    def committed(*wanted: int) -> bool:
        found = group.committed([(topic, n) for n in range(2)])
        return tuple(found[topic, n] for n in range(2)) == wanted

    def reset() -> None:
        tool(kafka, group, "--topic", f"{topic}:0", "--reset-offsets", "--to-earliest", "--execute")

    def noticed(times: int) -> bool:
        return one.agent.view().counters.foreign_commits >= times

    one.reads(topic, {0: "one", 1: "one"}, 1)
    eventually(lambda: one.offered() == {0, 1}, 60, "claimed and offered")
    one.batch(topic, {0: 10, 1: 5})
    eventually(lambda: committed(10, 5), 60, "committed")
    assert not noticed(1)
    reset()
    eventually(lambda: noticed(1), 180, "noticed while nothing arrives")
    (error,) = one.status(topic)["errors"]  # type: ignore[misc]
    assert f"offset {topic} [0]: its committed offset was set to 0 by another program" in error
    assert "goes on at 10 and commits that again" in error
    eventually(lambda: committed(10, 5), 60, "committed again")
    before = one.agent.view().counters.foreign_commits
    reset()
    one.batch(topic, {0: 20})
    eventually(lambda: committed(20, 5), 60, "its own commit stands")
    assert noticed(before + 1), "noticed before the commit that replaces it"


def test_replaced_consumer_without_news_takes_back_neither_offsets_nor_partitions(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    topic = make_topic(kafka, 2)
    old, new = consumer("old"), consumer("new")

    def committed(*wanted: int) -> bool:
        found = group.committed([(topic, n) for n in range(2)])
        return tuple(found[topic, n] for n in range(2)) == wanted

    old.reads(topic, {0: "old", 1: "old"}, 1)
    eventually(lambda: old.offered() == {0, 1}, 60, "claimed and offered")
    old.batch(topic, {0: 10, 1: 5})
    eventually(lambda: committed(10, 5), 60, "committed")
    late = old.plan(topic, {0: 20, 1: 6})

    # From here on `old` hears nothing of ZooKeeper.
    new.reads(topic, {0: "new", 1: "old"}, 2)
    eventually(lambda: new.offered() == {0}, 60, "taken over")
    new.batch(topic, {0: 30})
    eventually(lambda: committed(30, 5), 60, "the new one has committed")

    old.agent.batch_done(late, None)
    eventually(lambda: old.status(topic)["refused"] == 1, 60, "refused")
    eventually(lambda: committed(30, 6), 60, "the other partition goes on, this one has not gone back")
    old.batch(topic, {1: 7})  # planned without it, so it is closed
    eventually(lambda: committed(30, 7), 60, "and on")
    shown = old.status(topic)
    assert (shown["running"], shown["starting"], shown["closing"]) == ([1], [], [])
    assert "refused" in str(shown["fenced"]["0"])  # type: ignore[index]
    assert any(f"topic '{topic}', partition 0: commit of offset 20 refused" in e for e in shown["errors"])  # type: ignore[attr-defined]
    assert old.offered() == {1}, (
        "what it knows of ZooKeeper still names it, but may be older than the refusal"
    )

    # ZooKeeper is within reach again, and names the other one.
    number = old.agent.blocks.reading_wanted()
    assert number is not None
    old.reads(topic, {0: "new", 1: "old"}, 2)
    old.agent.blocks.has_read(number)
    eventually(
        lambda: not old.agent.blocks.is_registered(time.monotonic()) and not old.status(topic)["errors"]
    )
    assert old.offered() == {1}
    new.batch(topic, {0: 40})
    eventually(lambda: committed(40, 7), 60, "the new one was never disturbed")
    assert new.status(topic)["refused"] == 0


def test_owner_fenced_by_a_zombie_gets_its_partition_back(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    topic = make_topic(kafka, 1)
    owner, zombie = consumer("owner"), consumer("zombie")

    def committed() -> int | None:
        return group.committed([(topic, 0)])[topic, 0]

    owner.reads(topic, {0: "owner"}, 2)
    eventually(lambda: owner.offered() == {0}, 60, "claimed")
    owner.batch(topic, {0: 10})
    eventually(lambda: committed() == 10, 60, "committed")
    # An assignment that is long over reaches somebody who slept.
    zombie.reads(topic, {0: "zombie"}, 1)
    eventually(lambda: zombie.offered() == {0}, 60, "claimed by the zombie")
    zombie.batch(topic, {0: 50})
    eventually(lambda: committed() == 50, 60, "its records are processed, so its offset is as good as any")
    owner.batch(topic, {0: 20})
    eventually(lambda: owner.status(topic)["refused"] == 1, 60, "the owner is refused")
    zombie.reads(topic, {0: "owner"}, 2)
    zombie.batch(topic, {})
    owner.batch(topic, {})
    assert owner.offered() == set()

    def confirmed() -> bool:
        owner.agent.blocks.is_registered(time.monotonic())
        owner.agent.blocks.has_read(owner.agent.blocks.reading_wanted() or 0)
        return owner.offered() == {0}

    eventually(confirmed, 60, "still assigned and registered, so taken up again")
    owner.batch(topic, {0: 60})
    eventually(lambda: committed() == 60, 60, "from where the zombie stopped")
    assert owner.status(topic)["errors"] == []


@only_long
def test_a_claim_at_a_frozen_broker_keeps_its_partition_closing_until_it_has_ended(
    tmp_path: Path, eventually: Eventually
) -> None:
    server = Kafka(tmp_path / "kafka", guarded=True)
    server.start(240)
    settings = KafkaSettings(config={"bootstrap.servers": server.address}, operation_timeout=3.0)
    group = GroupOffsets(settings, "g")
    one = Consumer("one", settings, group, fencing=True)
    try:
        topic = make_topic(settings, 3)
        one.reads(topic, {0: "one"}, 1)
        eventually(lambda: one.offered() == {0}, 60, "claimed")
        server.pause()
        one.reads(topic, {0: "one", 1: "one", 2: "one"}, 2)
        eventually(lambda: "no answer in time" in str(one.status(topic)["errors"]), 30, "under way")
        one.reads(topic, {0: "one"}, 3)
        eventually(lambda: not one.status(topic)["closing"], 30, "ended, and let go of")
        assert set(one.committer._places.popitem()[1]._claims) == {(topic, 0)}
        server.resume()
        newer = FencedCommits(settings, "c", group)
        eventually(lambda: not newer.claim([(topic, 1)]).failed, 60, "the next owner")
        eventually(lambda: newer.commit({(topic, 1): 5}).done, 60, "commits, and is not fenced off")
        newer.close()
    finally:
        one.close()
        group.close()
        server.resume()
        server.stop()


@DELETED
def test_offset_that_an_admin_deletes_is_committed_again(
    what: str,
    kafka: KafkaSettings,
    group: GroupOffsets,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
) -> None:
    topic = make_topic(kafka, 2)
    one = consumer("one")
    committed = partial(offsets_of, group, topic)
    take_up(one, kafka, topic, eventually)
    one.batch(topic, {0: 10, 1: 5})
    eventually(lambda: committed() == (10, 5), 60, "committed")
    delete(kafka, group, topic, what)
    assert committed()[0] is None
    eventually(lambda: committed() == (10, 5), 2 * COMMITS_LOOK + 10, "committed again")
    errors = " ".join(map(str, one.status(topic)["errors"]))  # type: ignore[call-overload]
    assert f"offset {topic} [0]: its committed offset was deleted from group '{group.group_id}'" in errors
    assert "this consumer goes on at 10 and commits that again" in errors
    assert one.agent.view().counters.foreign_commits == (2 if what == "the group" else 1)


@DELETED
def test_next_owner_begins_where_the_last_one_ended_though_its_offset_was_deleted(
    what: str,
    kafka: KafkaSettings,
    group: GroupOffsets,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
) -> None:
    topic = make_topic(kafka, 2)
    one, two = consumer("one"), consumer("two")
    take_up(one, kafka, topic, eventually)
    one.batch(topic, {0: 10, 1: 5})
    eventually(lambda: offsets_of(group, topic) == (10, 5), 60, "committed")
    delete(kafka, group, topic, what)
    one.reads(topic, {1: "one"}, 2, topic_id=id_of(kafka, topic))
    one.batch(topic, {1: 5})
    eventually(
        lambda: one.status(topic)["closing"] == [], COMMITS_LOOK / 2, "closed, without a wait for its turn"
    )
    two.reads(topic, {0: "two", 1: "one"}, 3, topic_id=id_of(kafka, topic))
    eventually(lambda: two.offered() == {0}, 60, "taken up")
    assert two.plan(topic, {0: 12}).offsets == {topic: {0: (10, 12)}}


def test_offset_of_a_topic_that_was_created_again_is_not_committed_for_it(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    topic = make_topic(kafka, 2)
    one = consumer("one")
    take_up(one, kafka, topic, eventually)
    one.batch(topic, {0: 10, 1: 5})
    eventually(lambda: offsets_of(group, topic) == (10, 5), 60, "committed")
    admin = AdminClient(dict(kafka.config))
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, 60, "deleted")
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    eventually(lambda: "was deleted and created again" in str(one.status(topic)["errors"]), 60, "noticed")
    one.reads(topic, {}, 2, topic_id=id_of(kafka, topic))
    with suppress(PlanRefusedError):
        one.batch(topic, {})
    eventually(lambda: one.status(topic)["closing"] == [], 30, "closed")
    assert offsets_of(group, topic) == (None, None)
    assert one.agent.view().counters.foreign_commits == 0


def take_up(one: Consumer, kafka: KafkaSettings, topic: str, eventually: Eventually) -> None:
    one.reads(topic, {0: "one", 1: "one"}, 1, topic_id=id_of(kafka, topic))
    eventually(lambda: one.offered() == {0, 1}, 60, "claimed and offered")


def id_of(kafka: KafkaSettings, topic: str) -> str:
    return TopicLister(kafka).topic_ids([topic])[topic]


def offsets_of(group: GroupOffsets, topic: str) -> tuple[int | None, ...]:
    found = group.committed([(topic, n) for n in range(2)])
    return tuple(found[topic, n] for n in range(2))


def delete(kafka: KafkaSettings, group: GroupOffsets, topic: str, what: str) -> None:
    if what == "the group":
        admin = AdminClient(dict(kafka.config))
        admin.delete_consumer_groups([group.group_id])[group.group_id].result(60)
    else:
        tool(kafka, group, "--topic", f"{topic}:0", "--delete-offsets")


def tool(kafka: KafkaSettings, group: GroupOffsets, *arguments: str) -> None:
    """Run kafka-consumer-groups."""
    subprocess.run(
        [
            *(java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", kafka.bootstrap_servers, "--group", group.group_id, *arguments),
        ],
        check=True,
        capture_output=True,
    )
