"""When the committed offset of a partition that is held is committed again, though it is the same.

Kafka forgets an offset that was not committed for `offsets.retention.minutes` (7 days), also of a partition that is
held and has nothing to read. So it is committed again once a day at the latest. Partitions are taken up together,
and would come due together: each has an interval of its own, between three quarters of a day and a day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from zlib import crc32

from muster.core.ownership import TopicPartition

LONGEST = 24 * 3600.0
SPREAD = 0.25
"""How much of `LONGEST` the intervals differ by."""


def interval(key: TopicPartition) -> float:
    """Seconds from one commit of this partition to the next at the latest."""
    return LONGEST * (1 - SPREAD * crc32(f"{key[0]}/{key[1]}".encode()) / 2**32)


@dataclass
class Renewals:
    """When each partition was last committed, on a clock in seconds that never goes back."""

    _at: dict[TopicPartition, float] = field(default_factory=dict)

    def committed(self, keys: Iterable[TopicPartition], now: float) -> None:
        """Kafka acknowledged a commit of these partitions."""
        self._at.update(dict.fromkeys(keys, now))

    def due(self, held: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        """Those of `held` that were last committed too long ago; the others that are not held are forgotten."""
        self._at = {key: at for key, at in self._at.items() if key in held}
        return frozenset(key for key, at in self._at.items() if now - at >= interval(key))
