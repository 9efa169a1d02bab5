"""Consumers that are given the partitions of a shard in any order: each record counts once, and they come to rest.

Two topics share their state, and are each handed from consumer to consumer by themselves, as the coordinator does.
The group and who claimed last stand for Kafka. Without a rule of the ownership some history breaks a promise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from muster.core.model import TopicAssignment
from muster.core.ownership import BatchPlan, Ownership
from muster.core.ownership.shards import Shards
from muster.core.positions import Committed
from muster.core.state_topics import StateTopics
from tests.support.only_long import LONG

HISTORIES, STEPS = (2_000 if LONG else 150), 250
TOPICS = ("a", "b")
STATE = StateTopics([TOPICS])
STAMP = "muster:c:id"


class BrokenError(Exception):
    """A promise does not hold."""


class World:
    """`group` has the offsets, and `ends` how many records there are."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.group, self.ends = dict.fromkeys(TOPICS, 0), dict.fromkeys(TOPICS, 3)
        self.owners: dict[str, str] = dict.fromkeys(TOPICS, "")
        self.epochs = dict.fromkeys(TOPICS, 0)
        self.fence = 0
        """The number of the last claim."""
        self.processes = [Process(self, "one"), Process(self, "two")]
        self.landed = 0

    def check(self, holds: bool, promise: str) -> None:
        if not holds:
            raise BrokenError(promise)

    def step(self) -> None:
        topic, draw = self.random.choice(TOPICS), self.random.random()
        if draw < 0.06:
            self.give(topic, self.random.choice(["one", "two"]))
        elif draw < 0.12:
            self.ends[topic] += 1
        elif draw < 0.14:
            self.die(self.random.choice(self.processes))
        else:
            self.random.choice(self.processes).step()

    def give(self, topic: str, owner: str) -> None:
        """Take the next step of handing a topic to `owner`: from the one before, which closes it first."""
        before = self.owners[topic]
        if before == owner:
            return
        process = next((each for each in self.processes if each.name == before), None)
        if process is not None and process.epochs[topic] < self.epochs[topic]:
            return  # it has not read the last write
        if process is not None and (topic, 0) in process.own.held:
            if self.owners[topic]:
                self._write(topic, "")
            return
        self._write(topic, owner)

    def _write(self, topic: str, owner: str) -> None:
        self.owners[topic] = owner
        self.epochs[topic] += 1

    def closed(self, topic: str) -> bool:
        return all((topic, 0) not in each.own.held for each in self.processes)

    def die(self, process: Process) -> None:
        """A consumer dies, and one of its name takes its place: what it had under way may not land any more."""
        self.processes[self.processes.index(process)] = Process(self, process.name)

    def come_to_rest(self) -> None:
        """Have both topics at one consumer, and that read all there is."""
        for _ in range(400):
            for topic in TOPICS:
                if self.closed(topic) or self.owners[topic]:
                    self.give(topic, "one")
            for process in self.processes:
                process.step()
            if self.group == self.ends:
                return
        held = {each.name: {tp: p.closing for tp, p in each.own.held.items()} for each in self.processes}
        raise BrokenError(f"it does not come to rest: {self.owners}, {held}, {self.group} of {self.ends}")


class Process:
    """A consumer: its ownership, and the batch that it has processed and not committed."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.own = Ownership(name, fencing=True, state=STATE)
        self.own.query.start()
        self.epochs = dict.fromkeys(TOPICS, -1)
        self.claim = 0
        self.batch: dict[str, tuple[int, int]] = {}

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            self.read, self.take, self.restore, self.process, self.commit, self.look, self.release,
        ]  # fmt: skip
        self.world.random.choice(steps)()

    def read(self) -> None:
        topic = self.world.random.choice(TOPICS)
        owner, epoch = self.world.owners[topic], self.world.epochs[topic]
        node = TopicAssignment("k:1", "g", {0: owner} if owner else {}, epoch, topic_id="id")
        self.own.read(topic, node, epoch)
        self.epochs[topic] = epoch

    def take(self) -> None:
        for epochs in self.own.unclaimed().values():
            self.world.check(len(epochs) == len(TOPICS), "a part of a shard is claimed")
            if all(self.own.begin_claim(tp, epoch) for tp, epoch in epochs.items()):
                self.world.fence += 1
                self.claim = self.world.fence
                self.batch = {}
                there = {tp: Committed(self.world.group[tp[0]], STAMP) for tp in epochs}
                self.own.claimed(epochs, 0.0, there)

    def restore(self) -> None:
        for tp, asked in self.own.shards.to_restore().items():
            offsets = {topic: one.offset for topic, one in asked.committed.items() if one is not None}
            self.world.check(offsets == self.world.group, "another owner has committed since the claim")
            self.own.restored(tp, asked.claim_epoch, offsets)

    def process(self) -> None:
        offer = self.own.offer()
        wanted: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, offered in offer.topics.items():
            for partition in offered.partitions:
                held = self.own.held[topic, partition]
                at = held.planned if held.planned is not None else self.world.group[topic]
                free = (topic, partition) not in self.own.shards.uncommitted()
                end = min(self.world.ends[topic], at + self.world.random.randrange(3)) if free else at
                wanted.setdefault(topic, {})[partition] = (at, max(at, end))
        self.own.planned(offer.asked, wanted)
        if not self.own.query.finished:
            plan: BatchPlan = self.own.query.batch()
            if plan.filled:
                self.batch = {topic: bounds for (topic, _), bounds in plan.filled.items()}
            self.own.processed(plan, 0.0)

    def commit(self) -> None:
        for due in self.own.due(0.0).values():
            if self.world.fence != self.claim:
                for tp, one in due.items():
                    self.own.refuse(tp, one.claim_epoch)
                return
            self.world.check({topic for topic, _ in due} == {*TOPICS}, "a transaction lacks an offset")
            for topic, (begin, _) in self.batch.items():
                self.world.check(begin == self.world.group[topic], "a record counts twice, or never")
            self.world.group |= {topic: one.offset for (topic, _), one in due.items()}
            self.batch = {}
            self.world.landed += 1
            self.own.committed(due, 0.0)

    def look(self) -> None:
        self.own.looked_at([tp for of in self.own.last_looks().values() for tp in of])

    def release(self) -> None:
        """Zookeeper and Consul confirm what was refused."""
        for tp in list(self.own.refused):
            self.own.allow(tp)


@contextmanager
def leaving_out(rule: str) -> Iterator[None]:
    patches: dict[str, tuple[str, object]] = {
        "claim_whole": ("whole", lambda *_: True),
        "all_offsets": ("with_others", lambda *_: None),
        "close_together": ("close_split", lambda *_: None),
    }
    if not rule:
        yield
        return
    name, value = patches[rule]
    with mock.patch.object(Shards, name, value):
        yield


def play(seed: int, rule: str = "") -> int:
    with leaving_out(rule):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.come_to_rest()
        return world.landed


def test_shared_shards_count_each_record_once() -> None:
    assert sum(play(seed) for seed in range(HISTORIES)) > 5 * HISTORIES


@pytest.mark.parametrize("rule", ["claim_whole", "all_offsets", "close_together"])
def test_some_history_of_shards_needs_each_rule(rule: str) -> None:
    with pytest.raises(BrokenError):
        for seed in range(100):
            play(seed, rule)
