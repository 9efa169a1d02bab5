"""Assignors of a user, as a dotted path names them."""

from __future__ import annotations


class Stale:
    """Knows only a consumer that left long ago."""

    name = "own_assignors.Stale"

    def assign(self, topics, consumers, previous):
        return {topic: dict.fromkeys(partitions, "left-long-ago") for topic, partitions in topics.items()}


class Forgetful:
    """Leaves a partition out."""

    name = "own_assignors.Forgetful"

    def assign(self, topics, consumers, previous):
        first = min(consumers)
        return {topic: dict.fromkeys(sorted(partitions)[1:], first) for topic, partitions in topics.items()}


class Broken:
    """Raises."""

    name = "own_assignors.Broken"

    def assign(self, topics, consumers, previous):
        return {topic: {0: consumers["nobody"]} for topic in topics}
