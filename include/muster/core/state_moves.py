"""What the moves of a plan mean for state by key: which are warm, and what a cold one restores. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster.core.copies import ShardCopy, Warmth
from muster.core.model import ConsumerStatus, Move, TopicPartition


@dataclass(frozen=True, slots=True)
class StateMove:
    """How ready the target of a move is. One that is not warm reads so many `records` of the changelog at most, of so
    many `bytes` on disk, in about so many `seconds`; None where that is unknown."""

    warmth: Warmth
    records: int | None = None
    bytes: int | None = None
    seconds: float | None = None

    @property
    def needs(self) -> str:
        """What it restores, for people; '' if that is unknown."""
        parts = [] if self.records is None else [f"at most {self.records:,} records"]
        parts += [] if self.bytes is None else [f"{self.bytes / 1e6:,.1f} MB"]
        parts += [] if self.seconds is None else [f"about {self.seconds:,.0f} s"]
        return ", ".join(parts)

    def __str__(self) -> str:
        """Say it for people."""
        if self.warmth is Warmth.WARM or not self.needs:
            return f"{self.warmth}"
        return f"{self.warmth}: restores {self.needs}"


def state_moves(
    moves: Iterable[Move], statuses: Mapping[str, ConsumerStatus], has_state: Callable[[str], bool]
) -> dict[TopicPartition, StateMove]:
    """Return what each move of a partition with state means, by what consumers report.

    The rate is the target's own, of its last restore; else the mean of those of the others.
    """
    rates = {consumer: rate for consumer, status in statuses.items() if (rate := _rate(status))}
    mean = sum(rates.values()) / len(rates) if rates else None
    found: dict[TopicPartition, StateMove] = {}
    for move in moves:
        if move.target is None or not has_state(move.topic):
            continue
        tp = move.topic, move.partition
        copy = _copy(statuses.get(move.target), tp)
        if copy is not None and copy.warmth is Warmth.WARM:
            found[tp] = StateMove(Warmth.WARM)
            continue
        end, size = _whole(statuses.values(), tp)
        have = copy.position if copy is not None else 0
        records = None if end is None else max(0, end - have)
        part = 1.0 if not end or records is None else records / end
        speed = rates.get(move.target, mean)
        found[tp] = StateMove(
            Warmth.COLD if copy is None else copy.warmth,
            records,
            None if size is None else round(size * part),
            None if records is None or not speed else records / speed,
        )
    return found


def summary(found: Mapping[TopicPartition, StateMove]) -> str:
    """Say in a line what all of them mean; '' without any."""
    if not found:
        return ""
    cold = [one for one in found.values() if one.warmth is not Warmth.WARM]
    text = f"state: {len(found) - len(cold)} of {len(found)} moves are warm"
    if not cold:
        return text
    known = [one for one in cold if one.records is not None]
    total = StateMove(
        Warmth.COLD,
        sum(one.records or 0 for one in known) if known else None,
        sum(one.bytes or 0 for one in known) if known else None,
        sum(one.seconds or 0.0 for one in known) if all(one.seconds is not None for one in cold) else None,
    )
    others = f"restore {total.needs}" if total.needs else "are cold"
    return f"{text}; the others {others}"


def _copy(status: ConsumerStatus | None, tp: TopicPartition) -> ShardCopy | None:
    return None if status is None else (status.copies or {}).get(tp[0], {}).get(tp[1])


def _whole(statuses: Iterable[ConsumerStatus], tp: TopicPartition) -> tuple[int | None, int | None]:
    """Return where a changelog ends, and the bytes of the newest store of it; None where no consumer has one."""
    found = [copy for status in statuses if (copy := _copy(status, tp)) is not None]
    copies = [copy for copy in found if copy.position or copy.end is not None]
    newest = max(copies, key=lambda copy: copy.position, default=None)
    if newest is None:
        return None, None
    return max(
        [newest.position, *(copy.end for copy in copies if copy.end is not None)]
    ), newest.bytes or None


def _rate(status: ConsumerStatus) -> float:
    """Return the offsets a second at which a consumer restored, on average; 0 where none was measured."""
    rates = [
        copy.rate for of_topic in (status.copies or {}).values() for copy in of_topic.values() if copy.rate
    ]
    return sum(rates) / len(rates) if rates else 0.0
