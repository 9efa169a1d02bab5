"""A consumer with its batches, sinks that fail and records that are bad, for the rule of `muster.core.poison`.

One batch runs at a time; it passes, raises, or names its bad records. There are no answers but a standing one. Times
are in seconds.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.core.model import OffsetRange, TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.core.poison import Poison
from muster.core.turns import HOUR, Failure

FIXED, PER_RECORD, LETTER, IDLE = 0.3, 1e-5, 2e-5, 0.2
"""Seconds of a batch, of each record in it, of each letter, and of a planning with nothing to read."""
LARGEST = 100_000
"""Records of a batch."""
BAD = "BadError: no"

STANDING = StandingAnswer(by="ann", at=0.0, why="known", topic="t", answer=Answer.SKIP, error="BadError")

Ranges = Mapping[TopicPartition, OffsetRange]
Sink = Callable[[int, float, Ranges, random.Random], bool]
"""Whether the sink fails: by the number of the attempt, the time, the ranges, and chance."""


@dataclass
class World:
    """`bad` is a share, or offsets by partition; `named`: the handler names them and returns. `rate` is in records a
    second and partition. The sink fails with `error`, the same as that of bad records as a rule: the worst case."""

    sink: Sink | None = None
    bad: float | Mapping[int, list[int]] = 0.0
    parts: int = 12
    rate: float = 20.0
    error: Failure = field(default_factory=lambda: Failure(BAD))
    named: bool = False
    standing: bool = False
    """Whether a standing answer leaves out what fails with the error of bad records."""


class Flow:
    """Plays the rule in a world for so many `hours`.

    `letters` are those of poison, with the time; `answered` what the standing answer left out; `named` counts what
    the handler asked for; `asked` has the questions, with the time. `took` has the seconds for which the bad records
    among them were waited for, `after` those from a failure to its question, and `stood` all for which partitions
    stood for more than a minute.
    """

    def __init__(self, world: World, hours: float = 1.0, seed: int = 0, dead_letter: bool = True) -> None:
        self.world, self.dead_letter, self.rng = world, dead_letter, random.Random(seed)
        self.now, self.attempts, self.rule = 0.0, 0, Poison()
        self.at = {("t", p): 0 for p in range(world.parts)}
        self.letters: list[tuple[float, TopicPartition, int]] = []
        self.answered: list[tuple[float, TopicPartition, int]] = []
        self.asked: list[tuple[float, str]] = []
        self.took: list[float] = []
        self.after: list[float] = []
        self.stood = 0.0
        if world.standing:
            self.rule.stand([STANDING])
        self.found: dict[TopicPartition, int] = {}
        self.named = self.stopped = 0
        self._rates = [
            (world.rate * (0.9 + 0.2 * phase), phase) for phase in (self.rng.random() for _ in self.at)
        ]
        self._has_bad = bool(world.bad)
        self._bad = dict(world.bad) if isinstance(world.bad, Mapping) else {}
        self._made = [math.inf if isinstance(world.bad, Mapping) else 0.0] * world.parts
        while self.now < hours * HOUR:
            self.step()
        for tp in self.rule.turns.since:
            self._stood(tp)

    @property
    def good(self) -> list[tuple[float, TopicPartition, int]]:
        """The letters of good records, and what else was left out of them."""
        left_out = [*self.letters, *self.answered]
        return [each for each in left_out if not self.bads(each[1], each[2], each[2] + 1)]

    @property
    def read(self) -> float:
        """The share of all records that was read."""
        return sum(self.at.values()) / sum(self.end(tp) for tp in self.at)

    def end(self, tp: TopicPartition) -> int:
        rate, phase = self._rates[tp[1]]
        return int(rate * self.now + phase)

    def bads(self, tp: TopicPartition, begin: int, end: int) -> list[int]:
        known = self._bad.setdefault(tp[1], [])
        share = self.world.bad
        while isinstance(share, float) and share and self._made[tp[1]] < end:
            step = int(math.log(1 - self.rng.random()) / math.log(1 - share))
            known.append(int(self._made[tp[1]]) + step)
            self._made[tp[1]] = known[-1] + 1
        return known[bisect_left(known, begin) : bisect_left(known, end)]

    def step(self) -> None:
        """One batch, or a pause if nothing is due."""
        waiting = self.rule.waiting(self.now) if self.rule.turns.suspects else {}
        for topic, kind in {(tp[0], kind) for tp, kind in waiting.items()}:
            self.asked.append((self.now, kind))
            self.after.append(max(self.now - self.rule.turns.since[tp] for tp in waiting))
            self.rule.wait(topic, kind, self.now)
        ends = {tp: self.end(tp) for tp in self.at}
        ready = {tp for tp, at in self.at.items() if ends[tp] > at}
        turn = self.rule.turns.next(ready, self.now)
        if not turn:
            self.now += IDLE if self.world.rate >= 1 else 0.5
            return
        most = LARGEST // len(turn)
        ranges = {
            tp: (self.at[tp], min(ends[tp], self.at[tp] + min(most, m or most))) for tp, m in turn.items()
        }
        self.now += FIXED + PER_RECORD * sum(end - begin for begin, end in ranges.values())
        self.attempts += 1
        self._try(ranges)

    def _try(self, ranges: Ranges) -> None:
        if self.world.sink and self.world.sink(self.attempts, self.now, ranges, self.rng):
            self._fails(ranges, self.world.error)
            return
        bad = (
            {tp: found for tp, held in ranges.items() if (found := self.bads(tp, *held))}
            if self._has_bad
            else {}
        )
        if not bad:
            self._passes(ranges)
        elif self.world.named:
            self._names(ranges, bad)
        else:
            self._fails(ranges, Failure(BAD))

    def _names(self, ranges: Ranges, bad: dict[TopicPartition, list[int]]) -> None:
        named = {tp: dict.fromkeys(offsets, BAD) for tp, offsets in bad.items()}
        if self.rule.may_reject(ranges, named, self.now):
            self.stopped += 1
            self._fails(ranges, Failure("TooManyRejectsError: stopped", of_record=False))
            return
        self.named += sum(map(len, bad.values()))
        self.now += LETTER * sum(map(len, bad.values()))
        self._passes(ranges, named)

    def _passes(self, ranges: Ranges, bad: Mapping[TopicPartition, Mapping[int, str]] | None = None) -> None:
        for tp in self.rule.turns.since.keys() & ranges.keys():
            self._stood(tp)
        self.rule.passed(ranges, self.now, bad)
        self.at |= {tp: end for tp, (_, end) in ranges.items()}

    def _fails(self, ranges: Ranges, error: Failure) -> None:
        self.rule.failed(ranges, self.now, error)
        ((tp, (begin, end)), *others) = ranges.items()
        suspect = self.rule.turns.suspects[tp]
        if others or end - begin > 1 or not suspect.failures:
            return
        self.found.setdefault(tp, self.attempts)
        if self.rule.stands(tp, self.now) is not None:
            self.answered.append((self.now, tp, begin))
            self.rule.stood(tp, self.now)
            self._passes_over(tp, end)
        elif self.dead_letter and self.rule.gets_letter(tp, self.now):
            self.letters.append((self.now, tp, begin))
            self.rule.letter(tp, self.now)
            self._passes_over(tp, end)

    def _passes_over(self, tp: TopicPartition, end: int) -> None:
        if self.bads(tp, end - 1, end):
            self.took.append(self.now - self.rule.turns.since[tp])
        self._stood(tp)
        self.at[tp] = end
        self.rule.passed_over(tp, end, self.now)

    def _stood(self, tp: TopicPartition) -> None:
        seconds = self.now - self.rule.turns.since[tp]
        self.stood += seconds if seconds > 60 and tp in self.rule.turns.suspects else 0.0


def fails(
    share: float, begin: float = 0.0, end: float = math.inf, only: frozenset[int] | None = None
) -> Sink:
    """A sink that fails by chance, from `begin` to `end`; for batches with one of the partitions `only`."""

    def sink(_attempt: int, now: float, ranges: Ranges, rng: random.Random) -> bool:
        meant = only is None or any(p in only for _, p in ranges)
        return begin <= now < end and meant and rng.random() < share

    return sink


def key_shard(begin: float, end: float = math.inf) -> Sink:
    """A sink that takes no third of the records, by the hash of their keys, from `begin` to `end`."""

    def lost(tp: TopicPartition, offset: int) -> bool:
        return ((offset * 2654435761 + tp[1] * 40503 & 0xFFFFFFFF) >> 9) % 3 == 0

    def sink(_attempt: int, now: float, ranges: Ranges, _rng: random.Random) -> bool:
        return begin <= now < end and any(lost(tp, at) for tp, held in ranges.items() for at in range(*held))

    return sink


def _alternates(attempt: int, now: float, _ranges: Ranges, _rng: random.Random) -> bool:
    return now > 60 and attempt % 2 == 1


def _recovers(_attempt: int, now: float, _ranges: Ranges, rng: random.Random) -> bool:
    return 60 < now < 960 and rng.random() < (960 - now) / 600


def _dies(_attempt: int, now: float, _ranges: Ranges, rng: random.Random) -> bool:
    return 60 < now < 1980 and rng.random() < (now - 60) / 120


def _bursts(_attempt: int, now: float, _ranges: Ranges, _rng: random.Random) -> bool:
    return random.Random(int(now / 30)).random() < 0.15


HALF = frozenset(range(6))
FOR_ALL: dict[str, Sink] = {
    **{f"fails {share}": fails(share) for share in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)},
    **{f"outage of {minutes:g} min": fails(1, 600, 600 + 60 * minutes) for minutes in (0.5, 10, 30)},
    "alternating backends": _alternates,
    "recovery": _recovers,
    "dying": _dies,
    "bursts": _bursts,
}
"""Sinks that fail for all partitions alike."""
FOR_SOME: dict[str, Sink] = {
    "partition flaps": fails(0.9, only=frozenset({0})),
    "partition, 10 min": fails(1, 600, 1200, frozenset({0})),
    "partition, always": fails(1, 600, only=frozenset({0})),
    "6 partitions, always": fails(1, 600, only=HALF),
    "6 partitions flap": fails(0.9, only=HALF),
    "key shard, 10 min": key_shard(600, 1200),
    "key shard, always": key_shard(600),
}
"""Sinks that fail for some partitions or records only."""
