"""Which topics a cluster reads: what the settings name, and the overrides that add to it or take from it.

In this order the first that says something about a topic counts:

1. a person unsubscribed it by its name; 2. a person subscribed it by its name;
3. a person unsubscribed a pattern for it; 4. a person subscribed a pattern for it;
5. The settings, by name or pattern.

Patterns are regular expressions for whole names. Kafka's internal topics (`__...`) are only subscribed by name.

An override that cannot be read may have been any of these. While there is one, what no readable override covers stays
as it is: no topic is taken up but by name, and none is let go that was not unsubscribed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from muster.core.overrides import TopicOverride


@dataclass(frozen=True, slots=True)
class Subscription:
    """`names` and `patterns` are those of the settings. `doubt`: some override cannot be read."""

    names: frozenset[str]
    patterns: tuple[str, ...] = ()
    overrides: tuple[TopicOverride, ...] = ()
    doubt: bool = False

    def override(self, topic: str) -> TopicOverride | None:
        """Return the override of `topic` that counts; None if the settings do."""
        found = [
            each
            for each in self.overrides
            if (matches(each.selector, topic) if each.pattern else each.selector == topic)
        ]
        return min(found, key=lambda each: (each.pattern, each.subscribed, each.selector), default=None)

    def includes(self, topic: str) -> bool:
        """Tell whether the cluster is to read `topic`."""
        override = self.override(topic)
        return self.by_settings(topic) if override is None else override.subscribed

    def by_settings(self, topic: str) -> bool:
        """Tell whether the settings name `topic`, whatever the overrides."""
        return topic in self.names or any(matches(pattern, topic) for pattern in self.patterns)

    def takes_up(self, topic: str) -> bool:
        """Tell whether `topic` is to be taken up if it is not known yet."""
        override = self.override(topic)
        by_name = override is not None and not override.pattern
        return self.includes(topic) and (by_name or not self.doubt)

    def lets_go(self, topic: str) -> str:
        """Say why `topic` is to be closed if it is known, '' if it is not to be."""
        override = self.override(topic)
        if override is not None:
            return "" if override.subscribed else str(override)
        if self.by_settings(topic) or self.doubt:
            return ""
        return "no longer subscribed by name or pattern"

    def leaving(self, topics: Iterable[str]) -> dict[str, str]:
        """Return those of the known `topics` that are to be closed, with the reason."""
        return {topic: reason for topic in topics if (reason := self.lets_go(topic))}

    def named(self) -> frozenset[str]:
        """Return the topics that are subscribed by their names, and not unsubscribed."""
        by_hand = {each.selector for each in self.overrides if each.subscribed and not each.pattern}
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
    """Tell whether a pattern covers `topic`: its whole name, and never an internal topic."""
    return not topic.startswith("__") and re.fullmatch(pattern, topic) is not None
