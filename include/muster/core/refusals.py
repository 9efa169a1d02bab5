"""Partitions whose commit was refused, and when they may be taken up again. Pure; the time comes in.

A consumer whose commit is refused has been replaced there, or its place with the broker has lapsed; it cannot tell
which. If it took the partition up again on the strength of the assignment that it knows, it would throw out the one
who replaced it, who would do the same in turn. So it waits until it knows better, by two facts that are both younger
than the refusal:

- the assignment was read again and still names it. That leaves out whoever was cut off from ZooKeeper, or frozen.
- discovery still has its own incarnation registered. That leaves out the older of two processes with one id, and
  whoever is cut off from Consul.

And it waits for a pause that doubles with each refusal, so that nothing that was forgotten here becomes a fight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

TopicPartition = tuple[str, int]
"""Topic and partition number."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds from a refusal until the partition may be taken up again, at first and at most."""
FORGET_AFTER = 600.0
"""Seconds after which an earlier refusal no longer makes the pause longer."""


class Fact(Enum):
    """What has to be known anew before a partition may be taken up again."""

    ASSIGNED = "assigned"
    REGISTERED = "registered"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One partition's last refusal: when, on the clock that the caller uses, why, and how many there were."""

    at: float
    why: str
    times: int = 1
    over: bool = False
    """Whether the partition may be taken up again."""

    @property
    def pause(self) -> float:
        """Seconds to wait at least."""
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.times - 1, 16))


@dataclass
class Refusals:
    """The refusals of one consumer. All times are seconds of one clock that never goes back."""

    _refusals: dict[TopicPartition, Refusal] = field(default_factory=dict)
    _facts: dict[tuple[Fact, str], float] = field(default_factory=dict)

    def note(self, key: TopicPartition, why: str, now: float) -> Refusal:
        """A commit was refused."""
        before = self._refusals.get(key)
        times = before.times + 1 if before is not None and now - before.at < FORGET_AFTER else 1
        self._refusals[key] = Refusal(now, why, times)
        return self._refusals[key]

    def confirm(self, fact: Fact, asked: float, topics: Collection[str] = ("",)) -> None:
        """`fact` was found to hold by a question that began at `asked`; an assignment holds for `topics`."""
        for topic in topics:
            self._facts[fact, topic] = max(asked, self._facts.get((fact, topic), asked))

    def take_ready(self, now: float) -> list[TopicPartition]:
        """The partitions that may be taken up again from now on, each told once."""
        ready = [key for key, refusal in self._refusals.items() if self._ready(key, refusal, now)]
        for key in ready:
            before = self._refusals[key]
            self._refusals[key] = Refusal(before.at, before.why, before.times, over=True)
        return ready

    def topics_to_read(self) -> set[str]:
        """The topics whose assignment has to be read again."""
        return {
            key[0]
            for key, refusal in self._refusals.items()
            if not refusal.over and self._facts.get((Fact.ASSIGNED, key[0]), refusal.at) <= refusal.at
        }

    @property
    def all(self) -> Mapping[TopicPartition, Refusal]:
        """Every partition's last refusal, also when it is over."""
        return self._refusals

    def _ready(self, key: TopicPartition, refusal: Refusal, now: float) -> bool:
        assigned = self._facts.get((Fact.ASSIGNED, key[0]), refusal.at)
        registered = self._facts.get((Fact.REGISTERED, ""), refusal.at)
        return (
            not refusal.over and min(assigned, registered) > refusal.at and now >= refusal.at + refusal.pause
        )
