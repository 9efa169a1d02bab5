"""What people, or standing answers in their place, decide about the records that a handler fails with."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from muster.consumer.failing.failing import Failing, stopped_key
from muster.consumer.failing.parked import ParkedPartitions
from muster.consumer.shared import Shared
from muster.consumer.stateless import Stateless
from muster.core.model import FailingRecord, PastFailure, TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.core.turns import Failure

log = logging.getLogger(__name__)


class Answers:
    """Says which records wait for an answer, and takes it. Thread-safe. `in_handler` tells whether records of a
    partition are with the handler now."""

    def __init__(
        self,
        shared: Shared,
        failing: Failing,
        parked: ParkedPartitions,
        states: Stateless,
        in_handler: Callable[[TopicPartition], bool],
    ) -> None:
        self._shared = shared
        self._failing = failing
        self._parked = parked
        self._states = states
        self._in_handler = in_handler

    @property
    def failing(self) -> dict[TopicPartition, FailingRecord]:
        """The records that the handler fails with alone, unless that can be no record's fault."""
        with self._shared.locked() as own:
            now = self._shared.clock()
            asked = self._failing.poison.waiting(now).keys() - own.not_read(now).keys()
            found = {
                tp: FailingRecord(record.offset, record.failure.text, record.failures, tp in asked)
                for tp, record in self._failing.turns.suspects.items()
                if record.tries
            }
            return found | {
                tp: FailingRecord(
                    *(why.offset, why.said, why.attempts, True, why.answer or "", why.lost, why.timer),
                    decided_for=0.0 if why.answer is None else now - why.decided,
                )
                for tp, why in self._parked.all.items()
            }

    def failures(self, topic: str) -> tuple[PastFailure, ...]:
        """Return the records of a topic that failed within the last hour."""
        with self._shared.locked():
            return self._failing.failures.of(topic, time.time())

    # -- of a person --------------------------------------------------------------------------------------

    def answered_by(self, tp: TopicPartition) -> str:
        """Tell who decided what becomes of the record of a parked partition, '' if no decision stands."""
        with self._shared.locked():
            why = self._parked.all.get(tp)
            return "" if why is None else why.by

    def answer(self, tp: TopicPartition, offset: int, answer: Answer, by: str) -> bool:
        """Do as a person answered about the record at `offset`; False if the handler does not fail with it now, or if
        it is too late: what becomes of it is under way."""
        with self._shared.change():
            found = self.failing.get(tp)
            if found is None or found.offset != offset or found.answer == answer:
                return False
            if answer is Answer.WAIT:
                self._failing.poison.wait(tp[0], Failure(found.error).kind, self._shared.clock())
                return True
            self._failing.too_large.pop((tp, offset), None)
            if tp in self._parked.damaged and answer is Answer.DEAD_LETTER:
                return False  # it cannot be read
            if found.lost:
                return self._answer_loss(tp, answer, by)
            if found.timer:
                return self._answer_timer(tp, answer, by)
            done = self._try_again(tp, found) if answer is Answer.RETRY else self._leave_out(tp, answer, by)
            if done:
                self._go_on(tp[0])
            self._failing.say()
            return done

    def _go_on(self, topic: str) -> None:
        """Have what had stopped of a topic go on, because a person has answered."""
        self._failing.poison.answered(topic)
        with self._shared.locked() as own:
            own.stop(topic, False)
        self._shared.problems.note(stopped_key(topic), None)
        for tp, why in self._parked.all.items():
            if tp[0] == topic and why.stopped and why.answer is None:
                self._parked.unpark(tp)

    def _try_again(self, tp: TopicPartition, record: FailingRecord) -> bool:
        if record.answer:
            return False
        self._parked.damaged.pop(tp, None)
        with self._shared.locked() as own:
            if tp in (doubts := own.in_doubt()):
                own.held[tp].doubt(doubts[tp].alone_again())
        self._failing.turns.again(tp, self._shared.clock())
        self._parked.unpark(tp)
        return True

    def _leave_out(self, tp: TopicPartition, answer: Answer, by: str) -> bool:
        if tp not in self._parked:
            if self._in_handler(tp):
                return False
            self._failing.park(tp)
        return self._parked.pass_over(tp, answer, by, self._shared.clock())

    def _answer_loss(self, tp: TopicPartition, answer: Answer, by: str) -> bool:
        if answer is Answer.DEAD_LETTER or self._parked.all[tp].answer is not None:
            return False
        if answer is Answer.RETRY:
            self._parked.unpark(tp)
        else:
            self._parked.decided(tp, answer, by, self._shared.clock())
        return True

    def _answer_timer(self, tp: TopicPartition, answer: Answer, by: str) -> bool:
        if answer is Answer.DEAD_LETTER:
            return False
        if answer is Answer.SKIP:
            log.warning(
                "topic %r, partition %d: %s; it is dropped, by %s", *tp, self._parked.all[tp].error, by
            )
            self._states.drop_timer(tp)
        self._parked.unpark(tp)
        return True

    # -- standing -----------------------------------------------------------------------------------------

    def stand(self, standing: Iterable[StandingAnswer]) -> None:
        """Go by these standing answers from now on."""
        with self._shared.locked():
            self._failing.poison.stand(standing)

    def standing_due(self) -> list[tuple[TopicPartition, int, StandingAnswer]]:
        """Return the records that are due a standing answer, with it. Where one stops, a person is asked."""
        with self._shared.change() as own:
            now, found, suspects = self._shared.clock(), [], self._failing.turns.suspects
            for tp in suspects.keys() - self._parked.all.keys() - own.not_read(now).keys():
                if (one := self._failing.poison.stands(tp, now)) is not None:
                    found.append((tp, suspects[tp].offset, one))
            self._failing.stop()
            return sorted(found, key=lambda each: each[:2])

    def answer_standing(self, tp: TopicPartition, offset: int, one: StandingAnswer) -> bool:
        """Do as a standing answer says about the record at `offset`; False as for `answer`."""
        with self._shared.change():
            found = self.failing.get(tp)
            if found is None or found.offset != offset or found.answer:
                return False
            if one.answer is Answer.RETRY:
                self._failing.poison.retried(tp)
                return True
            if not self._leave_out(tp, one.answer, f"the standing answer of {one.by} ({one.why})"):
                return False
            self._failing.poison.stood(tp, self._shared.clock())
            self._failing.say()
            return True
