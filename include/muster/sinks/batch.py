"""What a handler is given beside the DataFrame: which batch it is.

Spark's own `batch_id` says nothing here. Kafka's group has the position, so a consumer's query begins without a past
whenever it is started, and its batches are numbered from 0 again. A sink that remembers numbers would take new
records for old ones, and leave them out. So a batch is named by the offsets that it holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NoReturn

from muster.core.model import OffsetRange, TopicPartition

Rejected = Mapping[TopicPartition, Mapping[int, str]]
"""Records that a handler cannot take: by partition and offset, with the error."""


class RejectedRecordsError(ValueError):
    """To be raised by a handler that cannot take the records at `offsets`, rows of topic, partition and offset: it is
    called again without them, and they are rejected as by `Batch.reject`."""

    def __init__(self, offsets: Iterable[tuple[str, int, int]], error: object) -> None:
        self.offsets = [(str(topic), int(partition), int(offset)) for topic, partition, offset in offsets]
        super().__init__(str(error))


class RejectionRefusedError(RuntimeError):
    """Records may not be rejected: too many were, or the cluster writes no dead letters. Nothing of the batch stands,
    and a person is asked. A handler is not to catch it."""


@dataclass(frozen=True, slots=True)
class SinkReport:
    """What sinks say of one batch; the fields are those of `Batch`."""

    left_out: Mapping[TopicPartition, Sequence[OffsetRange]] = field(default_factory=dict)
    stored: Mapping[str, Mapping[TopicPartition, Sequence[OffsetRange]]] = field(default_factory=dict)
    notices: Sequence[str] = ()

    def reached(self, tp: TopicPartition) -> int | None:
        """Return the offset behind all that they have of a partition, None if they do not tell."""
        found = [of[tp][-1][1] for of in self.stored.values() if of.get(tp)]
        return max(found, default=None if self.left_out.get(tp) else 0)


NO_REPORT = SinkReport()


@dataclass(frozen=True, eq=False)
class Batch:
    """The batch that a handler works on: `process(batch_df, batch)`.

    `ranges` are the offsets `(from, to)` by topic and partition, as they were planned, not what the rows show: a
    range may hold offsets without a record, and a handler may drop rows. So the ranges of one partition's batches
    follow one another without a gap, but for records that Kafka lost, or that were skipped or dead-lettered.
    Partitions without an offset in the batch are left out.

    `topic_ids` are Kafka's ids of the topics, as far as they are known: a topic that is deleted and created again
    under its name has another id, and its offsets are no range of the old one.

    `rebuilds` are the numbers of the partitions that a person had rebuilt, 0 for all others. A sink forgets what it
    stored of a partition under a lower number, and refuses to write under a lower one than it has stored.

    `attempt` is 1, and more if the handler has raised in this process with records of the batch, or with records just
    before them: one more than the number of times. The batch that comes again may hold more or fewer records.

    It is not Spark's integer `batch_id`, and raises TypeError where it is used as a number.
    """

    ranges: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    rebuilds: Mapping[TopicPartition, int] = field(default_factory=dict)
    rejected: dict[TopicPartition, dict[int, str]] = field(default_factory=dict, repr=False)
    """What `reject` was called with, by partition and offset."""
    left_out: dict[TopicPartition, tuple[OffsetRange, ...]] = field(default_factory=dict, repr=False)
    """What a sink had already, and did not write again. A sink of one's own may say so here as well."""
    stored: dict[str, dict[TopicPartition, Sequence[OffsetRange]]] = field(default_factory=dict, repr=False)
    """All that sinks have of the batch's partitions, in order, by the sinks' names. A sink of one's own may say so as
    well."""
    notices: list[str] = field(default_factory=list, repr=False)
    """What a person is to hear from a sink."""
    may_reject: Callable[[Rejected], str] = field(default=lambda _: "", repr=False)
    """Returns why these records may not be rejected, '' if they may."""
    has_lowest: Callable[[str], bool] = field(default=lambda _: False, repr=False)
    """Tells whether this consumer has the lowest partition of a topic, at the time of the call."""
    due: frozenset[TopicPartition] = frozenset()
    """Partitions of topics with state that are in the batch without records, because a timer or an expiry is due."""
    state: Any = field(default=None, repr=False)
    """State by key of topics that have it: see `muster.consumer.state.session`."""

    def __post_init__(self) -> None:
        held = {tp: (begin, end) for tp, (begin, end) in self.ranges.items() if begin < end}
        object.__setattr__(self, "ranges", MappingProxyType(held))
        object.__setattr__(self, "topic_ids", MappingProxyType(dict(self.topic_ids)))
        rebuilds = {tp: self.rebuilds.get(tp, 0) for tp in held}
        object.__setattr__(self, "rebuilds", MappingProxyType(rebuilds))

    def reject(self, offsets: Iterable[tuple[str, int, int]], error: object) -> None:
        """Name records that the handler cannot take, because of `error`: rows of topic, partition and offset, such as
        `bad.select("topic", "partition", "offset").collect()`. The handler leaves them out and returns; each gets a
        dead letter, in one transaction with the batch's offset.

        Raises `RejectionRefusedError`, and ValueError for what is not in the batch.
        """
        for row in offsets:
            try:
                topic, partition, offset = row
                begin, end = self.ranges.get((topic, partition), (0, 0))
                inside = begin <= offset < end
            except (TypeError, ValueError) as not_a_place:
                raise ValueError(
                    f"{str(row)[:100]} names no record to reject; give rows of topic, partition and offset"
                ) from not_a_place
            if not inside:
                raise ValueError(
                    f"offset {offset} of topic {topic!r}, partition {partition} is not in the batch, so it cannot be "
                    "rejected; give topic, partition and offset as its DataFrame has them"
                )
            self.rejected.setdefault((topic, partition), {})[int(offset)] = _text(error)
        if why := self.may_reject(self.rejected):
            raise RejectionRefusedError(why)

    @property
    def report(self) -> SinkReport:
        """What its sinks have said so far."""
        return SinkReport(self.left_out, self.stored, tuple(self.notices))

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits: the same for the same offsets of the same topics and rebuilds, for nothing else."""
        held = sorted(
            (*tp, *offsets, self.topic_ids.get(tp[0], ""), self.rebuilds[tp])
            for tp, offsets in self.ranges.items()
        )
        return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        """Return its `id`, so that a text or a path with the batch in it names these records."""
        return self.id

    def __eq__(self, other: object) -> bool:
        """Tell whether it holds the same records. Raises TypeError beside a number."""
        if isinstance(other, Batch):
            return self.id == other.id
        if isinstance(other, int | float):
            self._no_number()
        return NotImplemented

    def __hash__(self) -> int:
        """Hash it by its `id`."""
        return hash(self.id)

    def _no_number(self, *_: object) -> NoReturn:
        raise TypeError(
            "the second argument of a handler is a muster.sinks.Batch, not Spark's batch_id: numbers of batches "
            "begin at 0 again with each start of the query, so they name no batch. Use batch.id, a text that names "
            "these records, or batch.ranges, their offsets"
        )

    __int__ = __index__ = __float__ = __bool__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = _no_number
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_number
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _no_number


def _text(error: object) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
