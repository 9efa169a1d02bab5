"""Whether a sink was to leave records out, because it has them. Pure.

A sink leaves out the records that the last owner of a partition wrote and had not committed, and those that this
owner wrote in a batch that failed afterwards. They come first: they end where the sink writes a record of the
partition. So offsets left out are *expected* until a batch was written, in part at least, since the partition was
claimed or its last batch failed. All others are a *surprise*, and so are all after a seek that this owner carried
out, until a batch was written whole. A person has then to compare the sink with the records that it is to have.

Times are in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.core.losses import LossLog
from muster.core.model import Loss, OffsetRange, TopicPartition

REPORTED = 3_600.0
"""Seconds for which a surprise is reported since it grew last."""

LeftOut = Mapping[TopicPartition, Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Surprise:
    """Records of one partition, within `begin` up to `end`; `at` is when it grew last."""

    begin: int
    end: int
    records: int
    sought: bool
    at: float

    def __str__(self) -> str:
        return f"offsets {self.begin} to {self.end - 1} ({self.records} record(s)) were left out {self.why}"

    @property
    def why(self) -> str:
        """When they were left out, in words."""
        return "after a seek" if self.sought else "after newer ones were written"


@dataclass
class LeftOutLog:
    """What one consumer's sinks left out of the partitions that it has, by claim epoch."""

    expected: int = 0
    """Offsets so far."""
    surprising: int = 0
    """Offsets so far."""
    losses: LossLog = field(default_factory=LossLog)
    """The surprises, for the history."""
    _notices: dict[str, float] = field(default_factory=dict)
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
            begin, end = ranges[0][0], ranges[-1][1]
            why = Surprise(begin, end, records, sought, now).why
            self.losses.note(tp, Loss(begin, end, records, why, now))
            begin, end = min(before.begin, begin), max(before.end, end)
            self._surprises[tp] = Surprise(begin, end, before.records + records, sought or before.sought, now)
        else:
            self.expected += records
        if records < held[1] - held[0]:
            self._written[tp] = claim_epoch
        if not records:
            self._sought.pop(tp, None)

    def notice(self, text: str, now: float) -> None:
        """Take note of what a sink says that a person is to hear."""
        self._notices[text] = now

    def words(self, now: float) -> str:
        """Say what was a surprise within the last hour, and what sinks had to say in it, '' if there is nothing."""
        self._notices = {text: at for text, at in self._notices.items() if now - at < REPORTED}
        return "; ".join(filter(None, [self._surprising(now), *sorted(self._notices)]))

    def _surprising(self, now: float) -> str:
        self._surprises = {tp: each for tp, each in self._surprises.items() if now - each.at < REPORTED}
        found = [
            f"topic {tp[0]!r}, partition {tp[1]}: {each}" for tp, each in sorted(self._surprises.items())
        ]
        if not found:
            return ""
        return (
            f"{'; '.join(found)}: by the sink's own record they are stored. If they are not there, delete what is "
            "left of them, and seek back to them with --rebuild"
        )
