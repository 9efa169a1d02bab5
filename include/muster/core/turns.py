"""Whose turn it is: of which partitions the next batch holds records, and how many at most.

As a rule of all. Topics with different handlers take turns, because a batch has one handler. And what a handler has
failed with is *suspect*: one record that it cannot take must not keep other partitions from being read. So the
partitions of a batch that failed are tried again in two halves, each half that fails in halves again, until the one
that fails is alone. Of that one a single record is tried, then twice as many each time that it works, half as many
each time that it does not, until it is known which record it is. A record that fails alone is tried again after a
pause that doubles each time. What does not fail goes on with the others.

Where everything fails, no record is at fault: the sink is down, say. As long as no batch of a handler comes through,
the pause before any of its suspects is tried doubles with each failure.

Poison
------

Of a record that has failed alone, `Suspect` remembers what the handler had done by then. So it is known what came
*since*: which batches came through, and which failed. A record is *poison* when it has failed alone `max_attempts`
times and there is proof that the sink works, which is one of these:

- *of its topic*: since it first failed alone, records of another partition of its topic came through, and no other
  partition has a record that fails alone with the same kind of exception.
- *of its own partition*: after the batch with the record had failed, records before it came through by themselves,
  and the record fails alone as the batch did, with the same kind of exception; and since it first failed alone, its
  handler came through with something, or had nothing else to try. One such proof is good for one record.

So nothing is poison while nothing comes through, or while one failure hits records of several partitions, unless each
of those partitions has proof of its own. In a topic with a single partition only records before it can prove that the
record is poison. A record that no proof is found for is tried again as before, and a person hears of it.

Pure; times are in seconds, of the caller's clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from muster.core.model import OffsetRange, TopicPartition

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a record that fails alone is tried again, at first and at most."""
BRIEFEST_PAUSE = 0.1
"""Seconds until anything is tried again after a handler's first failure."""


@dataclass(frozen=True)
class Done:
    """How many batches came through with records of one topic, and of one handler, and how many of the latter
    failed."""

    of_topic: int
    of_handler: int
    failed: int


@dataclass(frozen=True)
class Suspect:
    """Partitions that failed together, each with the end of the batch that failed first: once a partition has got
    there it is suspect no longer.

    `most` is how many records are tried at once, None without a limit. `failures` counts how many times a record has
    failed alone, `offset` which one that is, and `error` how it failed the last time, in a text such as
    `ValueError: ...`; it is not tried again before `retry_at`. `first` is what had been done when it first failed
    alone. `proven`: records of the partition came through since it is suspect, which it is for an exception of the
    kind `began`.
    """

    until: Mapping[TopicPartition, int]
    most: int | None = None
    failures: int = 0
    retry_at: float = 0.0
    offset: int = -1
    error: str = ""
    first: Done | None = None
    proven: bool = False
    began: str = ""

    @property
    def kind(self) -> str:
        """The kind of exception that the record failed with."""
        return _kind(self.error)


@dataclass
class _Streak:
    """How many times a handler has failed since a batch came through, and until when its suspects wait for that."""

    failures: int = 0
    retry_at: float = 0.0


