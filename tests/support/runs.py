"""A coordinator on simulated edges: whole runs, the changes between them, and runs that die at a write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.reports import ConsumersReport
from muster.core import wire
from muster.core.assignors import load_assignor
from muster.core.model import State
from muster.core.subscription import TopicOverride
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings
from tests.support.simulated import Killed, SimulatedCluster, SimulatedStore


class Topics:
    """What Kafka has."""

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.racks: dict[str, dict[int, str]] = {}
        self.ids: dict[str, str] = {}
        """`id-of-[TOPIC]` where it has none; '' is left out."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        found = {topic: self.ids.get(topic, f"id-of-{topic}") for topic in topics if topic in self.topics}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id}

    def leader_racks(self) -> dict[str, dict[int, str]]:
        return self.racks

    def list_partitions(self) -> dict[str, frozenset[int]]:
        return {topic: frozenset(range(count)) for topic, count in self.topics.items()}


def cluster(more: Mapping[str, object]) -> ClusterSettings:
    return ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "c",
            "group_id": "g",
            "topics": ["t", "u"],
            "consumers": {"handler": "a.b"},
            "advance_budget": 120,
            **more,
        }
    )


def coordinator(
    world: SimulatedCluster,
    topics: Topics,
    assignor: str = "sticky",
    settings: Mapping[str, object] | None = None,
) -> Coordinator:
    return Coordinator(
        cluster(settings or {}),
        KafkaSettings(config={"bootstrap.servers": "k:9092"}),
        world.store,
        world,
        world,
        topics,
        world.poll,
        load_assignor(assignor, {}),
        offsets=world.offsets,
        clock=world.clock,
        pause=world.pause,
    )


def run(world: SimulatedCluster, topics: Topics, assignor: str = "sticky") -> None:
    """One run: the four tasks. Beside them the consumers go on obeying."""
    one = coordinator(world, topics, assignor)
    one.fetch_partitions()
    ConsumersReport.of(one.catalog.members())
    if one.compute_assignment().needed:
        one.advance(120)


def state_of(world: SimulatedCluster, topic: str) -> State:
    node = world.store.states.get(topic)
    return State.INITIAL if node is None else wire.parse_state(node.data, topic).state


def subscribed(world: SimulatedCluster, topics: Topics) -> list[str]:
    """The topics that are to be read."""
    reads = cluster({}).topics.read_with(world.decided.subscriptions)
    return [topic for topic in topics.topics if reads.includes(topic)]


def settle(world: SimulatedCluster, topics: Topics, assignor: str) -> None:
    """Runs until everything is Stable and every consumer runs just what it is assigned, and nothing else."""
    wanted = subscribed(world, topics)
    for _ in range(20):
        run(world, topics, assignor)
        world.pause(1)
        if all(state_of(world, topic) is State.STABLE for topic in wanted) and set(world.store.nodes) == set(
            wanted
        ):
            break
    for kept in (world.store.nodes, world.store.states, world.store.partitions):
        assert set(kept) == set(wanted), "what nobody subscribes to is gone, with all its nodes"
    for consumer in world.consumers.values():
        if consumer.alive and consumer.id not in world.isolated:
            assert {topic for topic, _ in consumer.running | consumer.starting} <= set(wanted)
    for topic in wanted:
        owners = world.owners(topic)
        assert owners.keys() == set(range(topics.topics[topic]))
        for consumer in world.consumers.values():
            if consumer.alive and consumer.id not in world.isolated:
                mine = {(topic, p) for p, owner in owners.items() if owner == consumer.id}
                assert {tp for tp in consumer.running if tp[0] == topic} == mine


def settled_world() -> SimulatedCluster:
    """Return a world in which consumers a, b and c read topics t and u, and all is Stable."""
    world, topics = SimulatedCluster(), Topics()
    begin(world, topics)
    settle(world, topics, "sticky")
    return world


def nobody_twice(world: SimulatedCluster) -> None:
    """No partition in the hands of two consumers that are in contact."""
    holders: dict[tuple[str, int], str] = {}
    for consumer in world.consumers.values():
        if not consumer.alive or consumer.id in world.isolated:
            continue
        for held in consumer.running | consumer.starting | consumer.closing:
            assert held not in holders, f"{held} is held by {holders[held]} and {consumer.id}"
            holders[held] = consumer.id


class Watched(SimulatedCluster):
    """Looks for a partition held twice whenever time passes."""

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        nobody_twice(self)


Change = Callable[[SimulatedCluster, Topics], None]


def begin(world: SimulatedCluster, topics: Topics) -> None:
    world.join("a", "b", "c")
    topics.topics = {"t": 7, "u": 5}


def leave(world: SimulatedCluster, topics: Topics) -> None:
    world.consumers["b"].alive = False


def isolate(world: SimulatedCluster, topics: Topics) -> None:
    world.isolated.add("a")
    world.consumers["a"].running.clear()


def join(world: SimulatedCluster, topics: Topics) -> None:
    world.join("d", "e")


def leave_and_join(world: SimulatedCluster, topics: Topics) -> None:
    leave(world, topics)
    join(world, topics)


def grow(world: SimulatedCluster, topics: Topics) -> None:
    topics.topics["t"] = 12


def unsubscribe(world: SimulatedCluster, topics: Topics) -> None:
    decide(world, "u", subscribed=False)


def subscribe(world: SimulatedCluster, topics: Topics) -> None:
    decide(world, "u", subscribed=True)


def subscribe_another(world: SimulatedCluster, topics: Topics) -> None:
    topics.topics["v"] = 4
    decide(world, "v", subscribed=True)


def unsubscribe_and_leave(world: SimulatedCluster, topics: Topics) -> None:
    unsubscribe(world, topics)
    leave(world, topics)


def decide(world: SimulatedCluster, topic: str, *, subscribed: bool) -> None:
    """A person subscribes or unsubscribes a topic; what was said about it before no longer counts."""
    said = TopicOverride(by="ann", at=1.0, why="r", selector=topic, pattern=False, subscribed=subscribed)
    others = tuple(d for d in world.decided.subscriptions if d.selector != topic)
    world.decided = replace(world.decided, subscriptions=(*others, said))


CHANGES: dict[str, list[Change]] = {
    "first assignment": [begin],
    "a consumer leaves": [begin, leave],
    "a consumer is isolated": [begin, isolate],
    "two join": [begin, join],
    "one leaves, two join": [begin, leave_and_join],
    "partitions are added": [begin, grow],
    "one thing after another": [begin, join, leave, grow, isolate],
    "a topic is unsubscribed": [begin, unsubscribe],
    "it is subscribed again": [begin, unsubscribe, subscribe],
    "a topic is unsubscribed and a consumer leaves": [begin, unsubscribe_and_leave],
    "one more is subscribed": [begin, subscribe_another],
}


def play(
    changes: list[Change],
    assignor: str,
    kill: Callable[[SimulatedCluster], None] | None,
    store: SimulatedStore | None = None,
) -> tuple[dict[str, dict[int, str]], int, int]:
    """Return the final owners, how many writes the last change took, and how often the coordinator died."""
    world, topics = Watched(store or SimulatedStore()), Topics()
    for change in changes[:-1]:
        change(world, topics)
        settle(world, topics, assignor)
    world.store.writes = 0
    changes[-1](world, topics)
    died = 0
    if kill is not None:
        kill(world)
        try:
            settle(world, topics, assignor)
        except Killed:
            died = 1
        world.store.kill_before = world.store.kill_after = None
        world.pause(1)
    settle(world, topics, assignor)
    return {topic: world.owners(topic) for topic in subscribed(world, topics)}, world.store.writes, died
