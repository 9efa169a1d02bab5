"""Round-robin: all topic-partitions dealt out in turn, across topics.

The rule of Kafka's `RoundRobinAssignor`:

1. All consumers sit in a circle in order of consumer id.
2. All topic-partitions, in order of topic and number, are dealt out one each in turn, going on from one topic to
   the next.
3. A consumer that does not subscribe to the topic is passed over and loses that turn.

With equal subscriptions no two consumers differ by more than one partition; with unequal ones it may be uneven.
`previous` plays no part, so nearly everything moves when a consumer comes or goes.

With different weights (which Kafka does not have) a consumer has turns in proportion to its `weight`
(`WeightedTurns`); with equal weights that is the circle.

Where leaders' racks are known and match some consumers' zones, consumers swap what they were dealt in the same
round, if more of it is in its zone then; a round is as many partitions as there are consumers. So each still gets
one partition a round (in proportion to weight), only not always the one that counting gives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace

from muster.core.assignors.api import NOTHING, Racks
from muster.core.assignors.balance import cost_of_next, weights_of
from muster.core.assignors.subscriptions import audiences
from muster.core.assignors.zones import Zones, swap_home, zones_that_matter
from muster.core.model import Assignment, Consumer

_Turn = tuple[int, str]
"""A place on the line, and the consumer whose turn it is there."""


class RoundRobin:
    """Assigns by the rule of this module. It has no options."""

    name = "round-robin"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
        racks: Racks = NOTHING,
    ) -> Assignment:
        """See `Assignor.assign`; `racks` as in `PlanningContext`."""
        weights = weights_of(consumers)
        turns = Circle(weights) if len(set(weights.values())) <= 1 else WeightedTurns(weights)
        subscribers = {
            topic: audience.consumers
            for audience in audiences(topics, consumers)
            for topic in audience.topics
        }
        in_turn = {topic: turns.deal(subscribers[topic], len(topics[topic])) for topic in sorted(subscribers)}
        if zones := zones_that_matter(racks, topics, consumers):
            return _swapped(in_turn, topics, consumers, zones)
        return {
            topic: dict(zip(sorted(topics[topic]), owners, strict=True)) for topic, owners in in_turn.items()
        }


class Circle:
    """Consumers in a circle, in the order given, with one turn each."""

    def __init__(self, consumers: Mapping[str, int]) -> None:
        self._seats = {consumer: seat for seat, consumer in enumerate(consumers)}
        self._turn = 0

    def deal(self, takers: tuple[str, ...], turns: int) -> list[str]:
        """Give the next `turns` turns to `takers`, in order of seats; others are passed over."""
        # Among the takers the circle is a circle again; it is entered at the first one from `turn` on.
        entry = bisect_left(takers, self._turn, key=self._seats.__getitem__)
        dealt = [takers[(entry + step) % len(takers)] for step in range(turns)]
        if dealt:
            self._turn = (self._seats[dealt[-1]] + 1) % len(self._seats)
        return dealt


class WeightedTurns:
    """Turns in proportion to weight: a consumer of weight 2 has two turns where one of weight 1 has one.

    A consumer's turns stand at even distances on a line, turn n at `(2n + 1) / weight`
    (`muster.core.assignors.balance`), and come in that order, those of the lower id first. With equal weights that
    is `Circle`; with different ones, the turns of each are spread as evenly as they can be.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Take as `weights` whole numbers of at least 1."""
        self._weights = weights
        self._last: _Turn = (-1, "")
        self._takers: tuple[str, ...] = ()
        self._next: list[_Turn] = []
        self._number: dict[str, int] = {}

    def deal(self, takers: tuple[str, ...], turns: int) -> list[str]:
        """Give the next `turns` turns to `takers`, one or more; others are passed over."""
        if takers != self._takers:
            self._enter(takers)
        dealt = []
        for _ in range(turns):
            self._last = self._next[0]
            consumer = self._last[1]
            dealt.append(consumer)
            self._number[consumer] += 1
            heapreplace(self._next, self._turn(consumer))
        return dealt

    def _enter(self, takers: Iterable[str]) -> None:
        """Find each taker's first turn after the last one that was dealt."""
        self._takers = tuple(takers)
        self._number = {}
        for consumer in self._takers:
            number = self._guess(consumer)
            self._number[consumer] = number
            while self._turn(consumer) <= self._last:
                self._number[consumer] += 1
        self._next = [self._turn(consumer) for consumer in self._takers]
        heapify(self._next)

    def _guess(self, consumer: str) -> int:
        """Return a turn of `consumer` that is not after its next one, and one or two before it at most."""
        distance = cost_of_next(0, self._weights[consumer])
        return max(0, (self._last[0] // distance - 1) // 2 - 1)

    def _turn(self, consumer: str) -> _Turn:
        return cost_of_next(self._number[consumer], self._weights[consumer]), consumer


def _swapped(
    in_turn: Mapping[str, list[str]],
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    zones: Zones,
) -> dict[str, dict[int, str]]:
    """Return what was dealt `in_turn`, with swaps within each round for the sake of zones."""
    dealt = [(topic, partition) for topic in in_turn for partition in sorted(topics[topic])]
    owners = [owner for of_topic in in_turn.values() for owner in of_topic]
    assignment: dict[str, dict[int, str]] = {topic: {} for topic in in_turn}
    for start in range(0, len(dealt), len(consumers)):
        one_round = dealt[start : start + len(consumers)]
        takers = owners[start : start + len(consumers)]
        _swap(one_round, takers, consumers, zones)
        for (topic, partition), owner in zip(one_round, takers, strict=True):
            assignment[topic][partition] = owner
    return assignment


def _swap(
    one_round: Sequence[tuple[str, int]], takers: list[str], consumers: Mapping[str, Consumer], zones: Zones
) -> None:
    def may_take(place: int, consumer: str) -> bool:
        return consumers[consumer].subscribes(one_round[place][0])

    swap_home(takers, [zones.rack(*place) for place in one_round], zones.of, may_take)
