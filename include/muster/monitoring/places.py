"""Asks the four places for one cluster. The connections are found as the command line finds them: in the environment,
else by Airflow, in whose API server this runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from muster.core.readable import readable
from muster.core.subscription import TopicDecision
from muster.edges.consul import Discovery
from muster.edges.kafka import KafkaError, PartitionError, TopicLister
from muster.edges.kafka_groups import TopicGroups
from muster.edges.zookeeper import TopicStore
from muster.monitoring.reading import Consumers, Offsets, Page, Topics
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_lookup import CONNECTIONS
from muster.settings.connections import KafkaSettings

CALL_TIMEOUT = 4.0
"""Seconds for one call, at most: Prometheus gives up a scrape after ten by default."""

TopicPartition = tuple[str, int]
Value = TypeVar("Value", int, int | None)


def read_topics(cluster: ClusterSettings) -> Topics:
    """Read ZooKeeper. Raises `ZooKeeperError` or `ConnectionSettingsError`."""
    settings = CONNECTIONS.zookeeper(cluster.zookeeper)
    settings = settings.model_copy(update=_sooner(settings.operation_timeout))
    with TopicStore(settings, cluster.name, read_only=True) as store:
        snapshots, left_alone = readable(store.snapshots())
    return Topics(snapshots, left_alone)


def read_consumers(cluster: ClusterSettings) -> Consumers:
    """Read Consul. Raises `ConsulError` or `ConnectionSettingsError`."""
    settings = CONNECTIONS.consul(cluster.consul)
    settings = settings.model_copy(update={"timeout": min(settings.timeout, CALL_TIMEOUT)})
    discovery = Discovery.of(settings, cluster)
    members = discovery.members()
    return Consumers(
        membership=members.membership,
        doubt=members.doubt,
        registered={
            each.id: Page(each.address, each.port, each.meta.get("host", each.address))
            for each in members.registered.values()
        },
        isolated=members.membership.isolated if members.membership is not None else frozenset(),
        decisions=discovery.decisions(),
    )


class KafkaReader:
    """Reads a cluster's offsets, on connections that stay open from one reading to the next. Not thread-safe.

    `decided` gives what is known of the topics that persons subscribed and unsubscribed, without asking anybody: a
    Consul that hangs is no reason not to tell of Kafka. In the same way `groups` gives the group that each topic's
    assignment in ZooKeeper names; topics that are not in it are read by the group in the settings.
    """

    def __init__(
        self,
        cluster: ClusterSettings,
        decided: Callable[[], Iterable[TopicDecision]],
        groups: Callable[[], Mapping[str, str]],
    ) -> None:
        self._cluster = cluster
        self._decided = decided
        self._named = groups
        self._settings: KafkaSettings | None = None
        self._lister: TopicLister | None = None
        self._groups: TopicGroups | None = None

    def read(self) -> Offsets:
        """Read Kafka. Raises `KafkaError` or `ConnectionSettingsError`; the next reading connects again."""
        settings = CONNECTIONS.kafka(self._cluster.kafka)
        settings = settings.model_copy(update=_sooner(settings.operation_timeout))
        if settings != self._settings:
            self.close()
        self._settings = settings
        try:
            return self._read(settings)
        except KafkaError:
            # librdkafka's admin client goes on asking with the leaders that it knows, and would fail for minutes.
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connections."""
        for client in (self._lister, self._groups):
            if client is not None:
                client.close()
        self._lister = self._groups = None

    def _read(self, settings: KafkaSettings) -> Offsets:
        lister = self._lister = self._lister or TopicLister(settings)
        readers = self._groups = self._groups or TopicGroups(settings, self._cluster.group_id)
        subscribed = self._cluster.topics.read_with(self._decided())
        found = {
            topic: partitions
            for topic, partitions in lister.list_partitions().items()
            if subscribed.includes(topic)
        }
        keys = [(topic, partition) for topic in sorted(found) for partition in sorted(found[topic])]
        if not keys:
            return Offsets()
        errors: list[str] = []
        # The ends last: read first, a group that is quick could be ahead of them.
        committed: dict[TopicPartition, int | None] = {}
        groups: dict[str, str] = {}
        for group, of_group in readers.each(keys, self._named()):
            committed |= _partly(group.committed, of_group, errors)
            if group is not readers.default:
                groups |= {topic: group.group_id for topic, _ in of_group}
        beginnings = _partly(readers.default.beginning_offsets, keys, errors)
        ends = _partly(readers.default.end_offsets, keys, errors)
        return Offsets(found, ends, beginnings, committed, "; ".join(errors), groups)


def _partly(
    call: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Value]],
    keys: Iterable[TopicPartition],
    errors: list[str],
) -> Mapping[TopicPartition, Value]:
    """What `call` can tell; what it says of the others goes to `errors`."""
    try:
        return call(keys)
    except PartitionError as error:
        errors.append(str(error))
        return error.offsets


def _sooner(timeout: float) -> dict[str, float]:
    return {"operation_timeout": min(timeout, CALL_TIMEOUT)}
