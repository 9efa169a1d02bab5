"""Tasks: what co-partitioned gives to one consumer as a whole, partition n of every topic of a group.

The word is Kafka Streams'. A task is as large as it has partitions: where the topics of a group have unequal counts,
the higher numbers make smaller tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.core.assignors.circumstances import Standbys
from muster.core.assignors.groups import Group
from muster.core.model import Assignment


@dataclass(slots=True, eq=False)
class Task:
    """Partition `number` of each of `topics`, which are those of group number `group` that have it."""

    group: int
    number: int
    topics: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many partitions it holds."""
        return len(self.topics)

    def holder(self, assignment: Assignment, takers: frozenset[str]) -> str | None:
        """Which of `takers` holds most of it, in a tie the lowest id; None if none of them holds any."""
        held = [owner for owner in self._owners(assignment) if owner in takers]
        if not held:
            return None
        if held.count(held[0]) == len(held):
            return held[0]
        counts = Counter(held)
        return min(counts, key=lambda consumer: (-counts[consumer], consumer))

    def _owners(self, assignment: Assignment) -> Iterable[str]:
        for topic in self.topics:
            owner = assignment.get(topic, {}).get(self.number)
            if owner is not None:
                yield owner

    def leader(self, owners: Assignment, takers: Container[str]) -> str | None:
        """Whom `owners` (pins, or a whole assignment) give it to: the first of `takers`, in order of topic, that one
        of its partitions is with; None if none is."""
        return next((consumer for consumer in self._owners(owners) if consumer in takers), None)

    def without_pinned_away(self, pins: Assignment, leader: str | None) -> list[str]:
        """Take out of it what `pins` give to others than `leader`, and return to whom, one entry a partition."""
        away = {
            topic: pins[topic][self.number] for topic in self.topics if self.number in pins.get(topic, {})
        }
        away = {topic: consumer for topic, consumer in away.items() if consumer != leader}
        self.topics = tuple(topic for topic in self.topics if topic not in away)
        return list(away.values())

    def standing_by(self, standbys: Standbys, takers: frozenset[str]) -> list[str]:
        """Which of `takers` stand by for it, the first to be promoted first."""
        standing: dict[str, None] = {}
        for topic in self.topics:
            standing.update(dict.fromkeys(standbys.get(topic, {}).get(self.number, ())))
        return [consumer for consumer in standing if consumer in takers]


def tasks_of(groups: Sequence[Group], topics: Mapping[str, frozenset[int]]) -> list[Task]:
    """All tasks, by group and number."""
    tasks: list[Task] = []
    for position, group in enumerate(groups):
        having: dict[int, list[str]] = {}
        for topic in group.topics:
            for number in topics[topic]:
                having.setdefault(number, []).append(topic)
        tasks.extend(Task(position, number, tuple(having[number])) for number in sorted(having))
    return tasks
