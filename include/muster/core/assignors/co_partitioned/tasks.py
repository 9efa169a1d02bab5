"""Which topics belong together, and what of them goes to one consumer as a whole.

Topics form groups. Partition n of every topic of a group is a task, as in Kafka Streams. A task is as large as
it has partitions: where the topics of a group have unequal counts, the higher numbers make smaller tasks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.core.assignors.api import Standbys
from muster.core.assignors.subscriptions import Audience, audiences
from muster.core.model import Assignment, Consumer

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Grouping:
    """The rule by which topics are grouped.

    Without `groups`, topics with the same partitions and the same subscribers are one group: those are the ones that
    can be joined by key at all. With `groups`, a list of lists, the topics of each list are a group, and each topic
    that is in no list is a group of its own. An entry of only letters, digits, '.', '_' and '-' is a topic's name,
    any other a regular expression that must match the whole name. A name goes before a pattern, then the first list
    wins.

    Only a consumer that subscribes to every topic of a group can read it. While no live consumer does, the group
    falls apart into topics with the same subscribers.
    """

    def __init__(self, groups: Any = None) -> None:
        """Read `groups`. Raises `TypeError` or `ValueError` that says which entry is wrong."""
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
    ) -> tuple[Audience, ...]:
        """Group those of `topics` that have partitions and a subscriber, in order of each group's first topic.

        The consumers of a group are those that subscribe to all of its topics, at least one.
        """
        together: dict[object, dict[tuple[str, ...], list[str]]] = {}
        for audience in audiences(topics, consumers):
            for topic in audience.topics:
                if topics[topic]:
                    key = self._key(topic, topics[topic], audience.topics[0])
                    together.setdefault(key, {}).setdefault(audience.consumers, []).append(topic)
        groups: list[Audience] = []
        for by_subscribers in together.values():
            everywhere = frozenset.intersection(*map(frozenset, by_subscribers))
            if len(by_subscribers) == 1 or not everywhere:
                groups.extend(Audience(tuple(alike), takers) for takers, alike in by_subscribers.items())
            else:
                members = [topic for alike in by_subscribers.values() for topic in alike]
                groups.append(Audience(tuple(sorted(members)), tuple(sorted(everywhere))))
        return tuple(sorted(groups, key=lambda group: group.topics))

    def together(self, topics: Iterable[str]) -> bool:
        """Tell whether one of the given lists has all of these topics."""
        numbers = {self._number(topic) for topic in topics}
        return len(numbers) == 1 and None not in numbers

    def _number(self, topic: str) -> int | None:
        number = self._names.get(topic)
        if number is None:
            number = next((n for pattern, n in self._patterns if pattern.fullmatch(topic)), None)
        return number

    def _key(self, topic: str, partitions: frozenset[int], audience: str) -> object:
        if not self._given:
            return (audience, partitions)
        number = self._number(topic)
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


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """The consumers that may take the tasks of some groups, in ascending order; `number` identifies the crowd."""

    number: int
    consumers: tuple[str, ...]
    members: frozenset[str]


@dataclass(slots=True, eq=False)
class Task:
    """Partition `number` of each of `topics`, which are those of group number `group` that have it.

    One of the `crowd` is to own it.
    """

    group: int
    number: int
    topics: tuple[str, ...]
    crowd: Crowd

    @property
    def size(self) -> int:
        """Return how many partitions it holds."""
        return len(self.topics)

    @property
    def kind(self) -> tuple[int, int]:
        """Return its size and its crowd: tasks of one kind may change places."""
        return len(self.topics), self.crowd.number

    def holder(self, assignment: Assignment) -> str | None:
        """Return which of its crowd holds most of it, in a tie the lowest id; None if none of them holds any."""
        members = self.crowd.members
        held = [owner for owner in self._owners(assignment) if owner in members]
        if not held:
            return None
        if held.count(held[0]) == len(held):
            return held[0]
        counts = Counter(held)
        return min(counts, key=lambda consumer: (-counts[consumer], consumer))

    def _owners(self, assignment: Assignment) -> Iterator[str]:
        for topic in self.topics:
            owner = assignment.get(topic, {}).get(self.number)
            if owner is not None:
                yield owner

    def leader(self, owners: Assignment, takers: Container[str] | None = None) -> str | None:
        """Return the consumer that `owners` (pins, or a whole assignment) give it to.

        That is the first of `takers`, by default its crowd, in order of topic, that has one of its partitions; None
        if none has.
        """
        allowed = self.crowd.members if takers is None else takers
        return next((consumer for consumer in self._owners(owners) if consumer in allowed), None)

    def without_pinned_away(self, pins: Assignment, leader: str | None) -> list[str]:
        """Take out of it what `pins` give to others than `leader`; return those, one entry a partition."""
        away = {
            topic: pins[topic][self.number] for topic in self.topics if self.number in pins.get(topic, {})
        }
        away = {topic: consumer for topic, consumer in away.items() if consumer != leader}
        self.topics = tuple(topic for topic in self.topics if topic not in away)
        return list(away.values())

    def standing_by(self, standbys: Standbys) -> list[str]:
        """Return which of its crowd stand by for it, the first to be promoted first."""
        standing: dict[str, None] = {}
        for topic in self.topics:
            standing.update(dict.fromkeys(standbys.get(topic, {}).get(self.number, ())))
        return [consumer for consumer in standing if consumer in self.crowd.members]


def tasks_of(groups: Sequence[Audience], topics: Mapping[str, frozenset[int]]) -> list[Task]:
    """Return all tasks, by group and number."""
    crowds: dict[tuple[str, ...], Crowd] = {}
    tasks: list[Task] = []
    for position, group in enumerate(groups):
        if (crowd := crowds.get(group.consumers)) is None:
            crowd = Crowd(len(crowds), group.consumers, frozenset(group.consumers))
            crowds[group.consumers] = crowd
        having: dict[int, list[str]] = {}
        for topic in group.topics:
            for number in topics[topic]:
                having.setdefault(number, []).append(topic)
        tasks.extend(Task(position, number, tuple(having[number]), crowd) for number in sorted(having))
    return tasks
