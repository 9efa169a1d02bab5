"""Kafka: which topics and partitions there are, and the group's committed offsets.

A topic is its id: one that is deleted and created again under its name has another, and none of its offsets. Records
never run out, except in a topic that has just been created again `small`; retention may take them before they are
read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from muster.core.model import TopicPartition
from muster.core.offsets import TopicOffsets
from muster.core.ownership import Source
from muster.core.positions import Committed, of_another_topic
from muster.core.wire import Racks
from muster.edges.kafka import KafkaError
from tests.faults.model.state import Log

Record = tuple[str, str, int]
"""What a committed offset belongs to: group, topic id and partition."""


@dataclass
class Brokers:
    topics: dict[str, frozenset[int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """The id of each topic there is."""
    committed: dict[Record, Committed] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By transactional id: the producer id that it has, and the epoch of who initialised it last."""
    small: set[str] = field(default_factory=set)
    """Topics without records."""
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic id and partition: the first offset that retention has left; 0 where it has taken nothing."""
    changelogs: dict[TopicPartition, Log] = field(default_factory=dict)
    away: bool = False
    made: int = 0
    producer_ids: int = 0

    def create(self, topic: str, partitions: frozenset[int], small: bool = False) -> None:
        self.made += 1
        self.topics[topic] = partitions
        self.ids[topic] = f"{topic}-{self.made}"
        if small:
            self.small.add(topic)

    def delete(self, topic: str) -> None:
        del self.topics[topic], self.ids[topic]
        self.small.discard(topic)

    def initialise(self, name: str) -> tuple[int, int]:
        """A producer initialises this transactional id. One that is not known gets a new producer id."""
        if name not in self.producers:
            self.producer_ids += 1
            self.producers[name] = (self.producer_ids, -1)
        number, epoch = self.producers[name]
        self.producers[name] = (number, epoch + 1)
        self.end_transaction(name, lands=False)
        return self.producers[name]

    def changelog(self, topic: str, partition: int) -> Log:
        """One partition of a changelog."""
        return self.changelogs.setdefault((topic, partition), Log())

    def end_transaction(self, name: str, lands: bool) -> None:
        """What a producer has written to changelogs counts from now on, or never."""
        for log in self.changelogs.values():
            log.close(name, lands)

    def record(self, key: TopicPartition, group: str) -> Record:
        """What an offset that is committed now belongs to."""
        return group, self.ids.get(key[0], ""), key[1]

    def is_the_topic(self, topic: str, source: Source) -> bool:
        """Whether the topic that has this name is the one of `source`, as far as that says which it is."""
        return topic in self.ids and source.topic_id in {"", self.ids[topic]}

    def exists(self, record: Record) -> bool:
        """Whether the topic is still there."""
        return record[1] in self.ids.values()

    def begin(self, record: Record) -> int:
        """The first offset that there is of that very topic."""
        return self.begins.get(record[1:], 0)

    def offsets(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        """What Kafka says of these partitions; a topic that is not small always has more records."""
        tps = [
            (t, p) for t in sorted(partitions) for p in sorted(partitions[t]) if p in self.topics.get(t, ())
        ]
        records = {tp: self.record(tp, groups.get(tp[0], "")) for tp in tps}
        found = {tp: self.committed.get(record) for tp, record in records.items()}
        committed = {tp: None if there is None else there.offset for tp, there in found.items()}
        begins = {tp: self.begin(record) for tp, record in records.items()}
        ends = {
            tp: begins[tp] if tp[0] in self.small else max(begins[tp], committed[tp] or 0) + 1 for tp in tps
        }
        return TopicOffsets(partitions, ends, begins, committed)

    def stands(self, record: Record) -> int:
        """The offset that the group has committed of that very topic; 0 if none."""
        found = self.committed.get(record)
        return 0 if found is None or of_another_topic(found.metadata, record[1]) else found.offset


@dataclass
class Offsets:
    """`muster.edges.kafka_offsets.OffsetReader`."""

    brokers: Brokers
    at: Callable[[str], None]

    def read(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        self.at("read Kafka's offsets")
        if self.brokers.away:
            raise KafkaError("Kafka does not answer")
        return self.brokers.offsets(partitions, groups)


@dataclass
class Lister:
    """`muster.edges.kafka.TopicLister`."""

    brokers: Brokers
    at: Callable[[str], None]
    listed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """What was answered last."""

    def list_partitions(self) -> Mapping[str, frozenset[int]]:
        self.at("read Kafka")
        if self.brokers.away:
            raise KafkaError("Kafka does not answer")
        self.listed = dict(self.brokers.topics)
        return self.listed

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        self.at("ask Kafka for ids")
        if self.brokers.away:
            raise KafkaError("Kafka does not answer")
        return {topic: self.brokers.ids[topic] for topic in topics if topic in self.brokers.ids}

    def leader_racks(self) -> Mapping[str, Racks]:
        return {}
