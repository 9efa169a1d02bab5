"""Single records of Kafka, read again: those that get dead letters, and the one that a person is asked about."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Message
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.edges.dead_letters import Record, open_reader
from muster.edges.kafka_admin import Failure, KafkaError, next_step
from muster.settings.connections import KafkaSettings

AT_ONCE = 32 * 1024 * 1024
"""Bytes of records that are read at once."""
READ_AHEAD = 100_000
"""Records up to which the client reads ahead for several ones; with few it waits a second after each answer."""
TAKEN = 200
"""Records that are taken from librdkafka at once: as few as the processor's caches hold."""
FAR = 1 << 20
"""About so many bytes up to the next record that is wanted are read, and more are jumped over: with a jump all that
was read ahead is read in vain."""
OWN = 64
"""Bytes that Kafka adds to a record, about."""


@dataclass(frozen=True)
class Found:
    """Records that were read, by partition and offset; None for one that Kafka has no more. `failed` says why the
    next one of a partition could not be read."""

    records: dict[TopicPartition, dict[int, Record | None]]
    failed: dict[TopicPartition, str] = field(default_factory=dict)


class RecordReader:
    """Reads single records of the topics at `settings`, with the rights of `group_id`. It commits nothing."""

    def __init__(self, settings: KafkaSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id

    def read(self, tp: TopicPartition, offset: int) -> Record | None:
        """Return the record at `offset`; None if there is none (any more): deleted, or compacted away. Raises
        `KafkaError` within `operation_timeout` seconds."""
        found = self.read_all({tp: [offset]})
        if tp in found.failed:
            raise KafkaError(found.failed[tp])
        return found.records[tp][offset]

    def read_all(self, wanted: Mapping[TopicPartition, Collection[int]]) -> Found:
        """Return the records at these offsets, of each partition the first ones, as far as they come within
        `operation_timeout` seconds, and have about `AT_ONCE` bytes together."""
        deadline, settings = time.monotonic() + self._settings.operation_timeout, self._settings
        # The reader in Spark may be set to give records that are not committed.
        config = {"isolation.level": "read_uncommitted", "queued.max.messages.kbytes": str(AT_ONCE // 1024)}
        if sum(map(len, wanted.values())) > 1:
            config["queued.min.messages"] = str(READ_AHEAD)
        with open_reader(settings, self._group_id, config) as consumer:
            reading = _Reading(settings, consumer, wanted)
            while reading.left and reading.size < AT_ONCE and (wait := deadline - time.monotonic()) > 0:
                if (first := consumer.poll(min(0.5, wait))) is not None:
                    reading.take([first, *consumer.consume(TAKEN, 0)])
        if reading.size < AT_ONCE:
            for tp in reading.left:
                reading.fail(tp, "no answer in time")
        return reading.found


class _Reading:
    """One reading of `wanted` records: those that are `left`, and those that are `found`, of `size` bytes."""

    def __init__(
        self, settings: KafkaSettings, consumer: Consumer, wanted: Mapping[TopicPartition, Collection[int]]
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self.left = {tp: deque(sorted(offsets)) for tp, offsets in wanted.items() if offsets}
        self.found = Found({tp: {} for tp in wanted})
        self.size = self._count = 0
        self._sought: dict[TopicPartition, int] = {}
        self._wanted = frozenset(at for offsets in wanted.values() for at in offsets)
        consumer.assign([_TopicPartition(*tp, offsets[0]) for tp, offsets in self.left.items()])

    def take(self, messages: Sequence[Message]) -> None:
        """Take records, or what Kafka says instead. Most are none that is wanted, and are not looked at: the next one
        of their partition that is, or the last of `messages`, tells as well how far Kafka has given it."""
        for message in messages[:-1]:
            if message.offset() in self._wanted or message.error() is not None:
                self._take(message)
        self._take(messages[-1])

    def _take(self, message: Message) -> None:
        tp, error = (str(message.topic()), int(message.partition() or 0)), message.error()
        if tp not in self.left:
            return
        if error is None:
            if (message.offset() or 0) >= self.left[tp][0]:
                self._take_record(tp, Record.of(message))
        elif error.code() == KafkaError_._PARTITION_EOF:
            self._gone(tp, set(self.left[tp]))
        elif error.code() in {KafkaError_._AUTO_OFFSET_RESET, KafkaError_.OFFSET_OUT_OF_RANGE}:
            self._go_on(tp)
        else:
            self._give_up(tp, Failure.of(error).text)

    def _give_up(self, tp: TopicPartition, text: str) -> None:
        self.fail(tp, text)
        self._leave(tp)

    def _take_record(self, tp: TopicPartition, record: Record) -> None:
        left, found = self.left[tp], self.found.records[tp]
        while left and left[0] <= record.offset:
            found[left.popleft()] = None
        if record.offset in found:
            found[record.offset] = record
            self.size += len(record.value or b"") + len(record.key or b"")
            self._count += 1
        if not left:
            self._leave(tp)
        elif self._is_far(left[0] - record.offset) and self._sought.get(tp) != left[0]:
            self._sought[tp] = left[0]
            self._consumer.seek(_TopicPartition(*tp, left[0]))

    def _is_far(self, records: int) -> bool:
        return records * (OWN + self.size / max(1, self._count)) > FAR

    def _go_on(self, tp: TopicPartition) -> None:
        """Go on at the first record that there is: some were deleted."""
        first, end = self._consumer.get_watermark_offsets(
            _TopicPartition(*tp), self._settings.operation_timeout
        )
        gone = {at for at in self.left[tp] if not first <= at < end}
        if not gone:
            self._give_up(tp, "Kafka has the offset, and does not give it")
            return
        self._gone(tp, gone)
        if tp in self.left:
            self._consumer.incremental_unassign([_TopicPartition(*tp)])
            self._consumer.incremental_assign([_TopicPartition(*tp, self.left[tp][0])])

    def _gone(self, tp: TopicPartition, offsets: Set[int]) -> None:
        """Note that Kafka has none of these; leave the partition once nothing is left of it."""
        self.found.records[tp].update(dict.fromkeys(offsets))
        self.left[tp] = deque(at for at in self.left[tp] if at not in offsets)
        if not self.left[tp]:
            self._leave(tp)

    def _leave(self, tp: TopicPartition) -> None:
        del self.left[tp]
        self._consumer.incremental_unassign([_TopicPartition(*tp)])

    def fail(self, tp: TopicPartition, text: str) -> None:
        """Note why the next record of a partition cannot be read."""
        self.found.failed[tp] = (
            f"Kafka at {self._settings.bootstrap_servers}: reading topic {tp[0]!r}, partition {tp[1]}, offset "
            f"{self.left[tp][0]}: {text}; {next_step(self._settings.config, text)}"
        )
