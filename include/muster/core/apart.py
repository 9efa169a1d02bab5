"""Turns of partitions in doubt, which are read apart from the others, in pieces, one at a time.

The note on a partition (`muster.core.deaths`) goes with its commits, and a piece is tried once Kafka has acknowledged
that. A piece is tried alone: if the process dies, its records are to blame. Pure; times are in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from muster.core.deaths import APART, PAUSE, Deaths
from muster.core.model import OffsetRange, TopicPartition
from muster.core.ownership import Ownership
from muster.core.turns import Turns


class Apart:
    """The partitions in doubt that one process holds."""

    def __init__(self, own: Ownership, turns: Turns) -> None:
        self._own = own
        self._turns = turns
        self._since: dict[TopicPartition, float] = {}
        """When each was first in doubt here."""
        self._had_turn = False
        """Whether the others had no turn the last time."""
        self._halved: dict[TopicPartition, int] = {}
        """The most records of a batch, for partitions whose batches were too large for the process."""

    def next(self, ready: Collection[TopicPartition], now: float) -> dict[TopicPartition, int | None]:
        """Choose as `Turns.next` does; a partition in doubt gets no more than a piece, and that alone."""
        own, suspects, doubts = self._own, self._turns.suspects.keys(), self._own.in_doubt()
        self._since = {tp: self._since.get(tp, now) for tp in doubts}
        possible = [tp for tp in doubts.keys() & set(ready) - suspects if now - self._since[tp] >= PAUSE]
        for tp in [tp for tp, deaths in doubts.items() if deaths.tried and tp not in possible]:
            own.held[tp].doubt(replace(doubts[tp], tried=False))
        tried = next((tp for tp in possible if doubts[tp].tried), None)
        if tried is not None:
            return {} if tried in own.not_noted() else {tried: doubts[tried].size}
        others = set(ready) - (doubts.keys() - suspects)
        turn = {} if possible and not self._had_turn else self._turns.next(others, now)
        self._had_turn = not turn
        if possible and not turn and not own.not_noted() & set(possible):
            first = min(possible, key=lambda tp: (doubts[tp].end - doubts[tp].at, tp))
            own.held[first].doubt(replace(doubts[first], tried=True))
        most = {tp: deaths.size for tp, deaths in doubts.items()} | self._halved
        return {tp: min(limit or most[tp], most[tp]) if tp in most else limit for tp, limit in turn.items()}

    def tried(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        """Take note that a batch of `ranges` has come to an end that is not the process's."""
        for tp, deaths in self._own.in_doubt().items():
            if deaths.tried and tp in ranges:
                self._own.held[tp].doubt(replace(deaths, tried=False))

    def begin(
        self, begun: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Deaths]:
        """Take note that partitions begin, which end at `ends` now; no later record is in doubt. Returns those whose
        next record has killed too many processes to be tried again."""
        deadly = {}
        for tp in begun:
            held = self._own.held[tp]
            if held.in_doubt and tp in ends:
                end = min(held.note.deaths.end, max(ends[tp], held.note.deaths.at + 1))
                self._own.held[tp].doubt(replace(held.note.deaths, end=end))
            if held.in_doubt and held.note.deaths.deadly:
                deadly[tp] = held.note.deaths
        return deadly

    def follow(self, parked: Collection[TopicPartition], caught_up: Collection[TopicPartition] = ()) -> None:
        """End the doubt about partitions that are read past it. If no record killed the process, the size of a batch
        did: half as many records are taken at once from then on."""
        for tp, held in self._own.held.items():
            deaths = held.note.deaths
            if not deaths.size or tp in parked or held.position is None:
                continue
            if held.position >= deaths.end or tp in caught_up:
                half = (held.position - deaths.at) // 2
                if deaths.count == APART and half > deaths.size:
                    self._halved[tp] = half
                self._own.held[tp].doubt(Deaths(deaths.holder))
        self._halved = {tp: most for tp, most in self._halved.items() if tp in self._own.held}

    def words(self, parked: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Say which partitions are read apart, and why."""
        return {
            tp: (
                f"topic {tp[0]!r}, partition {tp[1]}: {deaths.count} processes died at offset {deaths.at}; it is "
                f"read apart, {deaths.size} record(s) at once up to offset {deaths.end}, to find the record. One "
                "that kills its process twice alone waits for a person"
            )
            for tp, deaths in self._own.in_doubt().items()
            if tp not in parked
        }
