"""When a coordinator looks at Kafka's offsets, what it asks the consumers then, and what it notes and tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from muster.core.model import Consumer, TopicPartition
from muster.core.offsets import FirstRecord, TopicOffsets
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
    moments: dict[TopicPartition, float] = field(default_factory=dict)

    def read(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        self.read_times += 1
        found = super().read(partitions, groups)
        first = {tp: FirstRecord(0, moment) for tp, moment in self.moments.items()}
        return replace(
            found, first={**found.first, **first}, at=max(self.moments.values(), default=0.0) + 700
        )


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


def test_partition_with_markers_only_does_not_stand(world: SimulatedCluster, offsets: NotedOffsets) -> None:
    offsets.records[TP] = 9
    world.store.note_look(Look(), Look(world.now - 70, {TP: Mark(None, int(world.now) - 400)}))
    offsets.unreadable = {TP}
    assert coordinator(world, KAFKA).stuck() == []
    assert world.store.look().marks == {}


def test_run_tells_how_far_behind_it_found_topics(world: SimulatedCluster, offsets: NotedOffsets) -> None:
    offsets.records[TP] = 9
    offsets.moments[TP] = world.now - 700
    one = coordinator(world, KAFKA, settings={"max_lag": {"t": 600}})
    behind = one.compute_assignment().behind
    assert behind == {"lag_seconds": 700, "topics_over_max_lag": 1, "topics_near_deletion": 0}
    assert coordinator(world, KAFKA).compute_assignment().behind == {}, "no look was due"


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
