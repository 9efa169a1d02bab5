"""The initial state of shards that begin: which rows are whose.

A row is placed as Kafka's Java client places a record with its key. Producers that place records otherwise, as
librdkafka does by default, would leave a key's initial state in another partition than its records. So the first rows
of a shard are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from muster.consumer.state.errors import StateError
from muster.core.model import TopicPartition
from muster.core.partitioner import partition_of

KEY = "key"
LARGEST = 1 << 26
"""Bytes of changes that the initial state of one shard may make: they are one transaction, with its first batch."""
COMPARED = 1000
"""Keys of a shard's first rows that are compared with where they would be placed."""
_TOPIC, _PARTITION = "__muster_topic", "__muster_partition"


@dataclass(frozen=True, slots=True)
class Initial:
    """The rows of one shard, of a topic with `partitions` partitions."""

    rows: pa.Table
    partitions: int

    def check(self, tp: TopicPartition, rows: pa.Table) -> None:
        """Raise `StateError` if rows of the batch are not where Kafka's partitioner puts their key."""
        keys = pc.unique(rows.column(KEY).slice(0, 10 * COMPARED)).slice(0, COMPARED)
        for key in keys.cast(pa.binary()).to_pylist():
            if key is not None and (at := partition_of(key, self.partitions)) != tp[1]:
                raise StateError(
                    f"initialState: the record with the key {key!r} is in topic {tp[0]!r}, partition {tp[1]}, and "
                    f"Kafka's partitioner puts that key in partition {at}: initial state cannot be placed. Have "
                    "producers use it (librdkafka: partitioner=murmur2_random) and 'key' be Kafka's own, or write "
                    "the initial values to the topic as records"
                )


def check_initial(initial: Any, keys: list[str], frame: DataFrame) -> None:
    """Raise `StateError` unless `initial` is a frame grouped by `keys` whose rows can be placed."""
    if not isinstance(initial, GroupedData):
        columns = ", ".join(map(repr, keys))
        raise StateError(
            f"initialState: a {type(initial).__name__}; give a grouped frame: rows.groupBy({columns})"
        )
    grouped = initial.count().columns[:-1]
    if grouped != keys:
        raise StateError(f"initialState is grouped by {grouped}, and the batch by {keys}; group both alike")
    for what, of in (("initialState", initial._df), ("the frame", frame)):
        kind = _kinds(of.schema).get(KEY)
        if not isinstance(kind, StringType | BinaryType):
            raise StateError(
                f"initialState is placed by Kafka's key: {what} needs the column 'key', a string or binary; it has "
                f"{of.schema.simpleString()}"
            )


def _kinds(schema: StructType) -> dict[str, Any]:
    return {one.name: one.dataType for one in schema.fields}


def initial_of(initial: GroupedData, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, Initial]:
    """Collect the rows of shards that begin, each with how many partitions its topic has."""
    frame = initial._df
    schema = StructType([*frame.schema.fields]).add(_TOPIC, StringType()).add(_PARTITION, IntegerType())
    found = frame.mapInArrow(_placing(dict(begin)), schema).toArrow()
    shards = {}
    for tp, partitions in begin.items():
        of_shard = (pc.field(_TOPIC) == tp[0]) & (pc.field(_PARTITION) == tp[1])
        rows = found.filter(of_shard).select(frame.columns)
        shards[tp] = Initial(rows, partitions)
    return shards


def _placing(
    begin: Mapping[TopicPartition, int],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    counts = {topic: partitions for (topic, _), partitions in begin.items()}

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = batch.column(batch.schema.get_field_index(KEY)).cast(pa.binary()).to_pylist()
            if None in keys:
                raise StateError(
                    "initialState has a row without a key, which Kafka places anywhere; leave it out"
                )
            for topic, partitions in counts.items():
                at = [partition_of(key, partitions) for key in keys]
                mine = pa.array([(topic, one) in begin for one in at], pa.bool_())
                yield pa.record_batch(
                    [*batch.columns, pa.array([topic] * len(at)), pa.array(at, pa.int32())],
                    names=[*batch.schema.names, _TOPIC, _PARTITION],
                ).filter(mine)

    return run
