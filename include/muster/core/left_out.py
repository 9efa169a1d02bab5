"""Whether a sink was to leave records out, because it has them. Pure.

A sink leaves out the records that the last owner of a partition wrote and had not committed, and those that this
owner wrote in a batch that failed afterwards. They come first: they end where the sink writes a record of the
partition. So offsets left out are *expected* until a batch was written, in part at least, since the partition was
claimed or its last batch failed. All others are a *surprise*, and so are all after a seek that this owner carried
out, until a batch was written whole. A person has then to compare the sink with the records that it is to have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.core.model import OffsetRange, TopicPartition

REPORTED = 3_600.0
"""Seconds for which a surprise is reported since it grew last."""

LeftOut = Mapping[TopicPartition, Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Surprise:
    """Records of one partition, within `begin` up to `end`; `at` is in seconds, on the caller's clock."""

    begin: int
    end: int
    records: int
    sought: bool
    at: float

    def __str__(self) -> str:
        when = "after a seek" if self.sought else "after newer ones were written"
        return f"offsets {self.begin} to {self.end - 1} ({self.records} record(s)) were left out {when}"


@dataclass
class LeftOutLog:
    """What one consumer's sinks left out of the partitions that it has, by claim epoch."""

    expected: int = 0
    """Offsets so far."""
    surprising: int = 0
    """Offsets so far."""
    _written: dict[TopicPartition, int] = field(default_factory=dict)
    _sought: dict[TopicPartition, int] = field(default_factory=dict)
    _surprises: dict[TopicPartition, Surprise] = field(default_factory=dict)

    def sought(self, tp: TopicPartition, claim_epoch: int) -> None:
        """Take note that a partition was sought."""
        self._sought[tp] = claim_epoch

    def failed(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that a batch failed: the sink may have it nevertheless."""
        for tp in partitions:
            self._written.pop(tp, None)

    def passed(
        self, tp: TopicPartition, claim_epoch: int, held: OffsetRange, left: LeftOut, now: float
    ) -> None:
        """Take note that the offsets `held` of a partition are in the sink, which had those `left` out before."""
        ranges = left.get(tp, ())
        records = sum(end - begin for begin, end in ranges)
        sought = self._sought.get(tp) == claim_epoch
        if records and (sought or self._written.get(tp) == claim_epoch):
            self.surprising += records
            before = self._surprises.get(tp, Surprise(ranges[0][0], ranges[-1][1], 0, sought, now))
            begin, end = min(before.begin, ranges[0][0]), max(before.end, ranges[-1][1])
            self._surprises[tp] = Surprise(begin, end, before.records + records, sought or before.sought, now)
        else:
            self.expected += records
        if records < held[1] - held[0]:
            self._written[tp] = claim_epoch
        if not records:
            self._sought.pop(tp, None)

    def words(self, now: float) -> str:
        """Say what was a surprise within the last hour, '' if nothing was."""
        self._surprises = {tp: each for tp, each in self._surprises.items() if now - each.at < REPORTED}
        found = [
            f"topic {tp[0]!r}, partition {tp[1]}: {each}" for tp, each in sorted(self._surprises.items())
        ]
        if not found:
            return ""
        return (
            f"{'; '.join(found)}: by the sink's own record they are stored. If they are not there, clear the table "
            "together with that record, or write to another one, and seek again"
        )
