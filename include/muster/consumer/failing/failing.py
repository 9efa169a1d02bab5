"""What a consumer tries next where its handler fails, its process dies, or partitions cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from muster.consumer.failing.parked import DEATHS_ALONE, ParkedPartitions
from muster.consumer.failing.unreadable import Unreadable
from muster.consumer.problems import DOUBTED, HANDLER, UNCOMMITTED, named, of_partition
from muster.consumer.shared import Shared
from muster.consumer.stateless import Stateless
from muster.core.apart import Apart
from muster.core.failures import Failures
from muster.core.model import OffsetRange, TopicPartition
from muster.core.ownership import HELD_BACK, Due, Ownership
from muster.core.parking import Answer, OnPoison
from muster.core.poison import Poison
from muster.core.turns import Failure, Suspect
from muster.core.unread import Kind, ReadFailure
from muster.sinks.batch import Rejected

log = logging.getLogger(__name__)


class Failing:
    """Gives turns, and judges the batches that were tried. `park`, `passed_over`, `with_letters` and `follow` are
    called under the lock; the other methods take it.

    `on_poison` is what becomes of a poison record; `on_stop` is called with the name of the one that this consumer
    stops for.
    """

    def __init__(
        self,
        shared: Shared,
        parked: ParkedPartitions,
        states: Stateless,
        handler_of: Callable[[str], int],
        on_poison: OnPoison,
    ) -> None:
        self._shared = shared
        self._parked = parked
        self._states = states
        self._handler_of = handler_of
        self._on_poison = on_poison
        self.on_stop: Callable[[str], None] = log.error
        self.poison = Poison(handler_of)
        self.turns = self.poison.turns
        self.failures = Failures()
        self.unreadable = Unreadable(shared)
        with shared.locked() as own:
            self._apart = Apart(own, self.turns)
        self.too_large: dict[tuple[TopicPartition, int], str] = {}
        """Why the letters of rejected records could not be written, until a person answers."""
        self._error = ""

    # -- what is tried next -------------------------------------------------------------------------------

    def turn(self, ready: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return whose turn it is, of those that may be read now; see `Turns.next`. What is parked has none, and what
        was parked when the planner was made an offer."""
        with self._shared.locked() as own:
            may = {tp for tp in ready if tp not in own.held or own.held[tp].passed is None}
            now = self._shared.clock()
            not_read = own.not_read(now)
            held_back = {tp: "" for tp, why in not_read.items() if why == HELD_BACK}
            self._shared.problems.note(
                UNCOMMITTED,
                f"{named(held_back)}: {HELD_BACK}; nothing more is read until it has answered"
                if held_back
                else None,
            )
            self._parked.park_damaged()
            readable = self._parked.readable(may) - not_read.keys() - own.shards.uncommitted()
            readable -= self._before_timers()
            if again := self.unreadable.due(readable):
                return dict.fromkeys(again)
            turn = self._apart.next(readable - self.unreadable.all.keys(), now)
            most = self._states.most
            return {tp: _least(self._parked.before_damage(tp, limit), most(tp)) for tp, limit in turn.items()}

    def due_state(self, idle: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions without records, of those, of which something of their state is due: of one handler's
        topics."""
        due = self._states.due() & set(idle)
        with self._shared.locked() as own:
            due -= own.not_read(self._shared.clock()).keys() | own.shards.uncommitted()
            due -= self._parked.all.keys()
            of = self._handler_of(min(due)[0]) if due else 0
            return frozenset(tp for tp in due if self._handler_of(tp[0]) == of)

    def _before_timers(self) -> set[TopicPartition]:
        """Return the partitions of shards of which a timer has failed: whichever is read, the timer fails again."""
        failed = [tp for tp, why in self._parked.all.items() if why.timer]
        return {each for tp in failed for each in self._states.topics.shard(tp)}

    def planned(
        self,
        begun: Collection[TopicPartition],
        stopped: Collection[TopicPartition],
        sought: Collection[TopicPartition],
        ends: Mapping[TopicPartition, int],
        caught_up: Collection[TopicPartition],
    ) -> None:
        """Take note of a plan: of the partitions that begin with it, those that were `stopped` with their last owner,
        those that go on elsewhere, where they end, and those without lag."""
        with self._shared.locked() as own:
            for topic, partition in sorted(stopped):
                self.poison.stop(topic, f"it was stopped when partition {partition} had another owner")
            self.stop()
            self.turns.forget(sought)
            self.unreadable.forget(caught_up)
            begins = [tp for tp in begun if tp in own.held and own.held[tp].planned is not None]
            for tp, deaths in self._apart.begin(begins, ends).items():
                self._parked.park_deadly(tp, deaths)
            self._follow_doubts(caught_up)

    def _follow_doubts(self, caught_up: Collection[TopicPartition] = ()) -> None:
        parked = self._parked.all.keys()
        self._apart.follow(parked, caught_up)
        words = {of_partition(DOUBTED, tp): text for tp, text in self._apart.words(parked).items()}
        self._shared.problems.note_all(DOUBTED, words)

    # -- what was tried -----------------------------------------------------------------------------------

    def failed(
        self, ranges: Mapping[TopicPartition, OffsetRange], failure: Failure, rejected: Rejected, at: float
    ) -> bool:
        """Take note that the handler raised, given the records of `ranges`, `at` seconds since the epoch. `rejected`
        are records that it may not reject: their partitions stop before the first of them.

        Returns whether that is known already, and no fault of the others, which may just have nothing to read.
        """
        with self._shared.locked() as own:
            now = self._shared.clock()
            self._apart.tried(ranges)
            alone = self._fails_alone(ranges) and bool(own.held.keys() - self.turns.suspects.keys())
            if rejected:
                self.stop()
                self._stop_before(rejected, ranges, now, failure)
            elif ranges:
                self.poison.failed(ranges, now, failure)
                if self._fails_alone(ranges):
                    ((tp, (offset, _)),) = ranges.items()
                    if failure.of_record:
                        self.failures.note(tp, offset, failure.text, at)
                    self._judge(tp, now)
            self._error = failure.text
            self.say()
            return alone or bool(rejected)

    def passed(
        self,
        tried: Mapping[TopicPartition, OffsetRange],
        ranges: Mapping[TopicPartition, OffsetRange],
        rejected: Rejected,
    ) -> None:
        """Take note that the handler returned from a batch, and has `rejected` some of its records; `ranges` are the
        parts that are not empty of what was `tried`."""
        with self._shared.locked():
            now = self._shared.clock()
            self._follow_doubts()
            self.unreadable.forget(ranges)
            if ranges:
                self.poison.passed(ranges, now, rejected)
            self.turns.moved({tp: end for tp, (_, end) in tried.items()}, now)
            self.say()

    def tried(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        """Take note that a batch of `ranges` has come to an end that is not the process's."""
        with self._shared.locked():
            self._apart.tried(ranges)

    def unread(self, failure: ReadFailure) -> None:
        """Take note that a partition cannot be read. It is left out of the next batches, with those that fail for the
        same reason; or parked before a damaged record."""
        with self._shared.locked():
            if failure.kind is Kind.CORRUPT:
                self._parked.damaged[failure.tp] = failure
            else:
                self.unreadable.leave_out(failure)

    def _fails_alone(self, ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
        """Tell whether it is a single record, known to fail."""
        known = self.turns.suspects
        return len(ranges) == 1 and all(
            end - begin == 1 and tp in known and known[tp].failures > 0 for tp, (begin, end) in ranges.items()
        )

    def _judge(self, tp: TopicPartition, now: float) -> None:
        """Do what `on_poison` says if the record that failed alone is poison."""
        if self.turns.suspects[tp].deaths >= DEATHS_ALONE:
            self.park(tp)
        if self._on_poison is OnPoison.PARK or tp in self._parked or not self.poison.gets_letter(tp, now):
            return
        self.park(tp)
        self._shared.counters.poison += 1
        if self._on_poison is OnPoison.STOP:
            self.on_stop(self._parked.text(tp))
            return
        self.poison.letter(tp, now)
        self._parked.pass_over(tp, Answer.DEAD_LETTER, "on_poison", now)

    def park(self, tp: TopicPartition) -> None:
        self._parked.park_suspect(tp, self.turns.suspects[tp])

    # -- what is rejected ---------------------------------------------------------------------------------

    def may_reject(self, ranges: Mapping[TopicPartition, OffsetRange], rejected: Rejected) -> str:
        """Return why the handler may not reject these records of the batch that it has, '' if it may."""
        with self._shared.locked():
            for tp, offsets in self._with_large_letters(rejected).items():
                return self.too_large[tp, offsets[0]]
            return self.poison.may_reject(ranges, rejected, self._shared.clock())

    def _with_large_letters(self, rejected: Rejected) -> dict[TopicPartition, list[int]]:
        """Return those whose letters are too large for their topic; only partitions that have some."""
        found = {tp: [at for at in offsets if (tp, at) in self.too_large] for tp, offsets in rejected.items()}
        return {tp: offsets for tp, offsets in found.items() if offsets}

    def with_letters(self, rejected: Rejected, at: float) -> Rejected:
        """Return the rejected records that get a letter; a standing answer may have others skipped. `at` is in
        seconds since the epoch."""
        letters: dict[TopicPartition, dict[int, str]] = {}
        for tp, errors in rejected.items():
            for offset, error in errors.items():
                self.failures.note(tp, offset, error, at)
                standing = self.poison.unbounded(tp[0], error)
                if standing is None or standing.answer is Answer.DEAD_LETTER:
                    letters.setdefault(tp, {})[offset] = error
                else:
                    self._shared.counters.skipped[tp[0]] = self._shared.counters.skipped.get(tp[0], 0) + 1
        return letters

    def _stop_before(
        self, rejected: Rejected, ranges: Mapping[TopicPartition, OffsetRange], now: float, why: Failure
    ) -> None:
        """Read partitions up to the first record that may not be rejected, and park those that stand before it."""
        for tp, offsets in (self._with_large_letters(rejected) or rejected).items():
            begin, first = ranges[tp][0], min(offsets)
            if first > begin:
                self.turns.only(tp, begin, first - begin, now, why)
                continue
            self.turns.forget([tp])
            self._parked.park_rejected(
                tp, first, f"the handler rejects it: {rejected[tp][first]}; {why.text}"
            )

    # -- what stops, and is said --------------------------------------------------------------------------

    def stop(self) -> None:
        """Have what has stopped committed as such, and said."""
        with self._shared.locked() as own:
            for topic, why in self.poison.stopped.items():
                own.stop(topic, True)
                self._shared.problems.note(
                    stopped_key(topic),
                    f"nothing of it is left out until a person answers about one of its records: {why}",
                )

    def passed_over(self, tp: TopicPartition, due: Due) -> None:
        """Take note that Kafka has the offset after a record, about which something was decided."""
        self.poison.passed_over(tp, due.offset, self._shared.clock())
        self._parked.unpark(tp)
        self.say()

    def say(self) -> None:
        """Note what the handler fails with, of what is held and not parked."""
        with self._shared.locked() as own:
            parked = self._parked.all
            suspects = {tp: suspect for tp, suspect in self.turns.suspects.items() if tp not in parked}
            if not suspects:
                self._shared.problems.note(HANDLER, None)
                return
            others = len(own.held) - len(suspects) - len(parked)
            self._shared.problems.note(
                HANDLER,
                f"the handler failed: {self._error}; it is tried again with "
                f"{named({tp: _failures(suspect) for tp, suspect in suspects.items()})}, while the other "
                f"{others} partitions go on",
            )

    def follow(self, own: Ownership) -> None:
        """Forget what is not held any more. Under the lock."""
        for topic in self.poison.stopped.keys() - {tp[0] for tp in own.held}:
            self._shared.problems.note(stopped_key(topic), None)
        self.unreadable.forget(self.unreadable.all.keys() - own.held.keys())
        if gone := self.turns.suspects.keys() - own.held.keys():
            self.turns.forget(gone)
            self.say()


def stopped_key(topic: str) -> str:
    """Return the key of the problem of a topic of which nothing is left out until a person answers."""
    return f"stopped {topic}"


def _failures(suspect: Suspect) -> str:
    alone = f" (its next record, at offset {suspect.offset}, failed {suspect.failures} times alone)"
    return alone if suspect.tries else ""


def _least(*given: int | None) -> int | None:
    return min((one for one in given if one is not None), default=None)
