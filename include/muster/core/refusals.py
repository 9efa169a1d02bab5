"""Partitions whose commit was refused, and when they may be taken up again. Pure; the time comes in.

A consumer whose commit is refused has been replaced there, or was thrown out by one that should have known better; it
does not know which. If it took the partition up again by the assignment that it knows, it would fence off the
consumer that replaced it, which would do the same in turn. So it waits for two facts that are both younger than the
refusal:

- the assignment was read again and still names it. That leaves out one that was cut off from ZooKeeper, or frozen.
- discovery still has its own incarnation registered. That leaves out the older of two processes with one id, and
  a consumer that is cut off from Consul.

And it waits for a pause that doubles with each refusal, so that nothing that was forgotten here becomes a fight.

A producer that is stuck, or that Kafka has forgotten, is replaced by one that initialises the same id, which would
fence off the next owner just as well. So that waits for the same two facts (`Blocks.owns_still`), without a pause.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from muster.core.model import TopicPartition

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds from a refusal until the partition may be taken up again, at first and at most."""
FORGET_AFTER = 600.0
"""Seconds after which an earlier refusal no longer makes the pause longer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One partition's last refusal: when, on the clock that the caller uses, why, and how many there were."""

    at: float
    why: str
    wanted: int
    """The number of the reading of ZooKeeper, or of a later one, that has to be seen first."""
    times: int = 1
    pause: float = 0.0
    """Seconds to wait at least."""
    read: bool = False
    """Whether the assignment was read since."""
    over: bool = False
    """Whether the partition may be taken up again."""


@dataclass
class Refusals:
    """The refusals of one consumer. All times are seconds of one clock that never goes back, `first_pause` too."""

    first_pause: float = FIRST_PAUSE
    _refusals: dict[TopicPartition, Refusal] = field(default_factory=dict)
    _registered: float = -math.inf

    def note(self, key: TopicPartition, why: str, now: float, wanted: int) -> Refusal:
        """Note that a commit was refused; reading `wanted`, or a later one, has to read the assignment."""
        before = self._refusals.get(key)
        times = before.times + 1 if before is not None and now - before.at < FORGET_AFTER else 1
        pause = min(LONGEST_PAUSE, self.first_pause * 2.0 ** min(times - 1, 16))
        self._refusals[key] = Refusal(now, why, wanted, times, pause)
        return self._refusals[key]

    def was_read(self, number: int, unread: Collection[str]) -> None:
        """Note that the reading numbered `number` has ended; how the topics `unread` stand it could not tell."""
        for key, refusal in self._refusals.items():
            if refusal.wanted <= number and key[0] not in unread:
                self._refusals[key] = replace(refusal, read=True)

    def registered(self, asked: float) -> None:
        """Note that discovery has this incarnation registered, by a question that began at `asked`."""
        self._registered = max(asked, self._registered)

    def take_ready(self, now: float) -> list[TopicPartition]:
        """Return the partitions that may be taken up again from now on, each once."""
        ready = [key for key, refusal in self._refusals.items() if self._ready(refusal, now)]
        for key in ready:
            self._refusals[key] = replace(self._refusals[key], over=True)
        return ready

    def wait_for_discovery(self, now: float) -> bool:
        """Tell whether a partition could be taken up again if discovery still had this incarnation registered."""
        return any(r.read and not r.over and now >= r.at + r.pause for r in self._refusals.values())

    @property
    def to_be_read(self) -> bool:
        """Whether some assignment has to be read again."""
        return any(not refusal.read for refusal in self._refusals.values())

    @property
    def all(self) -> Mapping[TopicPartition, Refusal]:
        """Every partition's last refusal, also when it is over."""
        return self._refusals

    def _ready(self, refusal: Refusal, now: float) -> bool:
        known = refusal.read and self._registered > refusal.at
        return known and not refusal.over and now >= refusal.at + refusal.pause
