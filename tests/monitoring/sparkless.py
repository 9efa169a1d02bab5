"""A whole consumer but for Spark: agent, registration, assignments, commits and pages are the real ones.

In Spark's place is a loop that plans as the source does, from the real offsets, and hands over batches whose records
are not looked at.
"""

from __future__ import annotations

import threading
import uuid
from types import TracebackType
from typing import Self

from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.consumer.blocks import STOPPING
from muster.consumer.committer import Committer
from muster.consumer.http_server import HttpServer
from muster.consumer.lifecycle import Beat, Ending, Loop
from muster.consumer.registration import Registrar
from muster.consumer.status_page import make_status_page
from muster.core.model import TopicPartition
from muster.core.ownership import Offer
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings

Ranges = dict[str, dict[int, tuple[int, int]]]


class Sparkless:
    """A context manager: registered inside, closed and gone outside. `limit` is what a batch takes of a partition."""

    def __init__(
        self,
        name: str,
        cluster: ClusterSettings,
        zookeeper: ZooKeeperSettings,
        consul: ConsulSettings,
        kafka: KafkaSettings,
        token: str | None = None,
        topics: str = "",
    ) -> None:
        settings = ConsumerSettings(
            cluster=cluster.name,
            consumer=name,
            incarnation=str(uuid.uuid4()),
            consul_service=cluster.consul_service,
            zookeeper=zookeeper,
            consul=consul,
            kafka=kafka,
            handler="not.used",
            metadata={"topics": topics} if topics else {},
            bind="127.0.0.1",
            advertise="127.0.0.1",
            check_interval=0.3,
            status_token=token,
        )
        self.incarnation = settings.incarnation
        self.limit = 1_000_000
        self.agent = Agent(name, fencing=True)
        self._group = GroupOffsets(kafka, cluster.group_id)
        self._ending = Ending()
        self._stop = threading.Event()
        self._page = HttpServer(
            "status-page", make_status_page(self.agent, settings, list), settings.bind, settings.port
        )
        discovery = ConsulCluster(consul, cluster.name, cluster.consul_service)
        self._registrar = Registrar(settings, discovery, self.agent, self._ending, self._page.port)
        self._watch = AssignmentWatch(zookeeper, cluster.name, self.agent, 5.0)
        self._committer = Committer(self.agent, kafka, cluster.name, fencing=True)
        self._loops = [
            Loop(what, body, 60.0, self._ending)
            for what, body in (
                ("zookeeper", self._watch.run),
                ("consul", self._registrar.run),
                ("commit", self._committer.run),
                ("query", self._query),
            )
        ]

    @property
    def url(self) -> str:
        return self._page.url

    def __enter__(self) -> Self:
        self._page.start()
        for loop in self._loops:
            loop.start()
        self._registrar.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.agent.blocks.block(STOPPING)
        self.agent.wait_closed(10.0)
        self._registrar.leave()
        self._stop.set()
        self._watch.stop()
        self._committer.stop()
        for loop in self._loops:
            loop.join(5.0)
        self._group.close()
        self._page.stop()

    def _query(self, beat: Beat) -> None:
        token = self.agent.query_started()
        last: Ranges | None = None
        while not self._stop.wait(0.05):
            beat()
            offer = self.agent.offer(token)
            ranges, ends = self._plan(offer, last or {})
            self.agent.planned(token, offer.asked, last or {}, ranges, ends, [])
            if ranges != last:
                self.agent.batch_done(self.agent.batch_started(), None)
                last = ranges
        self.agent.query_ended(failed=False)

    def _plan(self, offer: Offer, last: Ranges) -> tuple[Ranges, dict[TopicPartition, int]]:
        ranges: Ranges = {}
        ends: dict[TopicPartition, int] = {}
        for topic, offered in offer.topics.items():
            keys = [(topic, partition) for partition in offered.partitions]
            known = last.get(topic, {})
            committed = self._group.committed([key for key in keys if key[1] not in known])
            found = self._group.end_offsets(keys)
            ends |= found
            for key in keys:
                begin = known[key[1]][1] if key[1] in known else committed[key] or 0
                end = min(found[key], begin + self.limit)
                ranges.setdefault(topic, {})[key[1]] = (begin, end)
        return ranges, ends
