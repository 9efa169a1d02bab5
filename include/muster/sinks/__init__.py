"""Sinks for handlers in which a batch that is delivered again does not stand twice.

`DeltaSink` and `DatabaseSink` are such, as a handler or inside a handler. `Batch`, which each handler
is given, is for sinks of one's own: its `ranges` name the place of the records in the sink, together with its
`topic_ids`.
"""

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch, RejectedRecordsError, RejectionRefusedError
from muster.sinks.coverage import Coverage
from muster.sinks.database import DatabaseSink
from muster.sinks.delta import DeltaSink
from muster.sinks.sink_error import SinkError

__all__ = [
    "Batch",
    "Coverage",
    "DatabaseSink",
    "DeltaSink",
    "OffsetRange",
    "RejectedRecordsError",
    "RejectionRefusedError",
    "SinkError",
    "TopicPartition",
]
