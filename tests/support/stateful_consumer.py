"""A consumer's real agent, committer, keeper and local stores, over a topic with state; the test is its handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.state.follower import Follower
from muster.consumer.state.keeper import Keeper
from muster.consumer.state.position import FIRST
from muster.consumer.state.shards import Computed, States
from muster.core.model import Seek, TopicAssignment, TopicPartition
from muster.core.ownership import BatchPlan
from muster.core.positions import Jump, Why
from muster.core.state_topics import StateTopics
from muster.edges.dead_letters import ToWrite
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.support.confirming import confirm

CLUSTER = "c"
GENERATION = FIRST.to_bytes(4, "big")


class StatefulConsumer:
    """`confirms`: ZooKeeper and Consul confirm it whenever that is asked, as they do an owner."""

    def __init__(
        self,
        name: str,
        kafka: KafkaSettings,
        group: GroupOffsets,
        folder: Path,
        confirms: bool = True,
        incarnation: int = 0,
        topics: StateTopics | None = None,
        dead_letter_topic: str = "",
    ) -> None:
        self.states = States(CLUSTER, name, kafka, topics or StateTopics([".*"]), folder)
        self.agent = Agent(name, fencing=True, states=self.states)
        self.committer = Committer(self.agent, kafka, CLUSTER, True, dead_letter_topic, self.states)
        self.keeper = Keeper(self.agent, self.states)
        self.follower = Follower(self.agent, self.states)
        self.confirms = confirms
        self._kafka = kafka
        self._group = group
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}
        self._token = self.agent.query_started()
        self._threads = [
            threading.Thread(target=run, args=(beat,), daemon=True)
            for run, beat in (
                (self.committer.run, self._confirm),
                (self.keeper.run, lambda: None),
                (self.follower.run, lambda: None),
            )
        ]
        for thread in self._threads:
            thread.start()

    def _confirm(self) -> None:
        if self.confirms:
            confirm(self.agent)

    def reads(
        self,
        topic: str,
        owners: Mapping[int, str],
        zxid: int,
        seeks: Mapping[int, Seek] | None = None,
        standbys: Mapping[int, tuple[str, ...]] | None = None,
    ) -> None:
        node = TopicAssignment(
            self._kafka.bootstrap_servers,
            self._group.group_id,
            dict(owners),
            zxid,
            topic_id=self._group.topics.identities({topic}).ids[topic],
            seeks=seeks or {},
            standbys=standbys or {},
        )
        self.agent.assigned(topic, node, zxid)

    def offered(self) -> set[int]:
        return {p for topic in self.agent.offer(self._token).topics.values() for p in topic.partitions}

    def readable(self, topic: str) -> bool:
        """Whether partition 0 may be planned with records."""
        return self.offered() == {0} and bool(self.agent.failing.turn([(topic, 0)]))

    def plan(self, topic: str, upto: int, sought: Seek | None = None) -> BatchPlan:
        """Plan partition 0 up to `upto`, or at a seek's offset, and begin the batch."""
        return self.plan_all({topic: upto}, {} if sought is None else {topic: sought})

    def plan_all(self, upto: Mapping[str, int], sought: Mapping[str, Seek] | None = None) -> BatchPlan:
        """Plan partition 0 of several topics in the same way."""
        sought = sought or {}
        offer = self.agent.offer(self._token)
        after, jumps = {}, {}
        for topic in upto.keys() & offer.topics.keys():
            held = self._ends.get(topic, {})
            begin = held[0][1] if held else self._group.committed([(topic, 0)])[topic, 0] or 0
            begin = offer.again.get((topic, 0), begin)
            end = max(begin, upto[topic])
            if topic in sought:
                begin = end = sought[topic].offset or 0
                if held:
                    jumps[topic, 0] = Jump(held[0][1], begin, Why.SEEK)
            after[topic] = {0: (begin, end)}
        seeks = {(topic, 0): seek for topic, seek in sought.items()}
        self.agent.planned(self._token, offer.asked, self._ends, after, {}, [], jumps=jumps, sought=seeks)
        self._ends = after
        return self.agent.batch_started()

    def let_go(self) -> None:
        """Have a batch without partitions once there is none to read, as a query has it."""
        offer = self.agent.offer(self._token)
        if self._ends and not any(topic.partitions for topic in offer.topics.values()):
            self.agent.planned(self._token, offer.asked, self._ends, {}, {}, [])
            self._ends = {}
            self.agent.batch_done(self.agent.batch_started(), None)

    def batch(
        self,
        topic: str,
        upto: int,
        changes: Mapping[bytes, bytes | None],
        output: tuple[ToWrite, ...] = (),
    ) -> None:
        """Process a batch that changes keys."""
        self.done(topic, self.compute(topic, self.plan(topic, upto), changes, output))

    def compute(
        self,
        topic: str,
        plan: BatchPlan,
        changes: Mapping[bytes, bytes | None],
        output: tuple[ToWrite, ...] = (),
    ) -> tuple[BatchPlan, Computed]:
        """Make what a batch makes of the shard that is known by `topic`."""
        ranges = {of: bounds for (of, _), bounds in (plan.filled or plan.ranges).items()}
        view = self.states.view((topic, 0), {of: begin for of, (begin, _) in ranges.items()})
        after = replace(view.position, time=view.now, time_mode="None")
        keys = [view.position.generation.to_bytes(4, "big") + key for key in changes]
        return plan, Computed(ranges, after, keys, list(changes.values()), output)

    def done(self, topic: str, computed: tuple[BatchPlan, Computed]) -> None:
        self.states.computed({(topic, 0): computed[1]})
        self.agent.batch_done(computed[0], None)

    def state(self, topic: str) -> dict[bytes, bytes]:
        """What the local store has."""
        reader = self.states.reader((topic, 0))
        try:
            generation = self.states._shards[topic, 0].position.generation
            return {key[4:]: value for key, value in reader.scan(generation.to_bytes(4, "big"))}
        finally:
            reader.close()

    def restored(self) -> list[tuple[int, int | None]]:
        """Return a list that grows with each step of what is restored from now on: the offsets read, and all of them,
        as the status shows them."""
        steps: list[tuple[int, int | None]] = []
        came = self.states.restores.came

        def noted(tp: TopicPartition, claim_epoch: int, read: int, total: int) -> None:
            came(tp, claim_epoch, read, total)
            if (restore := self.states.status()[tp].restore) is not None:
                steps.append((restore.read, restore.total))

        self.states.restores.came = noted  # type: ignore[method-assign]
        return steps

    def errors(self) -> dict[str, str]:
        return dict(self.agent.view().problems)

    def close(self) -> None:
        self.committer.stop()
        self.keeper.stop()
        self.follower.stop()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "it would take the stores of the next consumer of this name"
        self.states.keep({})
        self.states.stores.release()


Make = Callable[..., StatefulConsumer]


@contextmanager
def made(kafka: KafkaSettings, group: GroupOffsets, folder: Path, **more: Any) -> Iterator[Make]:
    """Give what makes consumers by their names, each with stores below `folder`, at a `place` if not its name. They
    are closed in the end."""
    with ExitStack() as stack:

        def make(name: str, place: str = "", **others: Any) -> StatefulConsumer:
            one = StatefulConsumer(name, kafka, group, folder / (place or name), **more, **others)
            return stack.enter_context(closing(one))

        yield make
