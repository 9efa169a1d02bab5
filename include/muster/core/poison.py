"""Which records are bad, which of them get a letter without a person, and when a person is asked.

The rule has five sentences, which stand in `docs/handlers.md` so that a person can apply them by hand:

1. A record that the handler rejects is bad. Any other is found by trying its batch again as it was, then halving;
   then it is tried alone after 1, 2, 4 ... 60 s, until it passes or is answered.
2. It is *poison* after ten minutes alone without a pass, if its last five tries had one error, between each two of
   these more batches of other records passed than failed, and within the hour no record that failed alone three times
   with that error passed by itself. SinkErrors, failures of reading and deaths never count.
3. With `on_poison: dead_letter` poison gets a letter; the topic's next one only once the record behind the last one
   passed; after ten an hour none until a person answers.
4. A standing answer needs three failures alone. It and rejects stop until answered at 33 of a partition's or topic's
   last 100 records; a standing answer also if more (at least three) matched records passed by themselves within the
   hour than were answered.
5. A person is asked once a topic, error and hour: at once when something stops, after two minutes if others pass,
   after five if nothing does.

`muster.core.turns` has the first one. Batches are those of the topic's handler, because another one has another
sink. All of it is counted by one consumer, and begins again with another owner; a
topic that is stopped stays so, by what is committed of its partitions.

Pure; times are in seconds, of the caller's clock.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.model import OffsetRange, TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.core.turns import HOUR, Failure, Suspect, Turns

ALONE, TRIES = 600.0, 5
"""Seconds for which poison has failed alone, and its last tries that must have one error."""
KNOWN = 3
"""Failures alone after which a standing answer is given, and after which a record that passes by itself speaks for
the others that fail so."""
POISON_AN_HOUR, REJECTS_AN_HOUR = 10, 1000
"""Letters of a topic without a person's answer: of poison, and of what the handler rejects."""
MOST_BAD, OF_LAST = 33, 100
"""Answered records of a partition's or topic's last ones, at which all stops."""
DOUBTS = 3
"""Records that a standing answer matches and that pass by themselves within an hour, at which it may stop."""
ASK_IF_OTHERS_PASS, ASK = 120.0, 300.0
"""Seconds after which a person is asked."""
LATELY = 60.0
"""Seconds within which a batch passed, if others pass."""


@dataclass(slots=True)
class Recent:
    """The last records of a partition or topic: how many there were, and which of them were answered."""

    records: int = 0
    answered: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_BAD))

    def read(self, records: int) -> None:
        """Count records that were not answered."""
        self.records += records

    def answer(self) -> None:
        """Count one that was."""
        self.answered.append(self.records)
        self.records += 1

    @property
    def too_many(self) -> bool:
        """Whether so many of the last ones were answered that all stops."""
        full = len(self.answered) == MOST_BAD
        return full and self.records - self.answered[0] <= OF_LAST


@dataclass(slots=True)
class Topic:
    """What counts for the letters of one topic until a person answers."""

    whole: Recent = field(default_factory=Recent)
    partitions: defaultdict[int, Recent] = field(default_factory=lambda: defaultdict(Recent))
    rejects: deque[float] = field(default_factory=deque)
    poison: deque[float] = field(default_factory=deque)
    stood: deque[float] = field(default_factory=deque)
    """When records were answered by a standing answer."""
    doubts: deque[float] = field(default_factory=deque)
    """When records that a standing answer matches passed by themselves."""
    unproven: set[int] = field(default_factory=set)
    """The partitions whose record behind the last letter has not passed yet."""
    stopped: str = ""
    """Why nothing more is dead-lettered, '' if it is."""


