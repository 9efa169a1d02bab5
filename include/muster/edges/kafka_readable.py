"""The first record behind an offset, with its timestamp, or that there is none: markers of transactions, aborted
records and what compaction has taken fill offsets too, and no reader gets past them until a record follows.

A record is fetched for it, with what a broker sends along: up to `FETCHED` bytes of a partition that has so much.
Where a producer's batch is larger, a broker sends one partition a request; such partitions are asked for once more
with the limit that Kafka has for batches. What is known is used again while the group has committed nothing beyond
it.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.core.offsets import FirstRecord
from muster.edges.kafka_admin import Failure, open_client, reader_config
from muster.settings.connections import KafkaSettings

WITHIN = 5.0
"""Seconds for one reading; what is not known by then comes with a later one."""
AT_ONCE = 1_000
"""So many partitions are read from at the same time."""
FETCHED, LARGEST_BATCH = 20_000, 1 << 20
"""Bytes that are asked for of each partition: a batch of Java's producers, whose default is 16 kB. And of those of
which nothing comes within `SMALL_WITHIN` seconds."""
SMALL_WITHIN = 1.5
AGAIN_AFTER = 600.0
"""Seconds for which what was read is used again: compaction may take the record, or the topic be made again."""
OVERHEAD = 80
"""Bytes that a record alone in its batch takes besides key, value and headers, at most."""


@dataclass(frozen=True, slots=True)
class _Known:
    begin: int
    end: int
    record: FirstRecord | None
    at: float

    def holds(self, begin: int, end: int, now: float) -> bool:
        """Tell whether it is still true of a partition that is read from `begin` on and ends at `end`."""
        if now - self.at > AGAIN_AFTER or begin < self.begin or end < self.end:
            return False
        return end == self.end if self.record is None else begin <= self.record.offset


class FirstRecords:
    """Reads the first records that a group has not committed. Connected from the first reading on; not
    thread-safe."""

    def __init__(
        self, settings: KafkaSettings, group_id: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._known: dict[TopicPartition, _Known] = {}
        self._readers: dict[int, Consumer] = {}
        self._config = reader_config(settings, group_id) | {
            "enable.auto.offset.store": False,
            "isolation.level": settings.config.get("isolation.level", "read_committed"),
            "queued.min.messages": 1,
            "fetch.wait.max.ms": 20,
        }

    def read(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[dict[TopicPartition, FirstRecord | None], str]:
        """Return the first record at or behind the first offset of each range, which ends where the partition does.

        None where Kafka says that nothing can be read there now. A partition that may not be read, or whose leader
        does not answer within `WITHIN`, is absent; the text says what Kafka said of one. Raises `KafkaError` for
        settings that librdkafka refuses.
        """
        now = self._monotonic()
        self._known = {
            tp: known for tp, known in self._known.items() if tp in ranges and known.holds(*ranges[tp], now)
        }
        asked = [tp for tp in ranges if tp not in self._known]
        until, why = now + WITHIN, ""
        # In any order, so that those that never answer keep no others waiting for good.
        for tps in _chunks(random.sample(asked, len(asked))):
            begins, failed = {tp: ranges[tp][0] for tp in tps}, ""
            for size, within in ((FETCHED, SMALL_WITHIN), (LARGEST_BATCH, WITHIN)):
                if begins:
                    found, failed = self._fetch(begins, size, min(until, self._monotonic() + within))
                    self._known |= {tp: _Known(*ranges[tp], record, now) for tp, record in found.items()}
                    begins = {tp: begin for tp, begin in begins.items() if tp not in found}
            why = why or failed
        return {tp: known.record for tp, known in self._known.items()}, why

    def close(self) -> None:
        """Let go of the connections."""
        while self._readers:
            self._readers.popitem()[1].close()

    def _fetch(
        self, begins: Mapping[TopicPartition, int], size: int, until: float
    ) -> tuple[dict[TopicPartition, FirstRecord | None], str]:
        if self._monotonic() >= until:
            return {}, f"no answer within {WITHIN:g} s"
        if size not in self._readers:
            self._readers[size] = open_client(Consumer, self._config | {"fetch.message.max.bytes": size})
        reader, left, why = self._readers[size], set(begins), ""
        found: dict[TopicPartition, FirstRecord | None] = {}
        try:
            asked = [_TopicPartition(*tp, begin) for tp, begin in begins.items()]
            reader.assign(asked)
            reader.resume(asked)  # librdkafka (2.16) keeps the pause of an earlier assignment
            while left and (wait := until - self._monotonic()) > 0:
                records: defaultdict[TopicPartition, list[Any]] = defaultdict(list)
                for message in reader.consume(AT_ONCE, min(wait, 0.1)):
                    tp, error = (message.topic(), message.partition()), message.error()
                    if tp not in left:
                        continue
                    if error is None:
                        records[tp].append(message)
                        continue
                    left.discard(tp)
                    if tp in records:
                        continue
                    if error.code() == KafkaError_._PARTITION_EOF:
                        found[tp] = None
                    else:
                        why = why or f"{tp[0]} [{tp[1]}]: {error.str()}"
                found |= {tp: _first(messages) for tp, messages in records.items()}
                left -= records.keys()
                if records and left:
                    reader.pause([_TopicPartition(*tp) for tp in records])
            reader.unassign()
        except KafkaException as error:
            self.close()
            return found, Failure.of(error).text
        why = why or (f"no answer within {WITHIN:g} s" if left else "")
        if why and size == LARGEST_BATCH:
            self.close()  # librdkafka (2.16) tells an error of a partition once
        return found, why


def _chunks(tps: list[TopicPartition]) -> list[list[TopicPartition]]:
    return [tps[i : i + AT_ONCE] for i in range(0, len(tps), AT_ONCE)]


def _first(messages: list[Any]) -> FirstRecord:
    kind, milliseconds = messages[0].timestamp()
    return FirstRecord(
        messages[0].offset(),
        milliseconds / 1000 if kind and milliseconds >= 0 else None,
        sum(map(_size, messages)) / len(messages),
    )


def _size(message: Any) -> int:
    headers = sum(len(name) + len(value or b"") + 10 for name, value in message.headers() or ())
    return OVERHEAD + len(message.key() or b"") + len(message.value() or b"") + headers
