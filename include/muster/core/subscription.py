"""Which topics a cluster reads: what clusters.yaml names, and what persons added to it or took from it.

In this order the first that says something about a topic counts:

1. a person unsubscribed it by its name; 2. a person subscribed it by its name;
3. a person unsubscribed a pattern for it; 4. a person subscribed a pattern for it;
5. clusters.yaml, by name or pattern.

Patterns are regular expressions for whole names. Kafka's internal topics (`__...`) are only subscribed by name.

A decision that cannot be read may have been any of these. While there is one, what is not decided by readable means
stays as it is: no topic is taken up but by name, and none is let go that was not unsubscribed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from muster.core.decided import Decided


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDecision(Decided):
    """A person subscribed or unsubscribed (`subscribed`) a topic, or all whose whole names match (`pattern`)."""

    selector: str
    pattern: bool
    subscribed: bool

    def covers(self, topic: str) -> bool:
        """Whether this is about `topic`."""
        return matches(self.selector, topic) if self.pattern else self.selector == topic

    def __str__(self) -> str:
        how = "subscribed" if self.subscribed else "unsubscribed"
        by_pattern = f" by pattern {self.selector!r}" if self.pattern else ""
        return f"{how}{by_pattern} by {self.said()}"


@dataclass(frozen=True, slots=True)
class Subscription:
    """`names` and `patterns` are those of clusters.yaml, `decided` what persons said. `doubt`: some of that cannot be
    read."""

    names: frozenset[str]
    patterns: tuple[str, ...] = ()
    decided: tuple[TopicDecision, ...] = ()
    doubt: bool = False

    def decision(self, topic: str) -> TopicDecision | None:
        """What a person decided about `topic`, the one that counts; None if clusters.yaml does."""
        found = [decision for decision in self.decided if decision.covers(topic)]
        return min(found, key=lambda d: (d.pattern, d.subscribed, d.selector), default=None)

    def includes(self, topic: str) -> bool:
        """Whether the cluster is to read `topic`."""
        decision = self.decision(topic)
        return self.by_settings(topic) if decision is None else decision.subscribed

    def by_settings(self, topic: str) -> bool:
        """Whether clusters.yaml names `topic`, whatever persons decided."""
        return topic in self.names or any(matches(pattern, topic) for pattern in self.patterns)

    def takes_up(self, topic: str) -> bool:
        """Whether `topic` is to be taken up if it is not known yet."""
        decision = self.decision(topic)
        by_name = decision is not None and not decision.pattern
        return self.includes(topic) and (by_name or not self.doubt)

    def lets_go(self, topic: str) -> str:
        """Why `topic` is to be closed if it is known, '' if it is not to be."""
        decision = self.decision(topic)
        if decision is not None:
            return "" if decision.subscribed else str(decision)
        if self.by_settings(topic) or self.doubt:
            return ""
        return "no longer subscribed by name or pattern"

    def leaving(self, topics: Iterable[str]) -> dict[str, str]:
        """Those of the known `topics` that are to be closed, with the reason."""
        return {topic: reason for topic in topics if (reason := self.lets_go(topic))}

    def named(self) -> frozenset[str]:
        """The topics that are subscribed by their names, and not unsubscribed."""
        by_hand = {d.selector for d in self.decided if d.subscribed and not d.pattern}
        return frozenset(topic for topic in self.names | by_hand if self.includes(topic))


def check_pattern(pattern: str) -> str:
    """Return `pattern` if it is a regular expression that can be shown and kept, else raise ValueError."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern[:100]!r} is not a regular expression: {error}") from error
    if not pattern.isprintable():
        raise ValueError(f"{pattern[:100]!r} holds characters that cannot be shown")
    return pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern covers `topic`: its whole name, and never an internal topic."""
    return not topic.startswith("__") and re.fullmatch(pattern, topic) is not None
