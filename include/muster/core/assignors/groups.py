"""Which topics belong together, so that partition n of all of them is read by one consumer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.core.assignors.subscriptions import audiences
from muster.core.model import Consumer

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Group:
    """Topics that belong together, and the consumers that subscribe to all of them, at least one; both ascending."""

    topics: tuple[str, ...]
    consumers: tuple[str, ...]


class Grouping:
    """The rule by which topics are grouped.

    Without `groups`, topics with the same partitions and the same subscribers are one group: those are the ones that
    can be joined by key at all. With `groups`, a list of lists, the topics of each list are a group, and each topic
    that is in no list is a group of its own. An entry of only letters, digits, '.', '_' and '-' is a topic's name,
    any other a regular expression that must match the whole name. A name goes before a pattern, then the first list
    wins.

    Only who subscribes to every topic of a group can read it. Where no live consumer does, the group falls apart into
    topics with the same subscribers, until one does.
    """

    def __init__(self, groups: Any = None) -> None:
        """Raises `TypeError` or `ValueError` that says which entry is wrong."""
        self._names: dict[str, int] = {}
        self._patterns: list[tuple[re.Pattern[str], int]] = []
        self._given = groups is not None
        for number, group in enumerate(_lists(groups)):
            for entry in group:
                if not isinstance(entry, str) or not entry:
                    raise TypeError(f"groups: {entry!r} is neither a topic nor a pattern")
                if not _NAME.fullmatch(entry):
                    self._patterns.append((_pattern(entry), number))
                elif entry in self._names:
                    raise ValueError(f"groups: topic {entry!r} is named twice; it can be in one group only")
                else:
                    self._names[entry] = number

    def of(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
    ) -> tuple[Group, ...]:
        """Group those of `topics` that have partitions and a subscriber, in order of each group's first topic."""
        together: dict[object, dict[tuple[str, ...], list[str]]] = {}
        for audience in audiences(topics, consumers):
            for topic in audience.topics:
                if topics[topic]:
                    key = self._key(topic, topics[topic], audience.topics[0])
                    together.setdefault(key, {}).setdefault(audience.consumers, []).append(topic)
        groups: list[Group] = []
        for by_subscribers in together.values():
            everywhere = frozenset.intersection(*map(frozenset, by_subscribers))
            if len(by_subscribers) == 1 or not everywhere:
                groups.extend(Group(tuple(alike), who) for who, alike in by_subscribers.items())
            else:
                members = [topic for alike in by_subscribers.values() for topic in alike]
                groups.append(Group(tuple(sorted(members)), tuple(sorted(everywhere))))
        return tuple(sorted(groups, key=lambda group: group.topics))

    def _key(self, topic: str, partitions: frozenset[int], audience: str) -> object:
        if not self._given:
            return (audience, partitions)
        number = self._names.get(topic)
        if number is None:
            number = next((n for pattern, n in self._patterns if pattern.fullmatch(topic)), None)
        return topic if number is None else number


def _lists(groups: Any) -> list[list[Any]]:
    if groups is None:
        return []
    if not isinstance(groups, list | tuple) or not all(isinstance(g, list | tuple) and g for g in groups):
        raise TypeError(f"groups must be a list of lists of topics or patterns, found {groups!r}")
    return [list(group) for group in groups]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"groups: {text!r} is not a regular expression: {error}") from error
