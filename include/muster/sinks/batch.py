"""Which offsets the batch holds that a handler is working on.

They are what was planned, not what the rows show: a range `(from, to)` may hold offsets without a record, and a
handler may drop rows. So the ranges of one partition's batches follow one another without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from muster.core.model import TopicPartition

Range = tuple[int, int]
"""Offsets from the first up to, not including, the second."""

NO_IDS: Mapping[str, str] = MappingProxyType({})

_RANGES: ContextVar[Mapping[TopicPartition, Range] | None] = ContextVar("muster_batch_ranges", default=None)
_TOPIC_IDS: ContextVar[Mapping[str, str]] = ContextVar("muster_batch_topic_ids", default=NO_IDS)


def batch_ranges() -> dict[TopicPartition, Range]:
    """The offsets `(from, to)` of each partition in the batch, partitions without any left out.

    To be called in the handler's own thread. Raises RuntimeError where no batch is at hand.
    """
    ranges = _RANGES.get()
    if ranges is None:
        raise RuntimeError(
            "no batch is at hand: call this in the handler's own thread, or, in a test of a handler, within "
            "'with muster.sinks.batch_of({(topic, partition): (from, to)}):'"
        )
    return {tp: (begin, end) for tp, (begin, end) in ranges.items() if begin < end}


def batch_topic_ids() -> dict[str, str]:
    """Kafka's ids of the topics in the batch, as far as they are known.

    A topic that is deleted and created again under its name has another id, and its offsets begin again: they are no
    range of the old topic. To be called in the handler's own thread.
    """
    return dict(_TOPIC_IDS.get())


@contextmanager
def batch_of(ranges: Mapping[TopicPartition, Range], topic_ids: Mapping[str, str] = NO_IDS) -> Iterator[None]:
    """Within this block `batch_ranges` gives `ranges`, and `batch_topic_ids` gives `topic_ids`."""
    tokens = _RANGES.set(ranges), _TOPIC_IDS.set(topic_ids)
    try:
        yield
    finally:
        _RANGES.reset(tokens[0])
        _TOPIC_IDS.reset(tokens[1])
