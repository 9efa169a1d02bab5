"""How far the shards are that this consumer takes up, for people. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from muster.core.model import Restore, ShardState, TopicPartition


@dataclass(frozen=True, slots=True)
class _Restoring:
    """A restore for a claim: it has read `read` of `total` offsets (None before it is its turn) since `began`, and
    last came further `at`. To begin again where it has failed is no progress."""

    claim_epoch: int
    began: float
    at: float
    total: int | None = None
    read: int = 0


@dataclass
class Restores:
    """The shards that do not run yet, by what `clock` (monotonic) says."""

    clock: Callable[[], float]
    _restoring: dict[TopicPartition, _Restoring] = field(default_factory=dict, init=False)
    _differing: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict, init=False)
    """Those that wait for a person, by the claim epoch, and why."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def wait_turn(self, tp: TopicPartition, claim_epoch: int) -> None:
        """Take note that a shard is to be taken up."""
        with self._lock:
            before = self._restoring.get(tp)
            if before is None or before.claim_epoch != claim_epoch:
                now = self.clock()
                self._restoring[tp] = _Restoring(claim_epoch, now, now)

    def came(self, tp: TopicPartition, claim_epoch: int, read: int, total: int) -> None:
        """Take note of how far a restore came."""
        with self._lock:
            now, before = self.clock(), self._restoring.get(tp)
            if before is None or (before.claim_epoch, before.total) != (claim_epoch, total):
                self._restoring[tp] = _Restoring(claim_epoch, now, now, total, read)
            elif read > before.read:
                self._restoring[tp] = replace(before, at=now, read=read)

    def ended(self, tp: TopicPartition, claim_epoch: int, differs: str) -> None:
        """Take note that a shard runs, or why it waits for a person."""
        with self._lock:
            self._restoring.pop(tp, None)
            self._differing.pop(tp, None)
            if differs:
                self._differing[tp] = claim_epoch, differs

    def keep(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Forget shards that are not held under these claim epochs any more."""
        with self._lock:
            held = claim_epochs.items()
            self._restoring = {t: one for t, one in self._restoring.items() if (t, one.claim_epoch) in held}
            self._differing = {t: one for t, one in self._differing.items() if (t, one[0]) in held}

    def status(self) -> dict[TopicPartition, ShardState]:
        """Return how each of them stands."""
        with self._lock:
            now = self.clock()
            # What waits for its turn stands still no longer than what it waits for.
            last = max((one.at for one in self._restoring.values() if one.total is not None), default=0.0)
            return {
                **{tp: ShardState(restore=_shown(one, last, now)) for tp, one in self._restoring.items()},
                **{tp: ShardState(differs=why) for tp, (_, why) in self._differing.items()},
            }


def _shown(one: _Restoring, last: float, now: float) -> Restore:
    rate = one.read / (now - one.began) if now > one.began else 0.0
    at = one.at if one.total is not None else max(one.at, last)
    return Restore(one.read, one.total, rate, max(0.0, now - at))
