"""For how long each partition that is held has made no progress. Pure; the time comes in.

A partition *progresses* when a batch that held records of it was processed, and it is *without lag* when a planning
found nothing to read beyond the position. It is *stalled* for as long as neither was seen: because its handler hangs,
its batch fails again and again, its query fails before it plans, or Kafka does not tell where it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from muster.core.ownership import TopicPartition

STALLED_AFTER = 10.0
"""Seconds without progress that are no news: batches take time."""


@dataclass
class Progress:
    """When each partition was last seen to be well."""

    _well: dict[TopicPartition, float] = field(default_factory=dict)

    def held(self, keys: Collection[TopicPartition], now: float) -> None:
        """These partitions are held and not closing, and no others. One that was just taken up has had no time
        yet."""
        self._well = {key: self._well.get(key, now) for key in keys}

    def well(self, keys: Iterable[TopicPartition], now: float) -> None:
        """These have progressed, or are without lag."""
        self._well.update({key: now for key in keys if key in self._well})

    def stalled(self, now: float) -> dict[TopicPartition, float]:
        """The seconds without progress of those that are stalled."""
        return {key: now - at for key, at in self._well.items() if now - at >= STALLED_AFTER}
