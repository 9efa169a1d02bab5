"""Partitions that are held and not read for now, each with the reason: an answer about a record is under way, or
Kafka has records no more, if `failOnDataLoss` is set; or a timer of the partition's state fails.

A partition is parked in the process that owns it. Another owner, or the same one after a restart, tries the record
again, or finds the gap again. What a person, or the setting `on_poison`, decided is the `answer`.

Pure; times are in seconds since the epoch, but for `decided`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from muster.core.model import TopicPartition
from muster.core.positions import Jump


class OnPoison(StrEnum):
    """What becomes of a poison record."""

    PARK = "park"
    DEAD_LETTER = "dead_letter"
    STOP = "stop"


class Answer(StrEnum):
    """What is to become of a record that a handler fails with; `WAIT`: a person is not asked for an hour."""

    RETRY = "retry"
    WAIT = "wait"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Parked:
    """Why a partition is parked: the record at `offset` failed `attempts` times alone, with `error` the last time; or
    the records from `offset` on are lost, and it would go on as `loss` says; or it stands there with a `timer` that
    fails.

    `answer` is what was decided about it and is not done yet, `by` is who decided, and `decided` when, on the
    consumer's monotonic clock.
    """

    offset: int
    error: str
    attempts: int
    at: float
    answer: Answer | None = None
    by: str = ""
    decided: float = 0.0
    loss: Jump | None = None
    stopped: bool = False
    """The handler rejects the record, and may reject no more of its topic until a person answers."""
    unwritten: str = ""
    """Why its dead letter, which was decided, could not be written."""
    timer: bool = False

    @property
    def said(self) -> str:
        """What a person is asked about."""
        return "; ".join(filter(None, (self.error, self.unwritten)))

    @property
    def lost(self) -> int:
        """How many offsets are lost; 0 if the partition is parked for a record."""
        return 0 if self.loss is None else self.loss.lost


class Parking:
    """The parked partitions of one process."""

    def __init__(self) -> None:
        self._parked: dict[TopicPartition, Parked] = {}

    @property
    def all(self) -> dict[TopicPartition, Parked]:
        return dict(self._parked)

    @property
    def losses(self) -> dict[TopicPartition, Parked]:
        """Those that are parked because records are lost."""
        return {tp: why for tp, why in self._parked.items() if why.loss is not None}

    def park(self, tp: TopicPartition, why: Parked) -> None:
        """Read `tp` no more."""
        self._parked[tp] = why

    def answered(self, tp: TopicPartition, answer: Answer, by: str, now: float) -> None:
        """Note what was decided about the record of `tp`, at `now` on a monotonic clock."""
        self._parked[tp] = replace(self._parked[tp], answer=answer, by=by, decided=now, unwritten="")

    def taken_back(self, tp: TopicPartition, why: str) -> Parked:
        """Note why the dead letter that was decided cannot be written; returns what waits for another answer."""
        self._parked[tp] = replace(self._parked[tp], answer=None, by="", unwritten=why)
        return self._parked[tp]

    def free(self, tp: TopicPartition) -> Parked | None:
        """Read `tp` again; returns why it was parked, None if it was not."""
        return self._parked.pop(tp, None)

    def keep(self, test: Callable[[TopicPartition, Parked], bool]) -> list[TopicPartition]:
        """Forget those that fail `test`; returns them."""
        gone = [tp for tp, why in self._parked.items() if not test(tp, why)]
        for tp in gone:
            del self._parked[tp]
        return gone

    def readable(self, ready: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those of `ready` that are not parked."""
        return set(ready) - self._parked.keys()
