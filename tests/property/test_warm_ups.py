"""The gate over whole runs: joins, deaths, pins and drains under each assignor, with stores that take time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.core.assignors import BUILT_IN, Assignor, load_assignor
from muster.core.model import Assignment, Consumer
from muster.core.overrides import Drain, Pin
from tests.support.examples import examples
from tests.support.runs import Topics
from tests.support.warming_cluster import ROUND, WarmingCluster, coordinator

COUNTS = {"t": 5, "u": 3, "v": 4}
OPTIONS: dict[str, dict[str, object]] = {
    "co-partitioned": {"groups": [["t", "u"], ["v"]], "standbys": 1},
    "sticky": {"standbys": 1},
    "load-aware": {"standbys": 1},
}


class Forgetful:
    """An assignor of a user's own that goes by nothing but who is there."""

    name = "forgetful"

    def assign(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], _previous: Assignment
    ) -> Assignment:
        there = sorted(consumers)
        return {
            topic: {p: there[(p * 7 + len(there) + len(topic)) % len(there)] for p in partitions}
            for topic, partitions in topics.items()
        }


def make(name: str, standbys: bool) -> Assignor:
    if name == Forgetful.name:
        return Forgetful()
    return load_assignor(name, OPTIONS.get(name, {}) if standbys else {})


class Judge:
    """Compares what stands in ZooKeeper before and after each run."""

    def __init__(self, world: WarmingCluster, topics: Topics, assignor: Assignor) -> None:
        self.world, self.topics, self.assignor = world, topics, assignor
        self.alone = assignor.name != "co-partitioned"
        self.moves = 0
        self.calm = False
        """Whether nothing happens but what the coordinator does."""

    def run(self) -> bool:
        """One run, and a round of the consumers; returns whether anything was written."""
        world = self.world
        before = {t: world.node(t) for t in self.topics.topics if t in world.store.nodes}
        warm = {c: {tp for tp in world.consumer(c).disk if world.consumer(c).is_warm(tp)} for c in self.there}
        stable = {t for t in before if t in world.store.states and world.is_stable(t)}
        writes = world.store.writes
        one = coordinator(world, self.topics, self.assignor)
        one.fetch_partitions()
        written = False
        if one.compute_assignment().needed:
            written = bool(one.advance(0.0).changes)
        for topic, old in before.items():
            new = world.node(topic)
            assert not new.warm_ups or topic != "v", "a topic without state is left as it is"
            for p, owner in old.owners.items():
                if owner in self.there and p not in new.owners and topic in stable:
                    self.moves += 1
                    self._may_move(topic, p, owner, warm)
            for p, consumer in old.warm_ups.items():
                stays = consumer in self.there and old.owners.get(p) in self.there and topic in stable
                if stays and (topic, p) not in warm[consumer] and not self._asked(topic, p, consumer):
                    assert new.warm_ups.get(p) == consumer, "one that is under way stays where it is"
                if stays and self.calm and p not in new.warm_ups:
                    to_start = world.state(topic).to_start
                    assert p in to_start.get(consumer, ()), "none is thrown away"
        warming = {
            (topic if self.alone else "", p)
            for topic in before
            for p, consumer in world.node(topic).warm_ups.items()
            if (topic, p) not in warm[consumer] and p in world.node(topic).owners
        }
        assert len(warming) <= 2, "at most max_warm_ups at once"
        world.pause(ROUND)
        return written or world.store.writes > writes

    @property
    def there(self) -> set[str]:
        return {c for c, one in self.world.consumers.items() if one.alive}

    def _asked(self, topic: str, p: int, consumer: str) -> bool:
        """Whether a person has asked for something that the partition or the consumer is part of."""
        decided = self.world.decided
        owner = self.world.node(topic).owners.get(p)
        return (topic, p) in decided.pins or consumer in decided.drained or owner in decided.drained

    def _may_move(self, topic: str, p: int, owner: str, warm: Mapping[str, set[tuple[str, int]]]) -> None:
        states = self.world.store.states
        if topic == "v" or (topic, p) in self.world.decided.pins or owner in self.world.decided.drained:
            return
        text = states[topic].data.decode()
        targets = [c for c in self.there if (topic, p) in warm[c] and c != owner]
        assert targets, f"{topic}-{p} leaves {owner} for the sake of balance, and no store is warm: {text}"

    def settle(self) -> None:
        """Run until nothing changes; it has to end."""
        quiet = 0
        for _ in range(120):
            quiet = 0 if self.run() else quiet + 1
            if quiet > 4:
                break
        assert quiet > 4, "plans follow plans without an end"
        for topic in self.topics.topics:
            assert self.world.is_stable(topic)
            node = self.world.node(topic)
            assert not node.warm_ups, "none is forgotten"
            assert set(node.owners.values()) <= self.there
            assert node.owners.keys() == set(range(self.topics.topics[topic]))


events = st.lists(
    st.tuples(
        st.sampled_from(["join", "die", "drain", "undrain", "pin", "unpin", "wipe"]),
        st.sampled_from("abcde"),
        st.sampled_from([("t", 0), ("t", 3), ("u", 1), ("u", 2)]),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=6,
)


@given(data=events, name=st.sampled_from([*sorted(BUILT_IN), Forgetful.name]), standbys=st.booleans())
@examples(25)
def test_warm_ups_end_and_moves_are_bounded(
    data: list[tuple[str, str, tuple[str, int], int]], name: str, standbys: bool
) -> None:
    world, topics = WarmingCluster(), Topics(**COUNTS)
    world.join("a", "b")
    judge = Judge(world, topics, make(name, standbys))
    judge.settle()
    for what, who, tp, rounds in data:
        happen(world, what, who, tp)
        for _ in range(rounds):
            judge.run()
    judge.settle()
    judge.moves, judge.calm = 0, True
    world.join("f")
    judge.settle()
    assert judge.moves <= sum(COUNTS.values()), "each partition moves at most once for one that joins"


def happen(world: WarmingCluster, what: str, who: str, tp: tuple[str, int]) -> None:
    decided = world.decided
    there = {c for c, one in world.consumers.items() if one.alive}
    others = there - decided.drained.keys() - {who}
    if what == "join" and who not in there:
        world.join(who)
    elif what == "die" and others and who in there:
        world.consumers[who].alive = False
    elif what == "drain" and others and who in there:
        drain = Drain(by="ann", at=world.now, why="r", consumer=who)
        world.decided = replace(decided, drained={**decided.drained, who: drain})
    elif what == "undrain":
        world.decided = replace(decided, drained={})
    elif what == "pin":
        pin = Pin(by="ann", at=world.now, why="r", topic=tp[0], partition=tp[1], consumer=who)
        world.decided = replace(decided, pins={**decided.pins, tp: pin})
    elif what == "unpin":
        world.decided = replace(decided, pins={})
    elif what == "wipe" and who in there:
        world.consumer(who).disk.clear()
