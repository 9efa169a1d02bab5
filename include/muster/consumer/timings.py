"""How long things took, counted in Prometheus's way: how many took at most so long."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets in seconds: from a commit with nothing in its way to a batch that is a backlog."""


@dataclass
class Timings:
    """A histogram of seconds. Not thread-safe."""

    seconds: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def took(self, seconds: float) -> None:
        """Count one more."""
        self.seconds += seconds
        self.counts[bisect_left(BOUNDS, seconds)] += 1

    def copy(self) -> Timings:
        """As it is at this moment."""
        return Timings(self.seconds, list(self.counts))

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound, as text, and how many took at most so long; the last one is all of them."""
        bounds = [*map(str, BOUNDS), "+Inf"]
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))
