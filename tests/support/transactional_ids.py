"""Which transactional ids a broker knows."""

from __future__ import annotations

import struct
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from muster.edges.kafka import librdkafka_logger
from muster.settings.connections import KafkaSettings

STATE = "__transaction_state"


def known_ids(kafka: KafkaSettings) -> set[str]:
    """The transactional ids that the broker knows, by its own log."""
    settings = {**kafka.config, "group.id": "ids", "enable.partition.eof": True}
    found: dict[str, bool] = {}
    with closing(Consumer(settings, logger=librdkafka_logger())) as reader:
        partitions = reader.list_topics(STATE, timeout=10).topics[STATE].partitions
        reader.assign([TopicPartition(STATE, number, 0) for number in partitions])
        left = len(partitions)
        while left:
            message = reader.poll(10)
            assert message is not None, "no answer"
            if message.error() is not None:
                left -= 1
                continue
            key = message.key()
            assert key is not None
            version, length = struct.unpack(">hh", key[:4])
            assert version == 0
            found[key[4 : 4 + length].decode()] = message.value() is not None
    return {name for name, there in found.items() if there}
