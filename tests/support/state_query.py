"""A query with state by key: the real agent, planner, commits, keeper and supervisor, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import SparkSession

from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.handler import Handlers
from muster.consumer.http_server import HttpServer
from muster.consumer.local_api import make_local_api
from muster.consumer.query import QuerySupervisor
from muster.consumer.serial_handler import SerialHandler
from muster.consumer.source.batch_size import Bounds
from muster.consumer.state.keeper import Keeper
from muster.consumer.state.shards import States
from muster.core.model import Seek, TopicAssignment
from muster.core.state_topics import StateTopics
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.support.confirming import confirm

CLUSTER = "c"
LONGEST = 600.0
"""Seconds that a batch may take until the next one is smaller."""


def begin_at_the_first_record(
    group: GroupOffsets, topic: str, partitions: int, cluster: str = CLUSTER
) -> None:
    """Commit offset 0, as it is done before a topic is taken up."""
    stamp = f"muster:{cluster}:{group.topics.identities({topic}).ids[topic]}"
    places = [(topic, p) for p in range(partitions)]
    group.commit(dict.fromkeys(places, 0), dict.fromkeys(places, stamp))


def committed_records(kafka: KafkaSettings, topic: str) -> list[tuple[str | None, str]]:
    """Keys and values of a topic with one partition, as a reader of committed records sees them."""
    settings = {
        **kafka.config,
        "group.id": "look",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    with closing(Consumer(settings)) as reader:
        reader.assign([KafkaPartition(topic, 0, 0)])
        found = []
        while (message := reader.poll(30)) is not None and message.error() is None:
            key = message.key()
            found.append((key.decode() if key else None, (message.value() or b"").decode()))
        return found


class StateQuery:
    """One consumer with `handler`, or `Handlers`; it holds what `hold` says."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaSettings,
        group: GroupOffsets,
        folder: Path,
        handler: Any,
        most: int = 100_000,
        name: str = "me",
        topics: StateTopics | None = None,
    ) -> None:
        self.states = States(CLUSTER, name, kafka, topics or StateTopics([".*"]), folder)
        handlers = handler if isinstance(handler, Handlers) else Handlers((), (handler,))
        self.agent = Agent(name, fencing=True, states=self.states, handler_of=handlers.number_of)
        self._kafka, self._group, self._zxid = kafka, group, 0
        self._api = HttpServer(
            "local-api", make_local_api(self.agent, kafka, Bounds(most, LONGEST), 0.05, {}), "127.0.0.1", 0
        )
        self._committer = Committer(self.agent, kafka, CLUSTER, True, states=self.states)
        self._keeper = Keeper(self.agent, self.states)
        self._supervisor = QuerySupervisor(
            spark,
            self.agent,
            SerialHandler(handlers.all, self.agent),
            self._api.url,
            name,
            states=self.states,
        )
        self._threads = [
            threading.Thread(target=run, args=(beat,), daemon=True)
            for run, beat in (
                (self._committer.run, partial(confirm, self.agent)),
                (self._keeper.run, lambda: None),
                (self._supervisor.run, lambda: None),
            )
        ]

    def hold(self, topic: str, partitions: range, seeks: Mapping[int, Seek] | None = None) -> None:
        self._zxid += 1
        topic_id = self._group.topics.identities({topic}).ids[topic]
        node = TopicAssignment(
            self._kafka.bootstrap_servers,
            self._group.group_id,
            dict.fromkeys(partitions, self.agent.owner),
            self._zxid,
            topic_id=topic_id,
            seeks=seeks or {},
        )
        self.agent.assigned(topic, node, self._zxid)

    def errors(self) -> dict[str, str]:
        return dict(self.agent.view().problems)

    def __enter__(self) -> StateQuery:
        self._api.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.agent.blocks.block("the end")
        self.agent.wait_closed(30)
        self._supervisor.stop()
        self._threads[2].join(30)
        self._committer.stop()
        self._keeper.stop()
        self._api.stop()
        for thread in self._threads:
            thread.join(10)
        self.states.keep({})
        self.states.stores.release()


Make = Callable[..., StateQuery]
"""Makes a query of a folder, a handler, and what else `StateQuery` takes by name."""