class Poison:
    """The rule, for one consumer. `turns` says what is tried next."""

    def __init__(self, handler_of: Callable[[str], int] = lambda _topic: 0) -> None:
        self.turns = Turns(handler_of)
        self._topics: defaultdict[str, Topic] = defaultdict(Topic)
        self._passed: dict[tuple[int, str], float] = {}
        """When a record passed by itself that had failed alone for some times, by handler and kind of error."""
        self._asked: dict[tuple[str, str], float] = {}
        """When a person was asked last, by topic and kind of error."""
        self._standing: tuple[StandingAnswer, ...] = ()
        self._retried: dict[TopicPartition, int] = {}
        """The records that are tried on by a standing answer, and that no person is asked about."""

    @property
    def stopped(self) -> dict[str, str]:
        """The topics of which nothing is dead-lettered until a person answers, with the reason."""
        return {name: topic.stopped for name, topic in self._topics.items() if topic.stopped}

    def stop(self, topic: str, why: str) -> None:
        """Stop a topic, unless it is."""
        self._topics[topic].stopped = self._topics[topic].stopped or why

    def stand(self, standing: Iterable[StandingAnswer]) -> None:
        """Go by these standing answers from now on."""
        self._standing = tuple(sorted(standing, key=lambda one: (-len(one.text), one.at)))
        suspects = self.turns.suspects
        self._retried = {
            tp: offset
            for tp, offset in self._retried.items()
            if tp in suspects
            and (one := self.matching(tp[0], suspects[tp].failure.text)) is not None
            and one.answer is Answer.RETRY
        }

    def matching(self, topic: str, error: str) -> StandingAnswer | None:
        """Return the standing answer about an error; of several the one with the longest text."""
        return next((one for one in self._standing if one.topic == topic and one.matches(error)), None)

    def unbounded(self, topic: str, error: str) -> StandingAnswer | None:
        """Return the standing answer about what a handler rejects with an error: one without a limit that has it left
        out."""
        one = self.matching(topic, error)
        return None if one is None or one.limited or one.answer is Answer.RETRY else one

    def stands(self, tp: TopicPartition, now: float) -> StandingAnswer | None:
        """Return the standing answer that the next record of a partition is due; None without one, or where it stops,
        which stops the topic."""
        suspect, topic = self.turns.suspects.get(tp), self._topics[tp[0]]
        if suspect is None or topic.stopped or len(suspect.tries) < KNOWN or not suspect.failure.of_record:
            return None
        one = self.matching(tp[0], suspect.failure.text)
        if one is None or self._is_retried(tp, suspect):
            return None
        if one.answer is not Answer.RETRY:
            topic.stopped = self._doubt(tp, topic, now)
        return None if topic.stopped else one

    @staticmethod
    def _doubt(tp: TopicPartition, topic: Topic, now: float) -> str:
        """Return why no standing answer is given about one more record of a partition, '' if it is."""
        for recent, where in ((topic.whole, ""), (topic.partitions[tp[1]], f", partition {tp[1]}")):
            tried = _copy(recent)
            tried.answer()
            if tried.too_many:
                return (
                    f"{MOST_BAD} of the last {OF_LAST} records of topic {tp[0]!r}{where} were to be left out"
                )
        _forget_old(topic.stood, now)
        _forget_old(topic.doubts, now)
        if len(topic.doubts) >= DOUBTS and len(topic.doubts) > len(topic.stood):
            return (
                f"{len(topic.doubts)} records of topic {tp[0]!r} that a standing answer matches passed by themselves "
                f"within an hour, and {len(topic.stood)} were left out"
            )
        return ""

    def stood(self, tp: TopicPartition, now: float) -> None:
        """Take note that the next record of a partition is left out by a standing answer."""
        _forget_old(self._topics[tp[0]].stood, now)
        self._topics[tp[0]].stood.append(now)

    def retried(self, tp: TopicPartition) -> None:
        """Try the next record of a partition on, and ask no person about it, as a standing answer has it."""
        if (suspect := self.turns.suspects.get(tp)) is not None:
            self._retried[tp] = suspect.offset

    def _is_retried(self, tp: TopicPartition, suspect: Suspect) -> bool:
        return bool(suspect.tries) and self._retried.get(tp) == suspect.offset

    def failed(self, ranges: Mapping[TopicPartition, OffsetRange], now: float, failure: Failure) -> None:
        """Take note that the handler raised, given the records of `ranges`, none of which is empty."""
        self.turns.failed(ranges, now, failure)

    def passed(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        now: float,
        rejected: Mapping[TopicPartition, Mapping[int, str]] | None = None,
    ) -> None:
        """Take note that the handler returned from a batch of `ranges`, none of which is empty, and has `rejected`
        some of its records, as it might (`may_reject`)."""
        suspects = self.turns.suspects
        for tp in ranges.keys() & suspects.keys():
            matched = self.matching(tp[0], suspects[tp].failure.text) if suspects[tp].tries else None
            if matched is not None and matched.answer is not Answer.RETRY:
                _forget_old(self._topics[tp[0]].doubts, now)
                self._topics[tp[0]].doubts.append(now)
            if len(suspects[tp].tries) >= KNOWN:
                self._passed[self.turns.handler_of(tp[0]), suspects[tp].tries[-1].kind] = now
        self.turns.passed(ranges, now)
        for tp, (begin, end) in sorted(ranges.items()):
            topic = self._topics[tp[0]]
            topic.unproven.discard(tp[1])
            bad = (rejected or {}).get(tp, {})
            topic.rejects.extend(now for error in bad.values() if self.unbounded(tp[0], error) is None)
            for recent in (topic.whole, topic.partitions[tp[1]]):
                _replay(recent, begin, end, sorted(bad))

    def may_reject(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        rejected: Mapping[TopicPartition, Mapping[int, str]],
        now: float,
    ) -> str:
        """Return why the handler may not reject these records of the batch of `ranges` that it has, '' if it may.
        Once it may not, the topic is stopped until a person answers."""
        for name in sorted({tp[0] for tp in rejected}):
            topic = self._topics[name]
            topic.stopped = topic.stopped or self._too_many_rejects(name, topic, ranges, rejected, now)
            if topic.stopped:
                return topic.stopped
        return ""

    def _too_many_rejects(
        self,
        name: str,
        topic: Topic,
        ranges: Mapping[TopicPartition, OffsetRange],
        rejected: Mapping[TopicPartition, Mapping[int, str]],
        now: float,
    ) -> str:
        _forget_old(topic.rejects, now)
        bad = {tp: sorted(errors) for tp, errors in rejected.items() if tp[0] == name}
        new = sum(self.unbounded(name, error) is None for tp in bad for error in rejected[tp].values())
        if new and len(topic.rejects) + new > REJECTS_AN_HOUR:
            return (
                f"the handler rejected more than {REJECTS_AN_HOUR} records of topic {name!r} within an hour"
            )
        whole = _copy(topic.whole)
        for tp, (begin, end) in sorted(ranges.items()):
            if tp[0] != name:
                continue
            if _replay(whole, begin, end, bad.get(tp, ())):
                return f"the handler rejected {MOST_BAD} of the last {OF_LAST} records of topic {name!r}"
            if _replay(_copy(topic.partitions[tp[1]]), begin, end, bad.get(tp, ())):
                return (
                    f"the handler rejected {MOST_BAD} of the last {OF_LAST} records of topic {name!r}, partition "
                    f"{tp[1]}"
                )
        return ""

    def gets_letter(self, tp: TopicPartition, now: float) -> bool:
        """Tell whether the next record of a partition is poison, and no letter before it forbids one of it."""
        suspect, topic = self.turns.suspects.get(tp), self._topics[tp[0]]
        if suspect is None or topic.stopped or topic.unproven or self._is_retried(tp, suspect):
            return False
        if not self._is_poison(tp[0], suspect, now):
            return False
        _forget_old(topic.poison, now)
        if len(topic.poison) >= POISON_AN_HOUR:
            topic.stopped = f"{POISON_AN_HOUR} poison records of topic {tp[0]!r} were found within an hour"
        return not topic.stopped

    def _is_poison(self, topic: str, suspect: Suspect, now: float) -> bool:
        tries = suspect.tries
        if len(tries) < TRIES or now - tries[0].at < ALONE:
            return False
        last = tries[-TRIES:]
        kind = last[0].kind
        alike = all(each.kind == kind for each in last)
        passed_at = self._passed.get((self.turns.handler_of(topic), kind), -math.inf)
        return alike and all(each.others > 0 for each in last[:-1]) and now - passed_at > HOUR

    def letter(self, tp: TopicPartition, now: float) -> None:
        """Take note that the next record of a partition gets a letter because it is poison."""
        topic = self._topics[tp[0]]
        topic.poison.append(now)
        topic.unproven.add(tp[1])

    def passed_over(self, tp: TopicPartition, end: int, now: float) -> None:
        """Take note that a partition goes on at `end`, behind a record that got a letter or was skipped."""
        self.turns.answered(tp, end, now)
        topic = self._topics[tp[0]]
        topic.whole.answer()
        topic.partitions[tp[1]].answer()

    def answered(self, topic: str) -> None:
        """Take note that a person has answered about a topic: what had stopped goes on, and counts begin again."""
        self._topics.pop(topic, None)

    def waiting(self, now: float) -> dict[TopicPartition, str]:
        """Return the suspect partitions that a person is asked about, each with the kind of its error: at once if the
        topic is stopped, else if they have not moved for two minutes while others pass, or for five."""
        found = {}
        for tp, suspect in self.turns.suspects.items():
            if now - self._asked.get((tp[0], suspect.failure.kind), -math.inf) < HOUR:
                continue
            stopped = self._topics[tp[0]].stopped
            if self._is_retried(tp, suspect) and not stopped:
                continue
            others_pass = now - self.turns.sink([tp]).passed_at < LATELY
            limit = ASK_IF_OTHERS_PASS if others_pass else ASK
            if stopped or now - self.turns.since[tp] >= limit:
                found[tp] = suspect.failure.kind
        return found

    def wait(self, topic: str, kind: str, now: float) -> None:
        """Ask nothing about a topic and a kind of error for an hour: a person was asked."""
        self._asked[topic, kind] = now


def _replay(recent: Recent, begin: int, end: int, bad: Collection[int]) -> bool:
    """Count the records from `begin` to `end`, of which the `bad` ones, in order, are answered; tell whether there
    were too many at any of them."""
    too_many = False
    for offset in bad:
        recent.read(offset - begin)
        recent.answer()
        begin, too_many = offset + 1, too_many or recent.too_many
    recent.read(end - begin)
    return too_many


def _copy(recent: Recent) -> Recent:
    return Recent(recent.records, recent.answered.copy())


def _forget_old(times: deque[float], now: float) -> None:
    while times and times[0] < now - HOUR:
        times.popleft()
