"""Seeks as the coordinator sees them in Kafka: which were carried out, and those that no consumer can carry out.

A seek was carried out, or a later one was, when an id that is not lower went with what is committed of its partition.
So that is known in one place, whatever died in between, and no backup of ZooKeeper or Consul reaches it. Where no
consumer has the partition the coordinator commits the offset itself, fenced like an owner: a consumer that takes the
partition up at the same moment either reads the new offset, or fences the coordinator off and carries the seek out.
Topics with state by key wait for an owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from muster.core.model import Seek, TopicAssignment, TopicPartition
from muster.core.positions import Committed, format_stamp, noted, of_another_topic, taken_up
from muster.core.state_topics import NO_STATE, StateTopics
from muster.edges.kafka import GroupOffsets, PartitionError
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings

_WITH_STATE = (
    "the topic has state by key, and only an owner changes position and state together; start a consumer that takes "
    "it, or take the seek back with cancel-seek"
)

_NOTHING_COMMITTED = "nothing is committed of it yet, so its first owner notes that the seek was taken back"

Seeks = Mapping[TopicPartition, Seek]
Assignments = Mapping[str, TopicAssignment]


@dataclass
class Seeker:
    """Looks at the seeks of `cluster`. Clients are opened when they are first needed, and closed with `close`."""

    cluster: str
    kafka: KafkaSettings
    fencing: bool = True
    state: StateTopics = NO_STATE
    _groups: dict[tuple[str, str], GroupOffsets] = field(default_factory=dict, init=False)

    def carried_out(self, seeks: Seeks, assignments: Assignments) -> frozenset[TopicPartition]:
        """Return the partitions whose seek was carried out. Raises `KafkaError` if none can be asked about."""
        found: set[TopicPartition] = set()
        for place, of_place in _by_place(seeks, assignments).items():
            positions = _positions(self._group(*place), of_place)  # the others are asked about again
            found |= {
                tp
                for tp, seek in of_place.items()
                if noted(positions.get(tp), assignments[tp[0]].topic_id).has(seek.id)
            }
        return frozenset(found)

    def carry_out(self, seeks: Seeks, assignments: Assignments) -> dict[TopicPartition, str]:
        """Commit the offsets of these partitions, which no consumer has. Returns why some could not be, which are to
        be tried again; those of topics with state by key wait for an owner. Raises `KafkaError`."""
        failures = {tp: _WITH_STATE for tp in seeks if self.state.has(tp[0])}
        alone = {tp: seek for tp, seek in seeks.items() if tp not in failures}
        for place, of_place in _by_place(alone, assignments).items():
            group = self._group(*place)
            topic_ids = {tp: assignments[tp[0]].topic_id for tp in of_place}
            if not self.fencing:
                group.commit(*self._due(of_place, topic_ids, _positions(group, of_place), failures))
                continue
            with self._commits(place[0], group) as commits:
                claims = commits.claim(of_place)
                # What is committed is read after the claim, so no owner commits another number afterwards.
                there = _positions(group, claims.done)
                outcome = commits.commit(*self._due(of_place, topic_ids, there, failures))
                failures |= {**claims.failed, **outcome.failed, **outcome.refused}
                commits.release(list(of_place))
        return failures

    def _due(
        self,
        seeks: Seeks,
        topic_ids: Mapping[TopicPartition, str],
        committed: Mapping[TopicPartition, Committed | None],
        failures: dict[TopicPartition, str],
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return offsets and metadata to commit, of the partitions of which it is known what is `committed`, and that
        an owner has not carried out meanwhile."""
        offsets: dict[TopicPartition, int] = {}
        stamps: dict[TopicPartition, str] = {}
        for tp, there in committed.items():
            seek, topic_id = seeks[tp], topic_ids[tp]
            note = taken_up(there, topic_id)
            stands = None if there is None or of_another_topic(there.metadata, topic_id) else there.offset
            offset = stands if seek.offset is None else seek.offset
            if offset is None:
                failures[tp] = _NOTHING_COMMITTED
            elif not note.has(seek.id):
                note = note.after(seek, stands or 0).at(offset)
                offsets[tp], stamps[tp] = offset, format_stamp(self.cluster, topic_id, note)
        return offsets, stamps

    def close(self) -> None:
        """Let go of the connections."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    def _group(self, servers: str, group_id: str) -> GroupOffsets:
        if (servers, group_id) not in self._groups:
            self._groups[servers, group_id] = GroupOffsets(self.kafka.at(servers), group_id)
        return self._groups[servers, group_id]

    @contextmanager
    def _commits(self, servers: str, group: GroupOffsets) -> Iterator[FencedCommits]:
        commits = FencedCommits(self.kafka.at(servers), self.cluster, group)
        try:
            yield commits
        finally:
            commits.close()


def _positions(
    group: GroupOffsets, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, Committed | None]:
    """Return what is committed, as far as Kafka tells it."""
    try:
        return group.positions(partitions)
    except PartitionError as error:
        return error.offsets


def _by_place(seeks: Seeks, assignments: Assignments) -> dict[tuple[str, str], dict[TopicPartition, Seek]]:
    """Group the seeks by where they are carried out: bootstrap servers and group."""
    found: defaultdict[tuple[str, str], dict[TopicPartition, Seek]] = defaultdict(dict)
    for tp, seek in seeks.items():
        if (assignment := assignments.get(tp[0])) is not None:
            found[assignment.bootstrap_servers, assignment.group_id][tp] = seek
    return dict(found)
