"""Sinks for handlers in which a batch that is delivered again does not stand twice.

`ParquetSink` is one, as a handler or inside a handler. `batch_ranges` is for sinks of one's own: the offsets that
the batch at hand holds, which name its place in the sink, together with `batch_topic_ids`.
"""

from muster.core.model import TopicPartition
from muster.sinks.batch import Range, batch_of, batch_ranges, batch_topic_ids
from muster.sinks.parquet import ParquetSink
from muster.sinks.partition_folder import Coverage, SinkError

__all__ = [
    "Coverage",
    "ParquetSink",
    "Range",
    "SinkError",
    "TopicPartition",
    "batch_of",
    "batch_ranges",
    "batch_topic_ids",
]
