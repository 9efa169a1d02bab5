"""How many records a batch may hold: few enough to be done soon, many enough that what each batch costs is little.

Every batch costs Spark the same fraction of a second before it reads anything, so a consumer that is far behind reads
faster in large batches. A large batch, on the other hand, holds up a partition that is to be handed over, and repeats
more after a crash. So batches begin with `FIRST` records and grow, as long as they are full, to what takes about
`TARGET` seconds, never beyond `Bounds.records` and about `Bounds.size`. At a trickle a batch is what has arrived, and
nothing of this matters.

In a query's first batch Spark loads and compiles what it takes. So that says only how long a batch takes at most, and
the second one grows to what even so takes no more than `Bounds.seconds`.

Below `FIRST` they shrink only where a batch takes longer than `Bounds.seconds`, and only as long as that helps: a
handler that takes long whatever it is given would otherwise get less and less. A smaller batch that has less than
half the pace, in records a second, has not helped. Then batches stay as large as they were before, and a smaller one
is tried again after `TRY_AGAIN` batches.

A batch that failed teaches nothing. Pure; time comes in as an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FIRST = 100_000
TARGET = 1.0
BLIND = 1_000
"""So many records a batch holds at most while their size is bounded and not known."""
TRY_AGAIN = 50
_STEP = 4.0
_NEAR = 1.25
"""What is within this factor of the target is left as it is."""
_HELPS = 0.5
"""A smaller batch must have at least this part of the pace."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the settings say of batches.

    The most `records`; how many `seconds` a batch may take before the next one is smaller; about how many bytes
    (`size`) keys, values and headers may have, None for any; and the records a second of topics, by regular
    expressions of their whole names (`rates`, see `muster.consumer.source.rates`).
    """

    records: int = 500_000
    seconds: float = 10.0
    size: int | None = None
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class BatchSize:
    """The size of the next batch, in records, learnt from how long the full ones took."""

    bounds: Bounds = Bounds()
    _records: int = FIRST
    _given: int = 0
    """What the last answer was."""
    _full_since: float | None = None
    _is_first: bool = True
    """No batch of the query has taught anything."""
    _planned: int = 0
    _read: int = 0
    """Bytes read of the batch that was planned last."""
    _each: float | None = None
    """Bytes of a record, about; None while that is not known."""
    _slow: tuple[int, float] | None = None
    """While batches take too long: how many records the last one had that was worth it, and the best pace."""
    _least: int = 1
    """Fewer records have not helped."""
    _stayed: int = 0
    """Batches since then."""

    def next(self, now: float, failed: bool = False) -> int:
        """Return the most records that a batch planned now may hold. The last one ended by `now`, `failed` or not."""
        most = self.bounds.records
        if not failed and self._planned and self._read:
            each = self._read / self._planned
            self._each = each if self._each is None else (self._each + each) / 2
        if not failed and self._full_since is not None:
            self._learn(self._given, now - self._full_since, min(FIRST, most))
        self._full_since = None
        self._records = min(self._records, max(FIRST, most))
        self._given = min(self._records, most, self._by_size())
        return self._given

    def read(self, size: int) -> None:
        """Note that tasks have read so many more bytes."""
        self._read += size

    def planned(self, records: int, now: float) -> None:
        """Note that a batch of `records` begins; it teaches something if it is full."""
        self._planned, self._read = records, 0
        self._full_since = now if records >= self._given else None

    def _by_size(self) -> int:
        if self.bounds.size is None:
            return self._records
        return BLIND if self._each is None else max(1, int(self.bounds.size / max(self._each, 1.0)))

    def _learn(self, records: int, took: float, first: int) -> None:
        target = self.bounds.seconds if self._is_first else min(TARGET, self.bounds.seconds)
        self._is_first = False
        grown = _toward(records, took, target)
        if took <= self.bounds.seconds * _NEAR:
            self._slow, self._least = None, 1
        if grown >= first:
            self._records = grown
            return
        shrunk = _toward(records, took, self.bounds.seconds)
        if took > self.bounds.seconds * _NEAR:
            shrunk = self._as_far_as_it_helps(records, records / took, shrunk)
        self._records = min(first, max(1, shrunk))

    def _as_far_as_it_helps(self, records: int, pace: float, shrunk: int) -> int:
        self._stayed += 1
        if self._least > 1 and self._stayed >= TRY_AGAIN:
            self._slow, self._least = None, 1
        if self._slow is not None and records < self._slow[0] and pace < _HELPS * self._slow[1]:
            self._least, self._stayed = self._slow[0], 0
            return self._least
        self._slow = (records, pace if self._slow is None else max(pace, self._slow[1]))
        return max(self._least, shrunk)


def _toward(records: int, took: float, seconds: float) -> int:
    """Return how many records would take so many `seconds`, where so many took so long; at most `_STEP` times as
    many, or as few."""
    pace = min(_STEP, max(seconds / max(took, 1e-9), 1 / _STEP))
    return records if 1 / _NEAR < pace < _NEAR else round(records * pace)