class Turns:
    """Gives turns. `handler_of` numbers a topic's handler."""

    def __init__(self, handler_of: Callable[[str], int] = lambda _topic: 0) -> None:
        self._handler_of = handler_of
        self._suspects: list[Suspect] = []
        self._streaks: defaultdict[int, _Streak] = defaultdict(_Streak)
        self._came_through: Counter[str | int] = Counter()
        """Batches that came through, by topic and by handler."""
        self._raised: Counter[int] = Counter()
        """Batches that failed, by handler."""
        self._number = 0
        self._failed = False
        """Whether the last turn failed: then those that are not suspect go first."""
        self._last: dict[object, int] = {}
        """The numbers of the last turns."""

    @property
    def suspects(self) -> dict[TopicPartition, Suspect]:
        """What is suspect, by partition."""
        return {tp: suspect for suspect in self._suspects for tp in suspect.until}

    def next(self, ready: Collection[TopicPartition], now: float) -> dict[TopicPartition, int | None]:
        """Choose of the partitions `ready`, which have something to read, those whose turn it is, with how many
        records each may give at most (None: without a limit)."""
        candidates: dict[object, dict[TopicPartition, int | None]] = {}
        for tp in sorted(set(ready) - self.suspects.keys()):
            candidates.setdefault(self._handler_of(tp[0]), {})[tp] = None
        first, self._failed = self._failed and bool(candidates), False
        for suspect in () if first else self._suspects:
            held = {tp: suspect.most for tp in suspect.until if tp in ready}
            if held and max(suspect.retry_at, self._streak(suspect.until).retry_at) <= now:
                candidates[frozenset(suspect.until)] = held
        known = {*candidates, *(frozenset(suspect.until) for suspect in self._suspects)}
        self._last = {key: number for key, number in self._last.items() if key in known}
        if not candidates:
            return {}
        chosen = min(candidates, key=lambda key: self._last.get(key, -1))
        self._number += 1
        self._last[chosen] = self._number
        return candidates[chosen]

    def failed(self, ranges: Mapping[TopicPartition, OffsetRange], now: float, error: str = "") -> None:
        """Take note that the handler raised, given the records of `ranges`, none of which is empty; `error` is what,
        such as `ValueError: ...`."""
        self._failed = True
        self._raised[self._handler_of(min(ranges)[0])] += 1
        streak = self._streak(ranges)
        streak.retry_at = now + _pause(BRIEFEST_PAUSE, streak.failures)
        streak.failures += 1
        known = self.suspects
        until = {tp: known[tp].until[tp] if tp in known else end for tp, (_, end) in ranges.items()}
        self._drop(ranges)
        if len(ranges) > 1:
            first = sorted(ranges)[: len(ranges) // 2]
            for half in (first, sorted(ranges.keys() - set(first))):
                self._suspects.append(Suspect({tp: until[tp] for tp in half}, began=_kind(error)))
            return
        ((tp, (begin, end)),) = ranges.items()
        before = known.get(tp, Suspect(until))
        began = before.began or _kind(error)
        if end - begin > 1:
            most = 1 if before.most is None else (end - begin) // 2
            self._suspects.append(Suspect(until, most, proven=before.proven, began=began))
        else:
            self._suspects.append(
                Suspect(
                    until,
                    most=1,
                    failures=before.failures + 1,
                    retry_at=now + _pause(FIRST_PAUSE, before.failures),
                    offset=begin,
                    error=error,
                    first=before.first or self._done(tp[0]),
                    proven=before.proven,
                    began=began,
                )
            )

    def fails_alone(self, ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
        """Tell whether it is a single record, known to fail."""
        known = self.suspects
        return len(ranges) == 1 and all(
            end - begin == 1 and tp in known and known[tp].failures > 0 for tp, (begin, end) in ranges.items()
        )

    def is_poison(self, tp: TopicPartition, max_attempts: int) -> bool:
        """Tell whether the next record of a partition is poison, by the rule of this module."""
        suspect = self.suspects.get(tp)
        if suspect is None or suspect.first is None or suspect.failures < max_attempts:
            return False
        first, now = suspect.first, self._done(tp[0])
        alone = not any(
            one.failures and one.kind == suspect.kind and tp not in one.until for one in self._suspects
        )
        came_through = now.of_handler > first.of_handler
        nothing_else = now.failed - first.failed == suspect.failures - 1
        of_topic = now.of_topic > first.of_topic and alone
        of_partition = suspect.proven and suspect.kind == suspect.began and (came_through or nothing_else)
        return of_topic or of_partition

    def again(self, tp: TopicPartition) -> None:
        """Try the next record of a partition as if it had not failed alone yet."""
        self._replace(tp, lambda one: Suspect(one.until, 1, proven=one.proven, began=one.began))

    def passed_over(self, tp: TopicPartition, end: int) -> None:
        """Take note that a partition goes on at `end`, beyond its poison record, with the next one alone. What was
        proven is used up."""
        self.passed({tp: end})
        self._replace(tp, lambda one: Suspect(one.until, 1))

    def passed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Take note that partitions were read up to `ends`, or go on there without having been read."""
        known = self.suspects
        self._drop({tp for tp, end in ends.items() if tp in known and end >= known[tp].until[tp]})

    def processed(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        """Take note that the handler returned from a batch of `ranges`, none of which is empty."""
        handler = self._handler_of(min(ranges)[0])
        self._streaks.pop(handler, None)
        self._came_through.update({handler, *(topic for topic, _ in ranges)})
        self.passed({tp: end for tp, (_, end) in ranges.items()})
        self._suspects = [
            one
            if one.until.keys().isdisjoint(ranges)
            else Suspect(
                one.until,
                None if one.most is None else 2 * one.most,
                proven=len(one.until) == 1,
                began=one.began,
            )
            for one in self._suspects
        ]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is not held any more, or begins again: its offsets may be those of another topic."""
        self._drop(set(partitions))

    def _streak(self, partitions: Collection[TopicPartition]) -> _Streak:
        return self._streaks[self._handler_of(min(partitions)[0])]

    def _done(self, topic: str) -> Done:
        handler = self._handler_of(topic)
        return Done(self._came_through[topic], self._came_through[handler], self._raised[handler])

    def _replace(self, tp: TopicPartition, change: Callable[[Suspect], Suspect]) -> None:
        self._suspects = [change(one) if tp in one.until else one for one in self._suspects]

    def _drop(self, gone: Collection[TopicPartition]) -> None:
        left = [
            replace(one, until={tp: end for tp, end in one.until.items() if tp not in gone})
            for one in self._suspects
        ]
        self._suspects = [one for one in left if one.until]


def _kind(error: str) -> str:
    """Return what an error begins with: `ValueError` of `ValueError: ...`."""
    return error.partition(":")[0]


def _pause(first: float, failures: int) -> float:
    """Return the seconds to wait after one more than so many failures."""
    return min(LONGEST_PAUSE, first * 2.0 ** min(failures, 16))
