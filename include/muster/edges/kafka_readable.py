"""Whether a record can be read behind an offset: markers of transactions, aborted ones and what compaction has taken
fill offsets too, and no reader gets past them until a record follows."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.edges.kafka_admin import client_config, open_client
from muster.settings.connections import KafkaSettings

WITHIN = 5.0
"""Seconds; what is not known by then counts as readable."""
AT_ONCE = 100
"""So many partitions are looked at, at most."""


def without_records(
    settings: KafkaSettings, group_id: str, begins: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions of which Kafka says that nothing can be read from these offsets on, now.

    A partition that may not be read, or whose leader does not answer, is not among them.
    """
    asked = [_TopicPartition(*tp, begin) for tp, begin in sorted(begins.items())[:AT_ONCE]]
    if not asked:
        return set()
    reader = open_client(
        Consumer,
        client_config(settings)
        | {
            "group.id": group_id,  # which is not joined, and nothing is committed for it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": settings.config.get("isolation.level", "read_committed"),
            "queued.min.messages": 1,
        },
    )
    left = {(tp.topic, tp.partition) for tp in asked}
    empty: set[TopicPartition] = set()
    until = time.monotonic() + WITHIN
    try:
        reader.assign(asked)
        while left and (wait := until - time.monotonic()) > 0:
            for message in reader.consume(AT_ONCE, min(wait, 0.2)):
                tp, error = (message.topic(), message.partition()), message.error()
                if error is not None and error.code() == KafkaError_._PARTITION_EOF and tp in left:
                    empty.add(tp)
                left.discard(tp)
    except KafkaException:
        return empty
    finally:
        reader.close()
    return empty
