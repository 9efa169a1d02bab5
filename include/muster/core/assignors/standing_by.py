"""Standbys of assignors whose partitions go alone: how many, who, and that they are promoted first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.core.assignors.api import Pins, Standbys
from muster.core.assignors.co_partitioned import CoPartitioned
from muster.core.model import Assignment, Consumer


class StandingBy:
    """`wanted` consumers stand by for each partition. Raises ValueError if that is no number of consumers."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._alone = CoPartitioned(groups=[], standbys=wanted)

    def standbys(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        assignment: Assignment,
        previous_standbys: Standbys,
        /,
    ) -> Standbys:
        """See `HasStandbys.standbys`."""
        return self._alone.standbys(topics, consumers, assignment, previous_standbys)

    def _promoted(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        standbys: Standbys,
        pins: Pins,
    ) -> Pins:
        """Return `pins`, and beside them the partitions whose owner is gone, each with the first of its standbys that
        is there."""
        if not self._wanted or not standbys:
            return pins
        found: dict[str, dict[int, str]] = {topic: dict(owners) for topic, owners in pins.items()}
        for topic, of_topic in standbys.items():
            for p in topics.get(topic, frozenset()) & of_topic.keys():
                owner = previous.get(topic, {}).get(p)
                if p in found.get(topic, {}) or _first(consumers, topic, (owner,)) is not None:
                    continue
                if (first := _first(consumers, topic, of_topic[p])) is not None:
                    found.setdefault(topic, {})[p] = first
        return found


def _first(consumers: Mapping[str, Consumer], topic: str, asked: Iterable[str | None]) -> str | None:
    """Return the first of the consumers asked about that is there and subscribes to a topic."""
    return next(
        (c for c in asked if c is not None and c in consumers and consumers[c].subscribes(topic)), None
    )
