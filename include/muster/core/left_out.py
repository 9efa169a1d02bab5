"""Whether a sink was to leave records out, because it has them. Pure.

A sink leaves out the records that the last owner of a partition wrote and had not committed, and those that this
owner wrote in a batch that failed afterwards. The former come first: they end where the sink writes a record of the
partition. So offsets left out are *expected* if they are those of a batch that failed here, or if nothing was written
since the partition was claimed. All others are a *surprise*, and so are these:

- what lies below the offset that the partition had been read to before it went back, which goes with what is
  committed (`muster.core.positions`), so that every owner knows it;
- all after a seek that this owner carried out, until a batch was written whole;
- all until something is written, if nothing tells how far the partition had been read: another program has set or
  deleted the committed offset.

The sink may have written what lies below in a batch that failed here. That is believed once a batch was written
whole, because the sink does not have all then. A person has to compare the sink of a surprise with the records that
it is to have.

Times are in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from muster.core.losses import LossLog
from muster.core.model import Loss, OffsetRange, TopicPartition
from muster.core.positions import NO_NOTE, UNKNOWN, Note

REPORTED = 3_600.0
"""Seconds for which a surprise is reported since it grew last."""

SOUGHT = "after a seek"
NEWER = "after newer ones were written"
NOT_KNOWN = (
    "though another program had set or deleted the committed offset; whether they were committed is not known"
)

LeftOut = Mapping[TopicPartition, Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Surprise:
    """Records of one partition, within `begin` up to `end`, and why; `at` is when it grew last."""

    begin: int
    end: int
    records: int
    why: str
    at: float

    def __str__(self) -> str:
        return f"offsets {self.begin} to {self.end - 1} ({self.records} record(s)) were left out {self.why}"

    def and_before(self, before: Surprise | None) -> Surprise:
        """Return it together with those before; a seek, or that it went back, is the reason of all."""
        if before is None:
            return self
        begin, end = min(before.begin, self.begin), max(before.end, self.end)
        why = self.why if before.why == NEWER else before.why
        return Surprise(begin, end, before.records + self.records, why, self.at)


@dataclass(slots=True)
class _Past:
    """What became of one partition since it was claimed."""

    claim_epoch: int
    end: int = 0
    """Of the last batch that passed."""
    tried: int = 0
    """The end of the batches that failed since it went back last."""
    sought: bool = False
    written: bool = False
    """Whether a record was written."""
    whole: bool = False
    """Whether a batch was written whole since it went back last."""

    def begins(self, offset: int) -> None:
        """Take note that a batch begins at `offset`."""
        if offset < self.end:
            self.end, self.tried, self.whole = offset, 0, False

    def why(self, offset: int, note: Note) -> str:
        """Return why it is a surprise that an offset is left out, '' if it is none."""
        back = SOUGHT if self.sought else ""
        if not back and offset < note.reached:
            back = f"after the partition had gone back from offset {note.reached}"
        if back and not self.whole:
            return back
        if offset < self.tried:
            return ""
        if back or self.written:
            return back or NEWER
        return NOT_KNOWN if note.reached == UNKNOWN else ""


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
    _pasts: dict[TopicPartition, _Past] = field(default_factory=dict)
    _surprises: dict[TopicPartition, Surprise] = field(default_factory=dict)

    def sought(self, tp: TopicPartition, claim_epoch: int) -> None:
        """Take note that a partition was sought."""
        past = self._past(tp, claim_epoch)
        past.sought, past.tried, past.whole = True, 0, False

    def failed(self, tp: TopicPartition, claim_epoch: int, held: OffsetRange) -> None:
        """Take note that a batch with the offsets `held` failed: the sink may have them nevertheless."""
        past = self._past(tp, claim_epoch)
        past.begins(held[0])
        past.tried = max(past.tried, held[1])

    def passed(
        self,
        tp: TopicPartition,
        claim_epoch: int,
        held: OffsetRange,
        left: LeftOut,
        now: float,
        note: Note = NO_NOTE,
    ) -> None:
        """Take note that the offsets `held` of a partition are in the sink, which had those `left` out before. `note`
        is what goes with its commits."""
        ranges, past = left.get(tp, ()), self._past(tp, claim_epoch)
        past.begins(held[0])
        for begin, end in _pieces(ranges, note.reached, past.tried):
            if why := past.why(begin, note):
                self._surprise(tp, Surprise(begin, end, end - begin, why, now))
            else:
                self.expected += end - begin
        past.end = held[1]
        past.written |= sum(end - begin for begin, end in ranges) < held[1] - held[0]
        if not ranges:
            past.whole, past.sought = True, False

    def _past(self, tp: TopicPartition, claim_epoch: int) -> _Past:
        past = self._pasts.get(tp)
        if past is None or past.claim_epoch != claim_epoch:
            past = self._pasts[tp] = _Past(claim_epoch)
        return past

    def _surprise(self, tp: TopicPartition, found: Surprise) -> None:
        self.surprising += found.records
        self.losses.note(tp, Loss(found.begin, found.end, found.records, found.why, found.at))
        self._surprises[tp] = found.and_before(self._surprises.get(tp))

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


def _pieces(ranges: Sequence[OffsetRange], *bounds: int) -> Iterator[OffsetRange]:
    """Yield the ranges, cut at the bounds that lie within."""
    for begin, end in ranges:
        cuts = {bound for bound in bounds if begin < bound < end}
        yield from pairwise(sorted({begin, end} | cuts))
