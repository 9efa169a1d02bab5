"""When a coordinator looks at Kafka's offsets, what it asks Kafka and the consumers then, and what it notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from muster.core.model import Consumer, TopicPartition
from muster.core.offsets import TopicOffsets
from muster.core.progress import LOOK_EVERY, Look, Mark
from muster.edges.status import StatusResult
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import SimulatedCluster, SimulatedOffsets

KAFKA = Topics(t=7, u=5)
TP = ("t", 0)


@dataclass
class NotedOffsets(SimulatedOffsets):
    """Kafka's offsets, with how often they were read, and from where each partition was looked through."""

    read_times: int = 0
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    beginnings: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int | None] = field(default_factory=dict)

    def read(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        self.read_times += 1
        found = super().read(partitions, groups)
        return replace(found, beginnings=self.beginnings, committed={**found.committed, **self.committed})

    def without_records(self, begins: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        self.begins |= begins
        return super().without_records(begins)


@pytest.fixture
def offsets() -> NotedOffsets:
    return NotedOffsets()


@pytest.fixture
def world(offsets: NotedOffsets) -> SimulatedCluster:
    world = settled_world()
    world.offsets = offsets
    return world


@pytest.mark.parametrize(
    ("ago", "times"),
    [(0.0, 0), (LOOK_EVERY - 1, 0), (LOOK_EVERY, 1), (-1.0, 1)],
    ids=str,
)
def test_offsets_are_read_once_the_pause_is_over(
    world: SimulatedCluster, offsets: NotedOffsets, ago: float, times: int
) -> None:
    """Also where ZooKeeper's clock was set back."""
    world.store.note_look(Look(), Look(world.now - ago))
    coordinator(world, KAFKA).stuck()
    assert offsets.read_times == times


@pytest.mark.parametrize(
    ("committed", "beginning", "begins"), [(0, None, 0), (None, 3, 3), (2, 4, 4), (6, 4, 6)]
)
def test_partition_is_looked_through_from_where_it_can_be_read(
    world: SimulatedCluster, offsets: NotedOffsets, committed: int | None, beginning: int | None, begins: int
) -> None:
    offsets.records[TP] = 9
    offsets.committed[TP] = committed
    offsets.beginnings = {} if beginning is None else {TP: beginning}
    world.store.note_look(Look(), Look(world.now - 70, {TP: Mark(committed, int(world.now) - 295)}))
    coordinator(world, KAFKA).stuck()
    assert offsets.begins == {TP: begins}


def test_owner_is_asked_about_what_stands_and_all_it_owns(world: SimulatedCluster) -> None:
    asked: dict[str, set[str]] = {}
    poll = world.poll

    def noted(
        consumers: Iterable[Consumer], timeout: float, topics: object = None
    ) -> Mapping[str, StatusResult]:
        assert isinstance(topics, Mapping)
        asked.update({consumer: set(found) for consumer, found in topics.items()})
        return poll(consumers, timeout, topics)

    world.poll = noted  # type: ignore[method-assign, assignment]
    world.stands(TP, 400)
    one = coordinator(world, KAFKA)
    assert [each.topic for each in one.stuck()] == ["t"]
    both = {
        c for c in world.consumers if {c} <= set(world.owners("t").values()) & set(world.owners("u").values())
    }
    assert both and all(asked[consumer] == {"t", "u"} for consumer in both)
