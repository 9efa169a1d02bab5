"""Who follows changelogs: what it leaves to the owner of a store, and which problems it names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from muster.consumer.agent import Agent
from muster.consumer.state import follower as follower_module
from muster.consumer.state.follower import Follower
from muster.consumer.state.shards import States
from muster.consumer.state.store import Store
from muster.core.model import TopicAssignment, TopicPartition
from muster.core.state_topics import StateTopics
from muster.edges.kafka import KafkaError
from muster.edges.state_changelog import Read, changelog_topic
from muster.settings.connections import KafkaSettings

TP = ("t", 0)
PLACE = changelog_topic("c", "t"), 0
IDS = ("changelog", "A")
END = 100


class Tail:
    """A changelog with 100 offsets. Its next read gives what `reading` returns."""

    reading: Callable[[], tuple[dict[TopicPartition, Read], dict[TopicPartition, KafkaError]]]

    def __init__(self, *_: object) -> None: ...

    def bounds(self, _place: TopicPartition) -> tuple[int, int]:
        return 0, END

    def seen_end(self, _place: TopicPartition) -> int:
        return END

    def follow(self, _place: TopicPartition, _offset: int) -> None: ...

    def drop(self, _places: Collection[TopicPartition]) -> None: ...

    def read(
        self, _most: int, _timeout: float
    ) -> tuple[dict[TopicPartition, Read], dict[TopicPartition, KafkaError]]:
        return Tail.reading()


class World:
    """A consumer that stands by for a partition of another one."""

    def __init__(self, folder: Path) -> None:
        kafka = KafkaSettings(config={"bootstrap.servers": "k:9092"})
        self.states = States("c", "me", kafka, StateTopics([".*"]), folder)
        self.stores = self.states.stores
        self.agent = Agent("me", fencing=True, states=self.states)
        self.follower = Follower(self.agent, self.states)
        node = TopicAssignment("k:9092", "g", {0: "other"}, 1, topic_id="A", standbys={0: ("me",)})
        self.agent.assigned("t", node, 1)

    def round(self) -> None:
        self.follower._round(lambda: None)

    def problems(self) -> list[str]:
        return [*self.agent.view().problems.values()]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(follower_module, "ChangelogTail", Tail)
    monkeypatch.setattr(follower_module, "AGAIN", 0.0)
    monkeypatch.setattr(Follower, "_changelog_id", lambda *_: IDS[0])
    monkeypatch.setattr(Tail, "reading", staticmethod(lambda: ({}, {})), raising=False)
    return World(tmp_path)


def filled(world: World) -> Store:
    store, _ = world.stores.open(TP, IDS, END)
    assert store.apply([(b"k", b"v")], store.mark, replace(store.mark, upto=7, last=6))
    return store


def test_store_of_the_former_owner_is_left(world: World) -> None:
    store = filled(world)
    file = store.folder / "data.mdb"
    before = file.stat().st_ino
    world.round()
    assert file.exists(), "it is not emptied, though it cannot be opened"
    assert file.stat().st_ino == before
    assert world.problems() == []
    world.stores.close(TP, store)
    world.round()
    copy = world.states.copies()[TP]
    assert (copy.position, copy.followed) == (7, True), "it goes on where the owner was"


def test_refused_standby_stays_named_until_it_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {PLACE: KafkaError("allow this user Read")}
    monkeypatch.setattr(Tail, "reading", staticmethod(lambda: ({}, refused)))
    world.round()
    assert "allow this user Read" in world.problems()[0]
    assert world.states.copies()[TP].still > 0, "coordinators see that it does not get on"
    monkeypatch.setattr(Tail, "reading", staticmethod(lambda: ({}, {})))
    world.round()
    assert world.states.copies()[TP].followed, "it is tried again, and Kafka has not answered yet"
    assert "allow this user Read" in "".join(world.problems())
    monkeypatch.setattr(Tail, "reading", staticmethod(lambda: ({PLACE: Read([], END)}, {})))
    world.round()
    assert world.problems() == []


def test_follower_keeps_the_position_of_a_new_owner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.round()

    def taken_up() -> tuple[dict[TopicPartition, Read], dict[TopicPartition, KafkaError]]:
        world.stores.stand_down(TP)
        world.stores.open(TP, IDS, END)
        world.stores.copies.came(TP, 60, END)
        return {}, {}

    monkeypatch.setattr(Tail, "reading", staticmethod(taken_up))
    world.round()
    assert world.states.copies()[TP].position == 60
