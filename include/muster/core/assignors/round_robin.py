"""Round-robin: all topic-partitions dealt out in turn, across topics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer


class RoundRobin:
    """The rule of Kafka's `RoundRobinAssignor`.

    1. All consumers sit in a circle in order of consumer id.
    2. All topic-partitions, in order of topic and number, are dealt out one each in turn, going on from one topic
       to the next.
    3. A consumer that does not subscribe to the topic is passed over and loses that turn.

    With equal subscriptions no two consumers differ by more than one partition; with unequal ones it may be
    uneven. `weight` and `previous` play no part, so nearly everything moves when a consumer comes or goes.
    """

    name = "round-robin"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
    ) -> Assignment:
        """See `Assignor.assign`."""
        circle = {consumer: seat for seat, consumer in enumerate(sorted(consumers))}
        subscribers = {
            topic: audience.consumers
            for audience in audiences(topics, consumers)
            for topic in audience.topics
        }
        turn = 0
        assignment: dict[str, dict[int, str]] = {}
        for topic in sorted(subscribers):
            takers = subscribers[topic]
            # Among the takers the circle is a circle again; it is entered at the first one from `turn` on.
            entry = bisect_left(takers, turn, key=circle.__getitem__)
            owners = {
                partition: takers[(entry + step) % len(takers)]
                for step, partition in enumerate(sorted(topics[topic]))
            }
            if owners:
                turn = (circle[takers[(entry + len(owners) - 1) % len(takers)]] + 1) % len(circle)
            assignment[topic] = owners
        return assignment
