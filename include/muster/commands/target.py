"""What a command acts on, and whether a name that a person gave means something there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from muster.commands.command import CommandError, listed
from muster.consumer.state.position import ANYWHERE, KEY, Position
from muster.core.model import (
    Consumer,
    FailingRecord,
    Stored,
    TopicAssignment,
    TopicPartition,
    TopicSnapshot,
)
from muster.core.partition_list import format_partitions
from muster.core.seeking import Bounds
from muster.core.wire import WireError
from muster.edges.consul import ConsulCluster
from muster.edges.dead_letters import (
    Letter,
    Record,
    Replay,
    Takes,
    list_topics,
    read_letters,
    what_takes,
)
from muster.edges.kafka import GroupOffsets, KafkaError
from muster.edges.kafka_import import commit_as_newest_owner
from muster.edges.record_reader import RecordReader
from muster.edges.state_changelog import changelog_topic, last_value
from muster.edges.status import StatusFailure, StatusResult, poll_statuses
from muster.edges.zookeeper import TopicStore
from muster.edges.zookeeper_consumers import OldGroup, read_old_group
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connection_lookup import Connections
from muster.settings.connection_parsing import ConnectionSettingsError
from muster.settings.connections import KafkaSettings


@dataclass(frozen=True)
class Failing:
    """A partition's live owner, by its id; the record that its handler fails with alone, if there is one; and the
    assignment of the topic."""

    owner: str
    record: FailingRecord | None
    assignment: TopicAssignment


@dataclass(frozen=True)
class Target:
    """A cluster with its connections. `store` connects to ZooKeeper when it is entered: most commands need Consul
    only, and work while ZooKeeper is unavailable."""

    cluster: ClusterSettings
    consul: ConsulCluster
    store: Callable[[], AbstractContextManager[TopicStore]]
    kafka: Callable[[], KafkaSettings] | None = None
    poll: Callable[..., Mapping[str, StatusResult]] = poll_statuses
    """Asks consumers for their status."""
    connections: Connections | None = None
    """For offsets that are imported: those of the consumers' jobs, and those that a source names."""
    own_rights: bool = False
    """Whether the process has the rights of the person who gives the command, as on the command line: that may then
    name any file or connection, and otherwise those that the settings allow."""

    @classmethod
    def of(cls, cluster: ClusterSettings, connections: Connections, *, own_rights: bool = False) -> Self:
        """Return the cluster's real servers. Raises `ConnectionSettingsError` without a connection to Consul."""
        consul = ConsulCluster.of(connections.consul(cluster.consul), cluster)

        def poll(consumers: Iterable[Consumer], timeout: float, **topics: Any) -> Mapping[str, StatusResult]:
            return poll_statuses(
                consumers, timeout, connections.status_pages(cluster.status), cluster=cluster.name, **topics
            )

        return cls(
            cluster,
            consul,
            lambda: TopicStore(connections.zookeeper(cluster.zookeeper), cluster.name, read_only=True),
            lambda: connections.kafka(cluster.kafka),
            poll,
            connections,
            own_rights,
        )

    @contextmanager
    def offsets(self, servers: str, group_id: str) -> Iterator[GroupOffsets]:
        """Open a group's offsets in the Kafka cluster at `servers`; what it does not answer is a `CommandError`."""
        try:
            with closing(GroupOffsets(self._kafka().at(servers), group_id)) as group:
                yield group
        except KafkaError as error:
            raise CommandError(f"{error}; nothing was changed") from error

    def bounds(
        self, partitions: Mapping[TopicPartition, TopicAssignment], moment: float | None = None
    ) -> dict[TopicPartition, Bounds]:
        """Return the offsets of partitions, each with its topic's assignment, as `GroupOffsets.bounds` does. Raises
        as `offsets`."""
        places: dict[tuple[str, str], list[TopicPartition]] = {}
        for tp, assignment in partitions.items():
            places.setdefault((assignment.bootstrap_servers, assignment.group_id), []).append(tp)
        found: dict[TopicPartition, Bounds] = {}
        for place, wanted in places.items():
            with self.offsets(*place) as group:
                found |= group.bounds(wanted, moment)
        return found

    def changelogs(self, partitions: Mapping[TopicPartition, TopicAssignment]) -> dict[TopicPartition, int]:
        """Return where the state by key of partitions is, by their changelogs; without those of which none says it.
        Raises `CommandError`."""
        found: dict[TopicPartition, int] = {}
        for (topic, partition), assignment in partitions.items():
            settings = self._kafka().at(assignment.bootstrap_servers)
            name = changelog_topic(self.cluster.name, self.cluster.state.together(topic)[0])
            try:
                text = last_value(settings, assignment.group_id, name, partition, KEY)
                place = None if text is None else Position.of(text).places.get(topic)
                if place is not None and place.offset != ANYWHERE:
                    found[topic, partition] = place.offset
            except (KafkaError, ValueError) as error:
                raise CommandError(f"changelog {name!r}, partition {partition}: {error}") from error
        return found

    @contextmanager
    def jobs_group(self, group_id: str) -> Iterator[GroupOffsets]:
        """Open a group's offsets with the connection to Kafka that the consumers' jobs have.

        Raises `ConnectionSettingsError`, `KafkaError`, and `CommandError` where there are no connections.
        """
        with closing(GroupOffsets(self._jobs_kafka(), group_id)) as group:
            yield group

    def commit_imported(
        self,
        group: GroupOffsets,
        offsets: Mapping[TopicPartition, int],
        stamps: Mapping[TopicPartition, str],
    ) -> None:
        """Commit the next offset to read of each partition, fenced if the cluster's consumers are. Raises
        `KafkaError`; then some may be committed, and committing again does no harm."""
        if self.cluster.fencing:
            commit_as_newest_owner(self._jobs_kafka(), self.cluster.name, group, offsets, stamps)
        else:
            group.commit(offsets, stamps)

    def old_group(self, conn_id: str, group: str) -> OldGroup:
        """Return what consumers of Kafka 0.8 left in the ZooKeeper of connection `conn_id`.

        Raises `ConnectionSettingsError`, `ZooKeeperError`, `ForeignOffsetsError` for a node that is no offset, and
        `CommandError` where there are no connections.
        """
        return read_old_group(self._connections().zookeeper(conn_id), group)

    def _jobs_kafka(self) -> KafkaSettings:
        return self._connections().kafka(self.cluster.consumers.kafka or self.cluster.kafka)

    def _connections(self) -> Connections:
        if self.connections is None:
            raise CommandError(
                f"cluster {self.cluster.name!r} has no connections here to import offsets with"
            )
        return self.connections

    def _kafka(self) -> KafkaSettings:
        """Return the cluster's connection to Kafka. Raises `CommandError` where there is none."""
        if self.kafka is None:
            raise CommandError(f"cluster {self.cluster.name!r} has no connection to Kafka here")
        return self.kafka()

    def dead_letters(self) -> Iterator[Letter]:
        """Read the cluster's dead letters, as `read_letters` does.

        Raises `ConnectionSettingsError`, `KafkaError`, and `CommandError` where there is no connection.
        """
        return read_letters(self._kafka(), self.cluster.dead_letter_topic, self.cluster.group_id)

    def kafka_topics(self) -> Mapping[str, Collection[int]]:
        """Return the topics of the cluster's Kafka, with their partitions. Raises as `dead_letters`."""
        return list_topics(self._kafka())

    def what_takes(self, topic: str) -> Takes | None:
        """Return which records a topic takes; None if its configuration may not be read. Raises as `dead_letters`."""
        return what_takes(self._kafka(), topic)

    def replay(self) -> Replay:
        """Return what writes the cluster's dead letters back. Raises as `dead_letters`."""
        return Replay(self._kafka(), self.cluster.name)

    def record(self, assignment: TopicAssignment, tp: TopicPartition, offset: int) -> Record | None:
        """Read one record of a topic with the `assignment` from Kafka; None if there is none (any more). What Kafka
        or its connection does not give is a `CommandError`."""
        try:
            return RecordReader(self._kafka().at(assignment.bootstrap_servers), assignment.group_id).read(
                tp, offset
            )
        except (ConnectionSettingsError, KafkaError) as error:
            raise CommandError(str(error)) from error

    def failing(self, topic: str, partition: int) -> Failing:
        """Return what the live owner of a partition fails with.

        Raises `CommandError` if there is no such partition or no live owner, or if that does not answer.
        """
        assignment = self.check_partitions(topic, frozenset({partition})).assignment
        owners = assignment.owners if assignment is not None else {}
        membership = self.consul.catalog.members().membership
        owner = membership.live.get(owners.get(partition, "")) if membership is not None else None
        if owner is None or assignment is None:
            raise CommandError(
                f"partition {partition} of topic {topic!r} has no live owner that could be asked"
            )
        answer = self.poll([owner], self.cluster.status_timeout, topics={owner.id: {topic}})[owner.id]
        if isinstance(answer, StatusFailure):
            raise CommandError(
                f"consumer {owner.id}, the owner of partition {partition}: {answer.reason}; try again"
            )
        return Failing(owner.id, answer.on(topic).failing.get(partition), assignment)

    def stored(
        self, partitions: Mapping[TopicPartition, TopicAssignment]
    ) -> dict[TopicPartition, Mapping[str, Stored] | str]:
        """Return what sinks have of each partition, by their names, as its live owner says; or why that is not known,
        in words."""
        membership = self.consul.catalog.members().membership
        live = {} if membership is None else membership.live
        owners = {tp: assignment.owners.get(tp[1], "") for tp, assignment in partitions.items()}
        asked: dict[str, set[str]] = {}
        for (topic, _), owner in owners.items():
            if owner in live:
                asked.setdefault(owner, set()).add(topic)
        consumers = [live[owner] for owner in sorted(asked)]
        answers = self.poll(consumers, self.cluster.status_timeout, topics=asked) if asked else {}
        return {tp: _stored(tp, owner, answers.get(owner)) for tp, owner in owners.items()}

    def check_consumer(self, consumer: str) -> None:
        """Raise `CommandError` unless `consumer` is registered, configured or isolated already."""
        configured = self.cluster.consumer_ids()
        members = self.consul.catalog.members()
        if consumer not in {*members.registered, *configured, *self.consul.overrides.isolated()}:
            live = "unknown" if members.membership is None else listed(members.membership.live)
            raise CommandError(
                f"cluster {self.cluster.name!r} has no consumer {consumer!r}; live are: {live}; registered in Consul "
                f"are: {listed(members.registered)}; configured are: {', '.join(configured) or 'none'}"
            )

    def check_topic(self, topic: str) -> None:
        """Raise `CommandError` unless `topic` is coordinated in this cluster, or configured by its name."""
        with self.store() as store:
            known = {*store.topics(), *self.cluster.topics.names}
        if topic not in known:
            raise CommandError(
                f"cluster {self.cluster.name!r} has no topic {topic!r}; its topics are: {listed(known)}"
            )

    def check_partitions(self, topic: str, partitions: frozenset[int]) -> TopicSnapshot:
        """Return what is known of `topic`. Raises `CommandError` unless it is coordinated in this cluster and has all
        of `partitions`."""
        with self.store() as store:
            found = store.snapshots()
        if topic not in found:
            raise CommandError(
                f"cluster {self.cluster.name!r} has no topic {topic!r} yet; its topics are: {listed(found)}. "
                "A topic is known once it stands in the settings and the coordinator's fetch_partitions has run"
            )
        snapshot = found[topic]
        if isinstance(snapshot, WireError):
            raise CommandError(f"the partitions of topic {topic!r} are unknown: {snapshot}")
        if missing := partitions - snapshot.partitions:
            raise CommandError(
                f"topic {topic!r} has no partition(s) {format_partitions(missing)}; it has "
                f"{format_partitions(snapshot.partitions)}"
            )
        return snapshot


def _stored(tp: TopicPartition, owner: str, answer: StatusResult | None) -> Mapping[str, Stored] | str:
    if answer is None:
        return f"its owner {owner} is not live" if owner else "no consumer has it"
    if isinstance(answer, StatusFailure):
        return f"its owner {owner} does not answer ({answer.reason})"
    known = answer.on(tp[0]).stored.get(tp[1])
    return f"its owner {owner} has had no batch of it yet" if known is None else known
