"""The partitions of a consumer that are parked, and what a person is asked about each."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from muster.consumer.measures import words
from muster.consumer.problems import of_partition
from muster.consumer.shared import Shared
from muster.core.deaths import Deaths
from muster.core.model import TopicPartition
from muster.core.ownership import Due, Ownership, PassOver
from muster.core.parking import Answer, Parked, Parking
from muster.core.positions import Jump
from muster.core.turns import Suspect
from muster.core.unread import ReadFailure

log = logging.getLogger(__name__)

DEATHS_ALONE = 2
"""Times that a record kills a process of Spark's alone, after which a person is asked."""


class ParkedPartitions:
    """Parks partitions, and has them go on. `accepts`, `losses` and `unwritten` take the lock; the rest is called
    under it.

    `fail_on_data_loss`: a partition is parked of which Kafka has no more what is to be read next.
    """

    def __init__(self, shared: Shared, fail_on_data_loss: bool) -> None:
        self._shared = shared
        self.fail_on_data_loss = fail_on_data_loss
        self._parking = Parking()
        self.damaged: dict[TopicPartition, ReadFailure] = {}
        """The records that cannot be read; a partition is parked when it has been read up to its own."""

    @property
    def all(self) -> dict[TopicPartition, Parked]:
        return self._parking.all

    @property
    def losses(self) -> dict[TopicPartition, Parked]:
        """The partitions that are parked because records are lost."""
        with self._shared.locked():
            return self._parking.losses

    def accepts(self, tp: TopicPartition, jump: Jump) -> bool:
        """Tell whether a partition may go on elsewhere: with `fail_on_data_loss` behind records that are lost only
        once a person has accepted that."""
        why = self.losses.get(tp)
        return not (self.fail_on_data_loss and jump.loses) or (why is not None and why.answer is not None)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._parking.all

    # -- parking ------------------------------------------------------------------------------------------

    def park(self, tp: TopicPartition, why: Parked, text: str) -> None:
        """Read a partition no more, and say why."""
        self._parking.park(tp, why)
        self._shared.problems.note(_key(tp), text)

    def park_suspect(self, tp: TopicPartition, record: Suspect) -> None:
        """Park a partition before a record that fails alone."""
        self.park(
            tp,
            Parked(record.offset, record.failure.text, record.failures, time.time()),
            f"topic {tp[0]!r}, partition {tp[1]}: the record at offset {record.offset} failed {record.failures} "
            f"times alone: {record.failure.text}. {_HOW}",
        )

    def park_rejected(self, tp: TopicPartition, offset: int, error: str) -> None:
        """Park a partition before a record that the handler may not reject."""
        text = f"{_waits(tp, offset, error)}: then the others are rejected again, too"
        self.park(tp, Parked(offset, error, 0, time.time(), stopped=True), text)

    def park_deadly(self, tp: TopicPartition, deaths: Deaths) -> None:
        """Park a partition that begins with a record that kills the process."""
        if tp not in self:
            error = f"the process died {deaths.count} times at it, the last two with it alone"
            self.park(tp, Parked(deaths.at, error, DEATHS_ALONE, time.time()), _waits(tp, deaths.at, error))

    def park_timer(self, tp: TopicPartition, why: str) -> None:
        """Park a partition with a timer of its state that fails, unless it is planned no more."""
        with self._shared.locked() as own:
            if (held := own.held.get(tp)) is None or held.planned is None:
                return
            self.park(
                tp,
                Parked(held.planned, why, 0, time.time(), timer=True),
                f"topic {tp[0]!r}, partition {tp[1]} is parked: {why}. Have the timer dropped with "
                f"'muster skip-record {tp[0]} {tp[1]} {held.planned}', which skips no record, or tried again with "
                "'muster retry-record'",
            )

    def park_damaged(self) -> None:
        """Park what stands before a damaged record; forget those that a partition has left behind."""
        with self._shared.locked() as own:
            for tp, failure in list(self.damaged.items()):
                at = own.held[tp].planned if tp in own.held else None
                if at is None or at > failure.offset:
                    del self.damaged[tp]
                elif at == failure.offset and tp not in self:
                    text = f"{failure}; the partition is parked at offset {at} until a person answers"
                    self.park(tp, Parked(at, str(failure), 1, time.time()), text)

    def before_damage(self, tp: TopicPartition, most: int | None) -> int | None:
        """Return how many records of a partition are read, of `most` (None: all): those before a damaged one."""
        with self._shared.locked() as own:
            failure, held = self.damaged.get(tp), own.held.get(tp)
        if failure is None or held is None or held.planned is None:
            return most
        left = failure.offset - held.planned
        return left if most is None else min(most, left)

    def park_losses(self, losses: Mapping[TopicPartition, Jump], known: Collection[TopicPartition]) -> None:
        """Park what would go on behind records that are lost; read again what would not, as far as Kafka has said."""
        parked = self._parking.losses
        for tp in parked.keys() & known - losses.keys():
            self.unpark(tp)
        for tp, loss in losses.items():
            if (known_one := parked.get(tp)) is not None and known_one.loss == loss:
                continue
            answered = known_one is not None and known_one.answer is not None
            if answered or (known_one is None and tp in self):
                continue  # what was decided is under way; or it is parked for a record, which comes first
            self.park(
                tp,
                Parked(loss.before, words(loss), 0, time.time(), loss=loss),
                f"topic {tp[0]!r}, partition {tp[1]}: {words(loss)}. 'failOnDataLoss' is true, so the partition is "
                f"parked at offset {loss.before}. Accept the loss with 'muster skip-record {tp[0]} {tp[1]} "
                f"{loss.before}', or have it look again with 'muster retry-record'",
            )

    # -- going on -----------------------------------------------------------------------------------------

    def readable(self, ready: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of `ready` that are not parked."""
        return self._parking.readable(ready)

    def unpark(self, tp: TopicPartition) -> None:
        """Read a partition again."""
        self._parking.free(tp)
        self._shared.problems.note(_key(tp), None)

    def follow(self, own: Ownership) -> None:
        """Read partitions again that are closed, or that go on somewhere else than before their poison record."""
        held = own.held
        for tp in self._parking.keep(lambda tp, why: tp in held and held[tp].planned in {None, why.offset}):
            self._shared.problems.note(_key(tp), None)

    def sought(self, tp: TopicPartition) -> None:
        """Forget what stood in the way of a partition that goes on elsewhere."""
        self.damaged.pop(tp, None)
        if (why := self.all.get(tp)) is not None and why.timer:
            self.unpark(tp)

    def decided(self, tp: TopicPartition, answer: Answer, by: str, now: float) -> None:
        """Note what was decided about a partition, `now` in seconds of the agent's clock."""
        self._parking.answered(tp, answer, by, now)

    def pass_over(self, tp: TopicPartition, answer: Answer, by: str, now: float) -> bool:
        """Pass over the record of a partition; False if that is closing, or does not stand before it."""
        with self._shared.locked() as own:
            over = PassOver(self.all[tp].offset, answer is Answer.DEAD_LETTER)
            if not own.pass_over(tp, over):
                return False
            self.decided(tp, answer, by, now)
            return True

    def unwritten(self, tp: TopicPartition, due: Due, offset: int, why: str) -> None:
        """Ask again about a record that was to be passed over with a letter, which cannot be written."""
        with self._shared.change() as own:
            if tp in self and own.keep(tp, due.claim_epoch, offset):
                self._shared.problems.note(
                    _key(tp), _waits(tp, offset, self._parking.taken_back(tp, why).said)
                )

    def text(self, tp: TopicPartition) -> str:
        """Return what is said of a parked partition."""
        return self._shared.problems.all[_key(tp)]


_HOW = "Have it retried, skipped or dead-lettered with 'muster retry-record', 'skip-record' or 'dead-letter-record'"


def _key(tp: TopicPartition) -> str:
    return of_partition("parked", tp)


def _waits(tp: TopicPartition, offset: int, why: str) -> str:
    return (
        f"topic {tp[0]!r}, partition {tp[1]}: the record at offset {offset} waits for a person: {why}. {_HOW}"
    )
