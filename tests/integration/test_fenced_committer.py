"""Two consumers' agents and committers on a real Kafka, one of which does not know that it was replaced."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from devstack.jars import jars, java
from devstack.kafka import Kafka
from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.status_page import make_status_page
from muster.core.model import TopicAssignment
from muster.core.ownership import BatchPlan
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.consumer_settings import consumer_settings
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)


class Consumer:
    """A consumer without Spark: what its planner and its handler would do, the test does."""

    def __init__(self, name: str, kafka: KafkaSettings, group: GroupOffsets, fencing: bool) -> None:
        self.agent = Agent(name, fencing=fencing)
        self.committer = Committer(self.agent, kafka, "c", fencing)
        self._kafka = kafka
        self._group = group
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}
        self._token = self.agent.query_started()
        self._thread = threading.Thread(target=self.committer.run, args=(lambda: None,), daemon=True)
        self._thread.start()

    def reads(self, topic: str, owners: dict[int, str], zxid: int) -> None:
        node = TopicAssignment(self._kafka.bootstrap_servers, self._group.group_id, owners, zxid)
        self.agent.assigned(topic, node, zxid)

    def offered(self) -> set[int]:
        return {p for topic in self.agent.offer(self._token).topics.values() for p in topic.partitions}

    def plan(self, topic: str, upto: dict[int, int]) -> BatchPlan:
        """Plan a batch up to these offsets, of what is offered, and begin it."""
        offer = self.agent.offer(self._token)
        partitions = offer.topics[topic].partitions if topic in offer.topics else frozenset()
        held = self._ends.get(topic, {})
        committed = self._group.committed([(topic, p) for p in partitions if p not in held])
        ranges = {}
        for number in sorted(partitions):
            begin = held[number][1] if number in held else committed[topic, number] or 0
            ranges[number] = (begin, max(begin, upto.get(number, begin)))
        after = {topic: ranges} if ranges else {}
        self.agent.planned(self._token, offer.asked, self._ends, after, {}, [])
        self._ends = after
        return self.agent.batch_started()

    def batch(self, topic: str, upto: dict[int, int]) -> None:
        self.agent.batch_done(self.plan(topic, upto), None)

    def status(self, topic: str) -> dict[str, object]:
        settings = consumer_settings(consumer=self.agent.owner, kafka=self._kafka)
        answer = TestClient(make_status_page(self.agent, settings, list)).get("/status").json()
        return {**answer["topics"][topic], "errors": answer["errors"], "refused": answer["refused_commits"]}

    def close(self) -> None:
        self.committer.stop()
        self._thread.join(10)


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


@pytest.fixture
def group(kafka: KafkaSettings) -> Iterator[GroupOffsets]:
    made = GroupOffsets(kafka, f"g-{uuid4().hex[:8]}")
    yield made
    made.close()


def test_offset_that_kafkas_own_tool_sets_is_noticed_and_the_position_of_the_owner_stands(
    kafka: KafkaSettings,
    kafka_server: Kafka,
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
        subprocess.run(
            [
                *(java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"),
                "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                *("--bootstrap-server", kafka_server.address, "--group", group.group_id),
                *("--topic", f"{topic}:0", "--reset-offsets", "--to-earliest", "--execute"),
            ],
            check=True,
            capture_output=True,
        )

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
    number = old.agent.reading_wanted()
    assert number is not None
    old.reads(topic, {0: "new", 1: "old"}, 2)
    old.agent.has_read(number)
    eventually(lambda: not old.agent.is_registered(time.monotonic()) and not old.status(topic)["errors"])
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
        owner.agent.is_registered(time.monotonic())
        owner.agent.has_read(owner.agent.reading_wanted() or 0)
        return owner.offered() == {0}

    eventually(confirmed, 60, "still assigned and registered, so taken up again")
    owner.batch(topic, {0: 60})
    eventually(lambda: committed() == 60, 60, "from where the zombie stopped")
    assert owner.status(topic)["errors"] == []


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
