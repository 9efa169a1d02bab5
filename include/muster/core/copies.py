"""Copies of the state by key of a shard on consumers' disks, and how ready they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.core.lenient import Count, Duration, Flag, MaybeCount, Required, of_partitions, read, write


class Warmth(StrEnum):
    """How ready a consumer's local store of a shard is for it."""

    WARM = "warm"
    """What it lacks of the changelog is read in a moment."""
    WARMING = "warming"
    """It is being read on."""
    COLD = "cold"
    """It lacks much, and is not read on."""


WARM_LAG = 10_000
"""Offsets of its changelog that a store lacks at most to be warm: they are read in a fraction of a second."""


@dataclass(frozen=True, slots=True)
class ShardCopy:
    """The local store of one shard on a consumer's disk: it has the changelog up to `position`, which ended at `end`
    when that was last looked up (None: not yet), and takes so many `bytes`.

    `followed`: it is being brought to the end and kept there, at `rate` offsets a second on average since it began.
    `still`: it is to be brought to the end, and came no further for so many seconds.
    """

    position: Required
    end: MaybeCount = None
    bytes: Count = 0
    followed: Flag = False
    rate: Duration = 0.0
    still: Duration = 0.0

    @property
    def lag(self) -> int | None:
        """Offsets of the changelog that it lacks; None if that is unknown."""
        return None if self.end is None else max(0, self.end - self.position)

    @property
    def warmth(self) -> Warmth:
        """How ready it is."""
        if self.lag is not None and self.lag <= WARM_LAG:
            return Warmth.WARM
        return Warmth.WARMING if self.followed else Warmth.COLD

    def __str__(self) -> str:
        """Say it for people."""
        if self.warmth is Warmth.WARM or self.lag is None:
            return self.warmth
        lacks = f"{self.warmth}: it lacks {self.lag:,} offsets of the changelog"
        if self.warmth is Warmth.COLD or not self.rate:
            return lacks
        return f"{lacks}, and reads {self.rate:,.0f} a second, {self.lag / self.rate:,.0f} s left"


Copies = Mapping[str, Mapping[int, ShardCopy]]
"""The copies of a consumer, by topic and partition."""


def read_copies(value: object) -> Copies | None:
    """Read what a status says of copies, as lenient as `muster.core.lenient`; None if it does not."""
    if not isinstance(value, dict):
        return None
    return {
        topic: of_partitions(found, lambda entry: read(ShardCopy, entry)) for topic, found in value.items()
    }


def write_copy(copy: ShardCopy) -> dict[str, object]:
    """Return what a status says of a copy; lag and warmth are for people."""
    return {**write(copy), "lag": copy.lag, "is": copy.warmth}
