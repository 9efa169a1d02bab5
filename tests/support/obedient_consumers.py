"""Live consumers for tests of the coordinator on real servers: registered in Consul, and running whatever ZooKeeper
assigns to them, without Kafka or Spark behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from muster.coordinator.coordinator import Coordinator
from muster.core.assignors import Assignor, load_assignor
from muster.core.model import TopicPartition, TopicSnapshot
from muster.edges.consul import ConsulCluster
from muster.edges.status import poll_statuses
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings
from tests.support.http_pages import Page, Pages, Request
from tests.support.runs import Topics


def owners(store: TopicStore) -> dict[str, dict[int, str]]:
    """Who owns what, by ZooKeeper."""
    return {
        topic: dict(read.assignment.owners)
        for topic, read in store.snapshots().items()
        if isinstance(read, TopicSnapshot) and read.assignment is not None
    }


Failing = Mapping[TopicPartition, Mapping[str, Any]]


def _status(store: TopicStore, consumer: str, failing: Failing) -> Page:
    topics: dict[str, Any] = {}
    for topic, held in owners(store).items():
        own = sorted(p for p, owner in held.items() if owner == consumer)
        fails = {str(p): failing[topic, p] for p in own if (topic, p) in failing}
        topics[topic] = {"running": own, "failing": fails}
    answer = {"consumer": consumer, "incarnation": f"{consumer}-1", "topics": topics}
    return Page(json.dumps(answer).encode())


@contextmanager
def registered(
    store: TopicStore,
    discovery: ConsulCluster,
    consumers: Mapping[str, Mapping[str, str]],
    failing: Failing = MappingProxyType({}),
) -> Iterator[None]:
    """Register consumers, id to metadata, and take them out again at the end.

    `failing` is what the status page says of the records that an owner fails with, as it is at that moment.
    """

    def answer(consumer: str) -> Pages:
        def page(_: Request) -> Page:
            return _status(store, consumer, failing)

        return Pages(page)

    with ExitStack() as stack:
        for consumer, meta in consumers.items():
            pages = stack.enter_context(answer(consumer))
            url = f"http://127.0.0.1:{pages.port}/status"
            discovery.catalog.register(consumer, "127.0.0.1", pages.port, meta, url, 0.2, 60.0)
            stack.callback(discovery.catalog.deregister, consumer)
        yield


def coordinator(
    cluster: ClusterSettings, store: TopicStore, discovery: ConsulCluster, assignor: Assignor | None = None
) -> Coordinator:
    """A coordinator without Kafka: the test makes the partitions known itself."""
    return Coordinator(
        cluster,
        KafkaSettings(config={"bootstrap.servers": "127.0.0.1:9"}),
        store,
        discovery.catalog,
        discovery.overrides,
        Topics(),
        poll_statuses,
        assignor or load_assignor(cluster.assignor.name, cluster.assignor.options),
    )
