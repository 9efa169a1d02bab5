"""A consumer's real agent and committer; what its planner and its handler would do, the test does."""

from __future__ import annotations

import threading
from typing import Any

from fastapi.testclient import TestClient

from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.status_page import make_status_page
from muster.core.model import TopicAssignment
from muster.core.ownership import BatchPlan
from muster.core.positions import noted
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.support.consumer_settings import consumer_settings


class Consumer:
    def __init__(
        self, name: str, kafka: KafkaSettings, group: GroupOffsets, fencing: bool, **agent_settings: Any
    ) -> None:
        self.agent = Agent(name, fencing=fencing, **agent_settings)
        self.committer = Committer(self.agent, kafka, "c", fencing)
        self._kafka = kafka
        self._group = group
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}
        self._topic_id = ""
        self._token = self.agent.query_started()
        self._thread = threading.Thread(target=self.committer.run, args=(lambda: None,), daemon=True)
        self._thread.start()

    def reads(self, topic: str, owners: dict[int, str], zxid: int, topic_id: str = "") -> None:
        servers, group = self._kafka.bootstrap_servers, self._group.group_id
        node = TopicAssignment(servers, group, owners, zxid, topic_id=topic_id)
        self._topic_id = topic_id
        self.agent.assigned(topic, node, zxid)

    def offered(self) -> set[int]:
        return {p for topic in self.agent.offer(self._token).topics.values() for p in topic.partitions}

    def plan(self, topic: str, upto: dict[int, int]) -> BatchPlan:
        """Plan a batch up to these offsets, of what is offered, and begin it."""
        offer = self.agent.offer(self._token)
        partitions = offer.topics[topic].partitions if topic in offer.topics else frozenset()
        held = self._ends.get(topic, {})
        there = self._group.positions([(topic, p) for p in partitions if p not in held])
        ranges = {}
        for number in sorted(partitions):
            found = there.get((topic, number))
            begin = held[number][1] if number in held else found.offset if found is not None else 0
            ranges[number] = (begin, max(begin, upto.get(number, begin)))
        after = {topic: ranges} if ranges else {}
        notes = {tp: noted(found, self._topic_id) for tp, found in there.items()}
        self.agent.planned(self._token, offer.asked, self._ends, after, {}, [], notes=notes)
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
