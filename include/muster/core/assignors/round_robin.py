"""Round-robin: all topic-partitions dealt out in turn, across topics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from muster.core.assignors.load import weight_of
from muster.core.assignors.subscriptions import audiences
from muster.core.assignors.turns import WeightedTurns
from muster.core.assignors.zones import NO_RACKS, Racks, swap_for_zones, useful_racks
from muster.core.model import Assignment, Consumer

_Deal = Callable[[tuple[str, ...], int], list[str]]
"""Who of the takers gets the next so many partitions."""


class RoundRobin:
    """The rule of Kafka's `RoundRobinAssignor`.

    1. All consumers sit in a circle in order of consumer id.
    2. All topic-partitions, in order of topic and number, are dealt out one each in turn, going on from one
       topic to the next.
    3. A consumer that does not subscribe to the topic is passed over and loses that turn.

    With equal subscriptions no two consumers differ by more than one partition; with unequal ones it may be
    uneven. `previous` plays no part, so nearly everything moves when a consumer comes or goes.

    With different weights (which Kafka does not have) a consumer has turns in proportion to its `weight`
    (`muster.core.assignors.turns`); with equal weights that is the circle.

    Where leaders' racks are known and match some consumers' zones, consumers swap what they were dealt in the
    same round, if more of it is in its zone then; a round is as many partitions as there are consumers. So
    everybody still gets one partition a round (in proportion to weight), only not always the one that
    counting gives.
    """

    name = "round-robin"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
        racks: Racks = NO_RACKS,
    ) -> Assignment:
        """See `Assignor.assign`; `racks` as in `Circumstances`."""
        weights = {consumer: weight_of(consumers[consumer]) for consumer in sorted(consumers)}
        deal: _Deal = Circle(weights).deal if len(set(weights.values())) <= 1 else WeightedTurns(weights).deal
        subscribers = {
            topic: audience.consumers
            for audience in audiences(topics, consumers)
            for topic in audience.topics
        }
        in_turn = {topic: deal(subscribers[topic], len(topics[topic])) for topic in sorted(subscribers)}
        if known := useful_racks(racks, topics, consumers):
            return _swapped(in_turn, topics, consumers, known)
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


def _swapped(
    in_turn: Mapping[str, list[str]],
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    racks: Racks,
) -> dict[str, dict[int, str]]:
    dealt = [(topic, partition) for topic in in_turn for partition in sorted(topics[topic])]
    owners = [owner for of_topic in in_turn.values() for owner in of_topic]
    assignment: dict[str, dict[int, str]] = {topic: {} for topic in in_turn}
    for start in range(0, len(dealt), len(consumers)):
        one_round = dealt[start : start + len(consumers)]
        takers = owners[start : start + len(consumers)]
        swap_for_zones(one_round, takers, consumers, racks)
        for (topic, partition), owner in zip(one_round, takers, strict=True):
            assignment[topic][partition] = owner
    return assignment
