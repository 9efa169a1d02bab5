"""The Spark query of a consumer process and its planner, simulated: one batch at a time.

Each batch has one more record of each partition whose turn it is. Where partitions go on is decided by the project's
own rules, which are the planner's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muster.consumer.state.errors import StateStoreError
from muster.core import positions
from muster.core.model import Seek, TopicPartition
from muster.core.ownership import BatchPlan, Offer, Source
from muster.core.positions import Jump, Note, Start
from muster.core.turns import Failure
from tests.faults.model.kafka import Record
from tests.faults.model.state import AT_ONCE, compute

if TYPE_CHECKING:
    from tests.faults.model.process import Process


@dataclass
class Places:
    """Where the partitions of a plan go on, and why where it is elsewhere."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    jumps: dict[TopicPartition, Jump] = field(default_factory=dict)
    losses: dict[TopicPartition, Jump] = field(default_factory=dict)
    sought: dict[TopicPartition, Seek] = field(default_factory=dict)


class Query:
    """The Spark query and its planner: one batch at a time, one more record of each partition in each."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.agent = process.agent
        self.token = ""
        self.stands: dict[str, dict[int, tuple[int, int]]] = {}
        self.notes: dict[TopicPartition, Note] = {}
        """What was committed with the offset that each partition began at."""
        self.batch: BatchPlan | None = None
        self.began = 0.0
        """When the batch under way began."""
        self.computed: dict[TopicPartition, Any] | Failure = {}
        """What the batch makes of its shards, or why that failed."""
        self.first = True
        self.stopping = self.ended = False
        self.start()

    def start(self) -> None:
        self.token = self.agent.query_started()
        self.stands = {}
        self.batch = None
        self.first = True
        self.plan()

    def fail_batch(self) -> None:
        """The handler raises: the batch under way has failed, and the query goes on."""
        batch, self.batch = self.batch, None
        if batch is not None:
            self.agent.batch_done(batch, Failure("it raised"))

    def fail(self) -> None:
        """The query ends with an error, and is started again."""
        self.fail_batch()
        self.agent.query_ended(failed=True)
        self.start()

    def end(self) -> None:
        """It is stopped, or its JVM is gone; a batch under way is lost."""
        if not self.ended:
            self.ended = True
            self.fail_batch()
            self.agent.query_ended(failed=False)

    def go_on(self) -> None:
        """Plan the next batch and begin it, or end, if no batch is under way."""
        if self.ended or self.batch is not None:
            return
        if self.stopping:
            self.end()
        else:
            self.plan()

    def plan(self) -> None:
        """Ask what may be read, plan a batch and begin it. With nothing to read, nothing is planned."""
        offer = self.agent.offer(self.token)
        found = self._places(offer)
        alone = {key for key, seek in found.sought.items() if seek.rebuild}
        moved = found.sought.keys() | found.jumps.keys()
        alone |= {key for key in moved if self.agent.states.topics.has(key[0])}
        ready = {key for key in found.starts if self._there(key[0])}
        turn = self.agent.failing.turn(ready - found.losses.keys() - alone)
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for (name, partition), begin in found.starts.items():
            ranges.setdefault(name, {})[partition] = (begin, begin + self._size((name, partition), turn))
        if ranges == self.stands and offer.again:
            ranges = {
                name: {partition: (begin, begin) for partition, (begin, _) in planned.items()}
                for name, planned in ranges.items()
            }
        before, self.stands = self.stands, ranges
        for key, seek in found.sought.items():
            self._read(key, offer.topics[key[0]].source)
            self.process.world.watchman.flow.seeks(self.process, key, seek)
        self.agent.planned(
            self.token,
            offer.asked,
            before,
            ranges,
            {key: begin + AT_ONCE * self._there(key[0]) for key, begin in found.starts.items()},
            [],
            found.jumps,
            notes=self.notes,
            sought=found.sought,
            losses=found.losses,
        )
        self.notes = {key: note for key, note in self.notes.items() if key in found.starts}
        if ranges == before and not self.first:
            return
        self.first = False
        self.batch, self.began = self.agent.batch_started(), self.process.world.now
        for key in found.starts:
            self._read(key, offer.topics[key[0]].source)
        for key, (begin, _) in self.batch.filled.items():
            from_committed = key[1] not in before.get(key[0], {}) or key in found.jumps
            self.process.world.watchman.begins(self.process, key, begin, from_committed)
        self._compute()

    def _size(self, key: TopicPartition, turn: Mapping[TopicPartition, int | None]) -> int:
        """How many records of a partition the next batch has; more than one of those with state, if it may."""
        if key not in turn:
            return 0
        limit, whole = turn[key], AT_ONCE if self.agent.states.topics.has(key[0]) else 1
        return whole if limit is None else min(limit, whole)

    def _compute(self) -> None:
        self.computed = {}
        if self.batch is not None and self.process.states is not None:
            try:
                self.computed = compute(self.process.states, self.batch)
            except StateStoreError as error:
                self.computed = Failure(str(error), of_record=False)

    def _places(self, offer: Offer) -> Places:
        found = Places()
        for name, topic in offer.topics.items():
            for partition in sorted(topic.partitions):
                key = (name, partition)
                start = self._start(key, topic.source, offer.again)
                if start is None or (key in offer.in_group and not self._in_group(key, topic.source)):
                    continue
                seek = offer.seeks.get(key)
                if seek is not None and not self._cut_off(name) and not self.notes[key].has(seek.id):
                    start = self._sought(key, topic.source, start, offer.again, seek)
                    found.sought[key] = replace(seek, offset=start.offset)
                if start.jump is not None and not self.agent.parked.accepts(key, start.jump):
                    found.losses[key] = start.jump
                    start = Start(start.jump.before)
                    found.sought.pop(key, None)
                elif start.jump is not None:
                    found.jumps[key] = start.jump
                found.starts[key] = start.offset
        return found

    def _start(
        self, key: TopicPartition, source: Source, again: Mapping[TopicPartition, int]
    ) -> Start | None:
        """Where a partition goes on, as the source decides it; None if that is unknown for now."""
        kafka = self.process.world.kafka
        stood = self.stands.get(key[0], {}).get(key[1])
        before = None if stood is None else Start(again.get(key, stood[1]))
        if self.process.cut_off_from_kafka or key[0] not in kafka.topics:
            return before
        record = kafka.record(key, source.group_id)
        begin = kafka.begin(record)
        if before is not None:
            start = positions.go_on(before.offset, begin)
        else:
            start = positions.start(None, kafka.committed.get(record), source.topic_id, begin)
            self.notes[key] = positions.taken_up(kafka.committed.get(record), source.topic_id)
        if key[0] not in kafka.small or start.offset == 0:
            return start
        kafka_id = kafka.ids[key[0]]
        return positions.after_the_end(start.offset, 0, 0, source.topic_id, kafka_id) or before

    def _sought(
        self,
        key: TopicPartition,
        source: Source,
        start: Start,
        again: Mapping[TopicPartition, int],
        seek: Seek,
    ) -> Start:
        """Where a partition goes on that is sought, or whose seek was taken back, as the source decides it."""
        if seek.offset is None:
            return start
        kafka = self.process.world.kafka
        stood = self.stands.get(key[0], {}).get(key[1])
        position = None if stood is None else again.get(key, stood[1])
        begin = kafka.begin(kafka.record(key, source.group_id))
        end = begin if key[0] in kafka.small else max(start.offset, seek.offset)
        return positions.sought(position, start, seek.offset, begin, end)

    def _cut_off(self, topic: str) -> bool:
        return self.process.cut_off_from_kafka or topic not in self.process.world.kafka.topics

    def _in_group(self, key: TopicPartition, source: Source) -> bool:
        kafka = self.process.world.kafka
        return kafka.record(key, source.group_id) in kafka.committed

    def _read(self, key: TopicPartition, source: Source) -> None:
        """Note what is read, as far as the process knows."""
        _, topic_id, partition = self.process.world.kafka.record(key, source.group_id)
        self.process.read[key] = (source.group_id, source.topic_id or topic_id, partition)
        if self.process.processed.get(key) != self.process.read[key]:
            self.process.processed.pop(key, None)  # of another topic, which is closed

    def _there(self, topic: str) -> bool:
        """Whether records of a topic can be had."""
        kafka = self.process.world.kafka
        return not self.process.cut_off_from_kafka and topic in kafka.topics and topic not in kafka.small

    @property
    def records(self) -> set[tuple[Record, int]]:
        """The records of the batch under way."""
        filled = {} if self.batch is None else self.batch.filled
        return {
            (self.process.read[key], at) for key, (begin, end) in filled.items() for at in range(begin, end)
        }

    def finish(self) -> None:
        """The handler returns, or fails with a record."""
        if self.batch is None:
            return
        if self.records & self.process.world.bad:
            self.fail_batch()
            return
        batch, self.batch = self.batch, None
        if isinstance(self.computed, Failure):
            self.agent.batch_done(batch, self.computed)
            return
        if self.process.states is not None:
            self.process.states.computed(self.computed)
        self.agent.batch_done(batch, None)
        for name, ranges in batch.offsets.items():
            for partition, (begin, end) in ranges.items():
                key = (name, partition)
                self.process.processed[key] = self.process.read[key]
                if end > begin:
                    self.process.world.watchman.processed(self.process, key, end)
