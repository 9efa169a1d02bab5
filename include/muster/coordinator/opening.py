"""Connects a coordinator to its servers, in a process that does little else."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.seeker import Seeker
from muster.core.deployment import Deployment
from muster.edges import consul, kafka, status, zookeeper
from muster.edges.kafka_offsets import OffsetReader
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import (
    OPEN_PAGES,
    ConsulSettings,
    KafkaSettings,
    StatusPageSettings,
    ZooKeeperSettings,
)

YOUNG_OBJECTS = 200_000
"""Objects that are made until a garbage collection begins; Python's default is 700."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage only after `YOUNG_OBJECTS` objects, and none of those that exist now, in the whole process.

    A reading of a large cluster makes hundreds of thousands of objects, none of them in a cycle, and the collector
    goes through them again and again as they become more: that was half of the time of a run with nothing to do. A
    run makes few cycles, and its process ends with it.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def open_coordinator(
    cluster: ClusterSettings,
    zookeeper_settings: ZooKeeperSettings,
    consul_settings: ConsulSettings,
    kafka_settings: KafkaSettings,
    status_pages: StatusPageSettings = OPEN_PAGES,
    by: str = "",
) -> Iterator[Coordinator]:
    """Connect to the edges of `cluster` and close them again at the end.

    `status_pages` says how the consumers' status pages are guarded. `by` is who coordinates,
    for the history: a DAG and its run.

    It is for a process that coordinates and does little else: see `rare_collections`.

    Raises `ZooKeeperError` if ZooKeeper is out of reach. The assignor is loaded, and Kafka and Consul are contacted,
    when they are first needed.
    """
    lister = kafka.TopicLister(kafka_settings)
    seeker = Seeker(cluster.name, kafka_settings, cluster.fencing, cluster.state)
    offsets = OffsetReader(kafka_settings, cluster.group_id)
    try:
        with (
            rare_collections(),
            zookeeper.TopicStore(zookeeper_settings, cluster.name, by=by) as store,
        ):
            found = consul.ConsulCluster.of(consul_settings, cluster)
            poll = partial(status.poll_statuses, pages=status_pages, cluster=cluster.name)
            yield Coordinator(
                cluster,
                kafka_settings,
                store,
                found.catalog,
                found.overrides,
                lister,
                poll,
                seeker=seeker,
                offsets=offsets,
                deployment=Deployment.of(zookeeper_settings.hosts, cluster.name),
            )
    finally:
        offsets.close()
        seeker.close()
        lister.close()
