"""How many records a batch may hold: few enough to be done soon, many enough that what each batch costs is little.

Every batch costs Spark the same fraction of a second before it reads anything, so a consumer that is far behind reads
faster in large batches. A large batch, on the other hand, holds up a partition that is to be handed over, and repeats
more after a crash. So batches begin with `FIRST` records and grow, as long as they are full, to what takes about
`TARGET` seconds, never beyond the setting `max_records_per_batch`. They never shrink below `FIRST`: a handler that
takes long whatever it is given would otherwise get less and less. At a trickle a batch is what has arrived, and
nothing of this matters.

Pure; time comes in as an argument, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 100_000
TARGET = 1.0
_STEP = 4.0
_NEAR = 1.25
"""What is within this factor of the target is left as it is."""


@dataclass(slots=True)
class BatchSize:
    """The size of the next batch, in records, learnt from how long the full ones took."""

    _records: int = FIRST
    _full_since: float | None = None

    def next(self, most: int, now: float) -> int:
        """The most that a batch planned now may hold; `most` is the setting. The batch before has ended by `now`."""
        if self._full_since is not None:
            pace = TARGET / max(now - self._full_since, TARGET / _STEP)
            if not 1 / _NEAR < pace < _NEAR:
                self._records = max(FIRST, round(self._records * max(pace, 1 / _STEP)))
            self._full_since = None
        self._records = min(self._records, max(FIRST, most))
        return min(self._records, most)

    def planned(self, records: int, now: float) -> None:
        """A batch of `records` begins; it teaches something if it is full."""
        self._full_since = now if records >= self._records else None
