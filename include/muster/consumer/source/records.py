"""Kafka messages to Arrow, in the columns of Spark's own Kafka source with headers.

Whole columns are made at once: a loop over the messages in Python would be several times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from muster.consumer.source.offsets import TopicPartition

Segment = tuple[TopicPartition, Sequence[Message]]
"""Messages of one partition, in the order of their offsets."""

Header = tuple[str, bytes | None]

# A record that was consumed has these; the library's types also cover errors, which have not.
offset_of = cast("Callable[[Message[Any, Any]], int]", Message.offset)
partition_of = cast("Callable[[Message[Any, Any]], int]", Message.partition)
topic_of = cast("Callable[[Message[Any, Any]], str]", Message.topic)
_timestamp_of = cast("Callable[[Message[Any, Any]], tuple[int, int]]", Message.timestamp)
_headers_of = cast("Callable[[Message[Any, Any]], list[Header] | None]", Message.headers)

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP = pa.timestamp("us", tz="UTC")

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
"""What Spark makes of the source's schema; a batch that differs in the least is refused."""


def to_record_batch(segments: Sequence[Segment]) -> pa.RecordBatch:
    """The messages of `segments`, in their order, as one record batch.

    `timestampType` is Kafka's: -1 none (then the timestamp is null), 0 set by the producer, 1 by the broker.
    A message without headers has null there.
    """
    messages = list(chain.from_iterable(batch for _, batch in segments))
    lengths = [len(batch) for _, batch in segments]
    topics = sorted({topic for (topic, _), _ in segments})
    number = {topic: i for i, topic in enumerate(topics)}
    topic_numbers = np.repeat(np.array([number[topic] for (topic, _), _ in segments], np.int32), lengths)
    partitions = np.repeat(np.array([partition for (_, partition), _ in segments], np.int32), lengths)
    stamps = np.fromiter(chain.from_iterable(map(_timestamp_of, messages)), np.int64, 2 * len(messages))
    types, millis = stamps[::2], stamps[1::2]
    timestamps = pa.array(millis * 1000, pa.int64(), mask=types == TIMESTAMP_NOT_AVAILABLE).cast(_TIMESTAMP)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            pa.array(topics, pa.string()).take(pa.array(topic_numbers)),
            pa.array(partitions),
            pa.array(np.fromiter(map(offset_of, messages), np.int64, len(messages))),
            timestamps,
            # librdkafka counts from 0 (none), Kafka and Spark from -1.
            pa.array((types - 1).astype(np.int32)),
            _headers(list(map(_headers_of, messages))),
        ],
        schema=ARROW_SCHEMA,
    )


def _headers(headers: Sequence[Sequence[Header] | None]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS)
    flat = [header for each in headers if each for header in each]
    starts: list[int | None] = []
    at = 0
    for each in headers:
        starts.append(at if each else None)
        at += len(each) if each else 0
    starts.append(at)
    elements = pa.StructArray.from_arrays(
        [
            pa.array([key for key, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        fields=list(_HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), elements, type=_HEADERS)
