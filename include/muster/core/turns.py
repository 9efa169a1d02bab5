"""Whose turn it is: of which partitions the next batch holds records, and how many at most. So a bad record is found.

As a rule all partitions of a handler have a turn together, and handlers take turns. The partitions of a batch that
failed are *suspect* until they get beyond it. The batch is tried again as it was, once; up to four times if that
helped within the hour. Then it is tried in two halves of its partitions, and so on, until the partition that fails is
alone. Of that one a single record is tried, then twice as many each time; of a range that fails the earlier half, and
when that has passed, half of the rest. None of this pauses. Partitions that are not suspect go first after a failure.

A record that fails alone is tried again after 1, 2, 4, and at most 60 s. While nothing of a handler passes, whatever
is tried again as it was waits for 0.1, 0.2, and at most 10 s.

Pure; times are in seconds, of the caller's clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.model import OffsetRange, TopicPartition

HOUR = 3600.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a record that fails alone is tried again, at first and at most."""
BRIEFEST_WAIT, LONGEST_WAIT = 0.1, 10.0
"""Seconds until anything is tried again as it was while nothing passes, at first and at most."""
ONCE, IF_IT_HELPED = 1, 4
"""How many times a batch that failed is tried again as it was."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a handler, such as `ValueError: no date`. `of_record` is false where no record can be at fault: the
    sink says that it is its own, or the records could not be read."""

    text: str = ""
    of_record: bool = True
    death: bool = False
    """Whether a process died that worked on it, but not this one."""

    @property
    def kind(self) -> str:
        """The class of the exception, or Spark's condition: `ValueError`, `DIVIDE_BY_ZERO`."""
        name, _, message = self.text.partition(":")
        condition = message.strip().partition("]")[0]
        return condition[1:].split(" ")[0] if condition.startswith("[") and "]" in message else name


@dataclass(slots=True)
class Try:
    """A record failed alone, at `at`, with an error of `kind`; `others` is how many batches without it passed since,
    less those that failed."""

    at: float
    kind: str
    others: int = 0


@dataclass(slots=True)
class Suspect:
    """Partitions that failed together, last with `failure`.

    `whole` is how many times they are tried again as they were; `size` how many records are tried at once, 0 for all
    that failed together; `known` ends the shortest range that fails. `run` counts the records that passed since the
    last one was answered. `failures` counts how many times the record at `offset` failed alone, `deaths` how many
    times that killed a process, `tries` has those that can be its own fault; it is not tried before `retry_at`.
    `again`: it just failed as it is tried next.
    """

    failure: Failure
    whole: int = 0
    size: int = 0
    known: int = 0
    run: int = 0
    again: bool = False
    offset: int = -1
    failures: int = 0
    deaths: int = 0
    tries: list[Try] = field(default_factory=list)
    retry_at: float = 0.0

    def renewed(self, size: int) -> Suspect:
        """Return a suspect of which only the error is known."""
        return Suspect(self.failure, size=size)


@dataclass(slots=True)
class Sink:
    """How a handler fared of late: how many times it failed since a batch passed, until when it is left alone for
    that, when a batch passed last, and when trying one again as it was has helped."""

    streak: int = 0
    wait: float = 0.0
    passed_at: float = -math.inf
    helped_at: float = -math.inf


