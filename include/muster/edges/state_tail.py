"""Follows partitions of changelogs as they grow, as consumers do that stand by: one client for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.edges.kafka_admin import KafkaError, open_client, reader_config
from muster.edges.state_changelog import Read, bounds, read_error
from muster.settings.connections import KafkaSettings

AT_ONCE = 10_000
"""Records that are taken, and applied, at once."""
LISTEN = 0.3
"""Seconds for which to wait for records."""
QUEUED = 16_384
"""Kilobytes that are read ahead: who stands by is in no hurry."""


class ChangelogTail:
    """Reads committed records of changelogs from given offsets on. Not thread-safe."""

    def __init__(self, settings: KafkaSettings, group_id: str) -> None:
        self._settings = settings
        self._consumer = open_client(
            Consumer,
            reader_config(settings, group_id)
            | {
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": str(QUEUED),
                "fetch.message.max.bytes": "2097152",
            },
        )

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Return where a partition begins and ends now. Raises `KafkaError`."""
        try:
            return bounds(self._consumer, place, self._settings.operation_timeout)
        except KafkaException as error:
            raise self._error(place, error) from error

    def seen_end(self, place: TopicPartition) -> int | None:
        """Return where a partition that is followed ended at its last fetch, None before that."""
        found = self._consumer.get_watermark_offsets(_TopicPartition(*place), cached=True)
        return None if found is None or found[1] < 0 else found[1]

    def follow(self, place: TopicPartition, offset: int) -> None:
        """Read a partition on from `offset`. Raises `KafkaError`."""
        try:
            self._consumer.incremental_assign([_TopicPartition(*place, offset)])
        except KafkaException as error:
            raise self._error(place, error) from error

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Read partitions no further."""
        if places:
            self._consumer.incremental_unassign([_TopicPartition(*place) for place in places])

    def read(
        self, most: int, timeout: float
    ) -> tuple[Mapping[TopicPartition, Read], Mapping[TopicPartition, KafkaError]]:
        """Return what has come within `timeout` seconds, `most` records, and the partitions that failed."""
        reads: dict[TopicPartition, Read] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for message in self._consumer.consume(most, timeout):
            topic, partition, error = message.topic(), message.partition(), message.error()
            if topic is None or partition is None:
                continue  # of the connection, which librdkafka mends
            place = topic, partition
            if error is not None and error.code() != KafkaError_._PARTITION_EOF:
                failed[place] = self._error(place, error)
                continue
            found = reads.get(place, Read([], 0))
            offset = message.offset() or 0
            if error is None:
                found.records.append((message.key() or b"", message.value()))
            last = offset if error is None else found.last
            reads[place] = Read(found.records, max(found.upto, offset + (error is None)), last)
        return reads, failed

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def _error(self, place: TopicPartition, error: KafkaException | KafkaError_) -> KafkaError:
        doing = f"Kafka at {self._settings.bootstrap_servers}: following changelog {place[0]!r}, partition {place[1]}"
        return read_error(self._settings, doing, place[0], error)
