"""A simulated cluster whose consumers keep stores of shards, which take time to be brought to the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from muster.coordinator.coordinator import Coordinator
from muster.core import wire
from muster.core.assignors import Assignor
from muster.core.copies import ShardCopy, Warmth
from muster.core.model import ConsumerStatus, State, TopicAssignment, TopicState
from muster.settings.connections import KafkaSettings
from tests.support.runs import Topics, cluster
from tests.support.simulated import SimulatedCluster, SimulatedConsumer, SimulatedStore

END = 100_000
"""Where each changelog ends."""
ROUND = 3.0
"""Seconds of one round of the consumers."""


@dataclass
class WarmingConsumer(SimulatedConsumer):
    """`disk` has how far its store of each shard is. A round brings those that it stands by for on by `step`; those
    that are not at the end stand still for `still` seconds."""

    has_state: Callable[[str], bool] = lambda _topic: True
    step: int = 40_000
    still: float = 0.0
    disk: dict[tuple[str, int], int] = field(default_factory=dict)

    def obey(self, store: SimulatedStore) -> None:
        super().obey(store)
        if self.stuck or not self.alive:
            return
        for topic, node in store.nodes.items():
            assignment = wire.parse_assignment(node.data, topic)
            if assignment is not None and self.has_state(topic):
                for p in assignment.stood_by_for(self.id):
                    self.disk[topic, p] = min(END, self.disk.get((topic, p), 0) + self.step)
        for tp in self.running:
            if self.has_state(tp[0]):
                self.disk[tp] = END
                self.rates[tp] = float(tp[1] + 1)

    def copies(self) -> dict[str, dict[int, ShardCopy]]:
        found: dict[str, dict[int, ShardCopy]] = {}
        for (topic, p), position in self.disk.items():
            found.setdefault(topic, {})[p] = ShardCopy(
                position, END, still=self.still if position < END else 0.0
            )
        return found

    def is_warm(self, tp: tuple[str, int]) -> bool:
        copy = self.copies().get(tp[0], {}).get(tp[1])
        return copy is not None and copy.warmth is Warmth.WARM

    def status(self) -> ConsumerStatus:
        return replace(super().status(), copies=self.copies())


class WarmingCluster(SimulatedCluster):
    """Topics t and u have state, v has none."""

    def join(self, *ids: str) -> None:
        for one in ids:
            self.consumers[one] = WarmingConsumer(one, has_state=lambda topic: topic != "v")

    def consumer(self, name: str) -> WarmingConsumer:
        found = self.consumers[name]
        assert isinstance(found, WarmingConsumer)
        return found

    def node(self, topic: str) -> TopicAssignment:
        found = wire.parse_assignment(self.store.nodes[topic].data, topic)
        assert found is not None
        return found

    def state(self, topic: str) -> TopicState:
        return wire.parse_state(self.store.states[topic].data, topic)

    def is_stable(self, topic: str) -> bool:
        return self.state(topic).state is State.STABLE


SETTINGS = {
    "topics": ["t", "u", "v"],
    "consumers": {"handler": "a.b", "state": ["[tu]"]},
    "max_warm_ups": 2,
    "warm_up_timeout": 60,
}


def coordinator(world: WarmingCluster, topics: Topics, assignor: Assignor, **more: object) -> Coordinator:
    return Coordinator(
        cluster({**SETTINGS, **more}),
        KafkaSettings(config={"bootstrap.servers": "k:9092"}),
        world.store,
        world,
        world,
        topics,
        world.poll,
        assignor,
        clock=world.clock,
        pause=world.pause,
    )
