"""Sinks for handlers in which a batch that is delivered again does not stand twice.

`ParquetSink` is one, as a handler or inside a handler. `Batch`, which each handler is given, is for sinks of one's
own: its `ranges` name the place of the records in the sink, together with its `topic_ids`.
"""

from muster.core.model import TopicPartition
from muster.sinks.batch import Batch, Range
from muster.sinks.parquet import ParquetSink
from muster.sinks.partition_folder import Coverage, SinkError

__all__ = [
    "Batch",
    "Coverage",
    "ParquetSink",
    "Range",
    "SinkError",
    "TopicPartition",
]