class Turns:
    """Gives turns. `handler_of` numbers a topic's handler."""

    def __init__(self, handler_of: Callable[[str], int] = lambda _topic: 0) -> None:
        self.handler_of = handler_of
        self._groups: dict[frozenset[TopicPartition], Suspect] = {}
        self._at: dict[TopicPartition, int] = {}
        """Where a suspect partition stands."""
        self._until: dict[TopicPartition, int] = {}
        """The end of the batch that failed first: there a partition is suspect no longer."""
        self.since: dict[TopicPartition, float] = {}
        """Since when a suspect partition stands where it does."""
        self._sinks: defaultdict[int, Sink] = defaultdict(Sink)
        self._last: dict[object, int] = {}
        self._healthy_first = False

    @property
    def suspects(self) -> dict[TopicPartition, Suspect]:
        return {tp: suspect for group, suspect in self._groups.items() for tp in group}

    def sink(self, partitions: Iterable[TopicPartition]) -> Sink:
        """Return how the handler of these partitions, which have one, has fared."""
        return self._sinks[self.handler_of(min(partitions)[0])]

    def next(self, ready: Collection[TopicPartition], now: float) -> dict[TopicPartition, int | None]:
        """Choose of the partitions `ready`, which have something to read, those whose turn it is, with how many
        records each may give at most (None: without a limit)."""
        turns: dict[object, dict[TopicPartition, int | None]] = {}
        for tp in sorted(tp for tp in ready if tp not in self._until):
            turns.setdefault(self.handler_of(tp[0]), {})[tp] = None
        only_healthy, self._healthy_first = self._healthy_first and bool(turns), False
        for group, suspect in () if only_healthy else self._groups.items():
            held = {tp: suspect.size or self._until[tp] - self._at[tp] for tp in group if tp in ready}
            wait = self.sink(group).wait if suspect.again else 0.0
            if held and max(suspect.retry_at, wait) <= now:
                turns[group] = dict(held)
        known = {*turns, *self._groups}
        self._last = {key: number for key, number in self._last.items() if key in known}
        if not turns:
            return {}
        chosen = min(turns, key=lambda key: self._last.get(key, 0))
        self._last[chosen] = 1 + max(self._last.values(), default=0)
        return turns[chosen]

    def failed(self, ranges: Mapping[TopicPartition, OffsetRange], now: float, failure: Failure) -> None:
        """Take note that the handler raised, given the records of `ranges`, none of which is empty."""
        self._healthy_first, group, sink = True, frozenset(ranges), self.sink(ranges)
        self._count(ranges, -1)
        again = IF_IT_HELPED if now - sink.helped_at < HOUR else ONCE
        new = Suspect(failure, whole=0 if group & self._until.keys() else again)
        suspect = self._groups.get(group, new)
        self._take_out(group)
        for tp, (begin, end) in ranges.items():
            self._until.setdefault(tp, end)
            self._at[tp] = begin
            self.since.setdefault(tp, now)
        suspect.failure = failure
        if suspect.whole == 0 and len(group) > 1:
            self._halve(group, failure)
            return
        self._groups[group] = suspect
        ((begin, end), *_) = ranges.values()
        suspect.again = suspect.whole > 0 or end - begin == 1
        if suspect.whole > 0:
            suspect.whole -= 1
        else:
            suspect.known, suspect.size = end, max(1, (end - begin) // 2) if suspect.size else 1
            if end - begin == 1:
                self._failed_alone(suspect, begin, now, failure)
        if suspect.again:
            sink.wait = now + _pause(BRIEFEST_WAIT, sink.streak, LONGEST_WAIT)
            sink.streak += 1

    def _failed_alone(self, suspect: Suspect, offset: int, now: float, failure: Failure) -> None:
        suspect.offset = offset
        suspect.retry_at = now + _pause(FIRST_PAUSE, suspect.failures, LONGEST_PAUSE)
        suspect.failures += 1
        suspect.deaths += failure.death
        if failure.of_record:
            suspect.tries.append(Try(now, failure.kind))

    def _halve(self, group: frozenset[TopicPartition], failure: Failure) -> None:
        order = sorted(group)
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            self._groups[frozenset(half)] = Suspect(failure)

    def _count(self, ranges: Mapping[TopicPartition, OffsetRange], outcome: int) -> None:
        """Count a batch for the records that fail alone beside it, with the same handler."""
        handler = self.handler_of(min(ranges)[0])
        for group, suspect in self._groups.items():
            if suspect.tries and group.isdisjoint(ranges) and self.handler_of(min(group)[0]) == handler:
                suspect.tries[-1].others += outcome

    def passed(self, ranges: Mapping[TopicPartition, OffsetRange], now: float) -> None:
        """Take note that the handler returned from a batch of `ranges`, none of which is empty."""
        sink, whole = self.sink(ranges), self._groups.get(frozenset(ranges))
        sink.streak, sink.wait, sink.passed_at = 0, 0.0, now
        if whole is not None and whole.again and not whole.failures:
            sink.helped_at = now
        self._count(ranges, 1)
        for tp, (begin, end) in ranges.items():
            if (suspect := self._groups.get(frozenset([tp]))) is not None:
                self._passed_part(suspect, begin, end)
        self.moved({tp: end for tp, (_, end) in ranges.items()}, now)

    @staticmethod
    def _passed_part(suspect: Suspect, begin: int, end: int) -> None:
        rest = (suspect.known - end) // 2 if suspect.known > end else 2 * (end - begin)
        suspect.size = max(1, min(2 * (end - begin), rest))
        suspect.run += end - begin
        suspect.again, suspect.failures, suspect.tries, suspect.retry_at = False, 0, [], 0.0
        suspect.deaths = 0

    def moved(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Take note that partitions go on at `ends`, whether they were read up to there or not."""
        for tp in ends.keys() & self._until.keys():
            if ends[tp] > self._at[tp]:
                self._at[tp], self.since[tp] = ends[tp], now
        self._drop({tp for tp, end in ends.items() if end >= self._until.get(tp, math.inf)})

    def answered(self, tp: TopicPartition, end: int, now: float) -> None:
        """Take note that a partition goes on at `end`, behind a record that was answered: with half as many records
        as lay between this one and the one before."""
        suspect = self.suspects.get(tp)
        self.moved({tp: end}, now)
        if suspect is not None and tp in self._until:
            self._take_out({tp})
            self._groups[frozenset([tp])] = suspect.renewed(max(1, suspect.run // 2))

    def again(self, tp: TopicPartition, now: float) -> None:
        """Try the next record of a partition as if it had not failed alone yet."""
        if (suspect := self.suspects.get(tp)) is not None:
            self.since[tp] = now
            self._take_out({tp})
            self._groups[frozenset([tp])] = suspect.renewed(1)

    def only(self, tp: TopicPartition, begin: int, most: int, now: float, failure: Failure) -> None:
        """Give the next turn of a partition, which stands at `begin`, to its next `most` records alone."""
        self._take_out({tp})
        self._groups[frozenset([tp])] = Suspect(failure, size=most)
        self._at[tp], self._until[tp] = begin, max(self._until.get(tp, 0), begin + most + 1)
        self.since.setdefault(tp, now)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are not held any more, or begin again: their offsets may be those of another
        topic."""
        self._drop(set(partitions))

    def _take_out(self, gone: Collection[TopicPartition]) -> None:
        taken = frozenset(gone)
        left = {group - taken: suspect for group, suspect in self._groups.items()}
        self._groups = {group: suspect for group, suspect in left.items() if group}

    def _drop(self, gone: Collection[TopicPartition]) -> None:
        self._take_out(gone)
        for tp in gone:
            for known in (self._until, self._at, self.since):
                known.pop(tp, None)


def _pause(first: float, failures: int, longest: float) -> float:
    """Return the seconds to wait after one more than so many failures."""
    return min(longest, first * 2.0 ** min(failures, 16))
